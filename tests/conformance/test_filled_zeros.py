"""Parameters that are zero at the start hide nothing."""

import numpy as np
import pytest
import torch

from deliralike import Network
from deliralike.conformance import compare
from deliralike.nn.start import ZEROS

BATCH = (np.random.default_rng(2).normal(size=(5, 4)), np.array([0, 2, 1, 2, 0]))


def zero_head(activation):
    class Hidden(Network):
        start_values = {"head.*": ZEROS}

        def __init__(self):
            super().__init__()
            self.first = self.nn.Linear(4, 7)
            self.second = self.nn.Linear(7, 7)
            self.head = self.nn.Linear(7, 3)

        def forward(self, x):
            x = getattr(self.nn, activation)(self.first(x))
            return self.head(self.nn.tanh(self.second(x)))

    return Hidden


def compared(reference, candidate):
    return compare(reference, candidate, BATCH, levels=("L0", "L1", "L3"))


def test_what_lies_before_a_head_of_zeros_is_compared():
    right = zero_head("relu").on("torch")(), zero_head("relu").on("jax")()
    proof = compared(*right)
    assert proof.proved
    (note,) = [note for note in proof.level("L1").notes if "nothing but zeros" in note]
    assert note.endswith("follow: head.weight, head.bias.")
    assert "not compared" not in str(proof)
    before = [network.neutral_state() for network in right]
    assert not np.any(before[0]["head.weight"]) and not np.any(before[1]["head.weight"])


def test_a_mistake_behind_a_head_of_zeros_is_found():
    proof = compared(zero_head("relu").on("torch")(), zero_head("gelu").on("jax")())
    assert not proof.proved
    assert "gelu" in str(proof)


class Branch(torch.nn.Module):
    """A residual branch whose last map starts at zero, as users of PyTorch write it."""

    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.proj_in = torch.nn.Linear(4, 6)
        self.norm = torch.nn.LayerNorm(6, eps=epsilon)
        self.proj_out = torch.nn.Linear(6, 4)
        torch.nn.init.zeros_(self.proj_out.weight)
        torch.nn.init.zeros_(self.proj_out.bias)
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x + self.proj_out(torch.tanh(self.norm(self.proj_in(x)))))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_a_branch_of_zeros_in_a_port(epsilon):
    torch.manual_seed(3)
    proof = compare(
        Branch(), Branch(epsilon), BATCH, weights="load", levels=("L0", "L1", "L3")
    )
    assert proof.proved == (epsilon == 1e-5)
    if epsilon != 1e-5:
        assert "1e-3" in str(proof) or "0.001" in str(proof)
