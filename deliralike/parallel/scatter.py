class Shares: pass
def split_batch(*a, **k):
    raise NotImplementedError
def scatter(*a, **k):
    raise NotImplementedError
