"""Native layers that write over their input, which is read again, against a port that does not."""

import torch

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from tests.conformance.small import batch

nn, L, CF = torch.nn, chainer.links, chainer.functions
LEVELS = ("L0", "L1", "L3")


class Aliased(nn.Module):
    """`s` reads what `r` has written over."""

    def __init__(self, inplace=True):
        super().__init__()
        self.fc = nn.Linear(4, 5)
        self.r = nn.Sequential(nn.ReLU(inplace=inplace), nn.Linear(5, 3))
        self.s, self.act = nn.Linear(5, 3), nn.Tanh()

    def forward(self, x):
        x = self.fc(x)
        a = self.r(x)
        return self.act(a) + self.s(x)


class OnChainer(chainer.Chain):
    """The same without the writing."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc, self.inner, self.s = L.Linear(4, 5), L.Linear(5, 3), L.Linear(5, 3)

    def forward(self, x):
        x = self.fc(x)
        return CF.tanh(self.inner(CF.relu(x))) + self.s(x)


def test_what_is_read_after_it_was_written_over_is_named():
    proof = compare(Aliased(), OnChainer(), batch(), weights="load", levels=LEVELS)
    cause = "the input of s being the output of fc instead of the output of r.0"
    assert proof.diverges and f"Explained by {cause}" in proof.headline
