"""The classifier as a chain."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


class MLP(chainer.Chain):
    """Two linear links with a norm between them."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(6, 9)
            self.ln = L.LayerNormalization(9, eps=1e-5)
            self.l2 = L.Linear(9, 4)

    def forward(self, x):
        return self.l2(F.tanh(self.ln(self.l1(x))))


def network(reference):
    """The port with weights of its own."""
    return MLP()
