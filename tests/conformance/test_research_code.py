"""Networks as research repositories have them: packed sequences, batches that are dicts, layers of
other sizes."""

import numpy as np
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from deliralike.conformance import compare
from deliralike.conformance.subject import Subject

QUICK = ("L0", "L1", "L3")
TOKENS = np.array([[3, 1, 4, 1], [5, 2, 0, 0], [6, 5, 3, 0]])
SEQUENCES = TOKENS, np.array([0, 1, 1])
ROWS = {
    "x": np.random.default_rng(0).normal(size=(4, 3)),
    "label": np.array([0, 1, 1, 0]),
}


class Packed(torch.nn.Module):
    """A recurrent layer over sequences of several lengths."""

    def __init__(self, first="lstm", scale=1.0):
        super().__init__()
        self.first, self.scale = first, scale
        self.embedding = torch.nn.Embedding(7, 3)
        self.add_module(
            first, torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        )
        self.out = torch.nn.Linear(8, 2)

    def forward(self, tokens):
        lengths = (tokens != 0).sum(1)
        packed = pack_padded_sequence(
            self.embedding(tokens),
            lengths.cpu(),
            batch_first=True,
            enforce_sorted=False,
        )
        _, (hidden, _) = getattr(self, self.first)(packed)
        return self.out(self.scale * torch.cat(list(hidden), 1))


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


def test_packed_sequences_are_compared():
    proof = compare(Packed(), Packed("rnn"), SEQUENCES, weights="load", levels=QUICK)
    assert proof.proved, proof
    proof = compare(
        Packed(), Packed("rnn", 1.25), SEQUENCES, weights="load", levels=QUICK
    )
    (finding,) = proof.level("L3").findings
    assert finding.what == "the input of out"
    assert "1.25" in finding.explanation.cause


def test_a_subject_takes_a_native_network():
    def side(**settings):
        return Subject(OfDict(**settings), loss_of_dict)

    proof = compare(side(), side(), (ROWS,), weights="load", levels=QUICK)
    assert proof.proved, proof
    proof = compare(side(), side(slope=0.2), (ROWS,), weights="load", levels=QUICK)
    assert "negative_slope=0.2 instead of 0.01" in proof.headline
