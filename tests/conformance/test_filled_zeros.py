"""Parameters that are zero at the start hide nothing."""

import numpy as np

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
