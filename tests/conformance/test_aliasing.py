"""Native layers that write over their input, which is read again, against ports that do not."""

import jax
import numpy as np
import pytest
import torch
from flax import nnx

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from tests.conformance import ports
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


class OnFlax(nnx.Module):
    """The same on flax."""

    def __init__(self):
        self.fc = nnx.Linear(4, 5, **ports.wide())
        self.inner, self.s = (nnx.Linear(5, 3, **ports.wide()) for _ in range(2))

    def __call__(self, x):
        x = self.fc(x)
        return nnx.tanh(self.inner(jax.nn.relu(x))) + self.s(x)


CANDIDATES = {
    "torch": lambda: Aliased(inplace=False),
    "chainer": OnChainer,
    "jax": lambda: ports.made(OnFlax, "jax"),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_writing_over_an_input_that_is_read_again_is_named(name):
    proof = compare(
        Aliased(), CANDIDATES[name](), batch(), weights="load", levels=LEVELS
    )
    (finding,) = [one for one in proof.findings if one.level == "L3"]
    assert proof.diverges
    assert (finding.place, finding.kind, finding.explained) == ("r.0", "ReLU", True)
    cause = "ReLU in place: it writes over its input, which is read again"
    assert finding.explanation.cause == cause
    assert cause in proof.headline
    x = torch.as_tensor(batch()[0])
    module = Aliased().double()
    other = Aliased(inplace=False).double()
    other.load_state_dict(module.state_dict())
    apart = np.linalg.norm((module(x) - other(x)).detach()) / np.linalg.norm(
        module(x).detach()
    )
    assert apart > 1e-3  # that there is something to explain


def test_of_a_candidate_it_is_named_as_well():
    proof = compare(
        Aliased(inplace=False), Aliased(), batch(), weights="load", levels=LEVELS
    )
    assert (
        "Explained by ReLU in place of the candidate: it writes over its input"
        in proof.headline
    )


def test_writing_that_nobody_reads_is_no_cause():
    class Wrong(Aliased):
        def forward(self, x):
            return self.act(self.r(self.fc(x))) * 1.01

    class Right(Aliased):
        def forward(self, x):
            return self.act(self.r(self.fc(x)))

    proof = compare(Right(), Wrong(), batch(), weights="load", levels=LEVELS)
    assert proof.diverges and "in place" not in str(proof)
