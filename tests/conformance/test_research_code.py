"""Networks as research repositories have them: packed sequences, batches that are dicts, layers of
other sizes."""

import numpy as np
import torch

from deliralike.conformance import compare
from deliralike.conformance.subject import Subject

QUICK = ("L0", "L1", "L3")
ROWS = {
    "x": np.random.default_rng(0).normal(size=(4, 3)),
    "label": np.array([0, 1, 1, 0]),
}


class OfDict(torch.nn.Module):
    """Takes a batch as one dict, and gives its scores in another one."""

    def __init__(self, slope=0.01):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)
        self.act = torch.nn.LeakyReLU(slope)

    def forward(self, batch):
        return {"logits": self.out(self.act(self.hidden(batch["x"])))}


def loss_of_dict(network, batch):
    return network.nn.cross_entropy(network(batch)["logits"], batch["label"])


def test_a_subject_takes_a_native_network():
    def side(**settings):
        return Subject(OfDict(**settings), loss_of_dict)

    proof = compare(side(), side(), (ROWS,), weights="load", levels=QUICK)
    assert proof.proved, proof
    proof = compare(side(), side(slope=0.2), (ROWS,), weights="load", levels=QUICK)
    assert "negative_slope=0.2 instead of 0.01" in proof.headline
