def gather(*a, **k):
    raise NotImplementedError
