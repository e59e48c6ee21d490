"""Causes and errors of comparisons that strangers' ports ask for."""

import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn.utils import rnn

from deliralike import Network
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.errors import SettingError
from tests.conformance.small import QUICK, labels, normal, proof

L = chainer.links


# Orders of features
# -----------------------------------------------------------------------------


class Flat(nn.Module):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(24, 4)
        self.order = order

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).permute(self.order).flatten(1))


def test_an_order_of_flattening_where_names_are_equal():
    (found,) = proof(Flat, Flat((0, 2, 3, 1)), normal(5, 1, 2, 3)).level("L3").findings
    assert found.place == "fc"
    assert found.explained
    assert "the axes of 4 x 6 exchanged" in found.explanation.cause


# Sequences with padding
# -----------------------------------------------------------------------------

LENGTHS = np.array([7, 3, 5, 2, 6, 1])


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths.cpu(), True, enforce_sorted=False)
        return self.fc(self.rnn(packed)[1][0][-1])


class ChainerPadded(chainer.Chain):
    def __init__(self, right=False):
        super().__init__()
        self.right = right
        with self.init_scope():
            self.rnn, self.fc = L.NStepLSTM(1, 3, 5, 0.0), L.Linear(5, 4)

    def forward(self, x, lengths):
        sequences = [
            one[: int(n)] if self.right else one
            for one, n in zip(x, lengths, strict=True)
        ]
        return self.fc(self.rnn(None, None, sequences)[0][-1])


def test_a_port_that_reads_the_padding_of_sequences():
    sequences = normal(6, 7, 3) * (np.arange(7)[None, :, None] < LENGTHS[:, None, None])
    assert proof(Packed, ChainerPadded(right=True), sequences, LENGTHS).proved
    (found,) = proof(Packed, ChainerPadded(), sequences, LENGTHS).level("L3").findings
    assert found.what == "the input of fc"


# How networks are called
# -----------------------------------------------------------------------------


class OfDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, batch):
        return self.fc(batch["x"])


class Named(OfDict):
    def forward(self, *, x, mask=None):
        return self.fc(x)


class FlaxNamed(nnx.Module):
    def __init__(self):
        self.fc = nnx.Linear(6, 4, rngs=nnx.Rngs(0))

    def __call__(self, *, x, mask=None):
        return self.fc(x)


def test_a_network_that_the_default_loss_cannot_call():
    x, y = normal(5, 6), labels(5)
    words = r"Named on torch: forward\(\*, x, mask=None\) with 1 inputs.*Subject\(network, loss\)"
    with pytest.raises(SettingError, match=words):
        compare(Named(), FlaxNamed(), (x, y), levels=QUICK)
    with pytest.raises(
        SettingError, match=r"FlaxNamed on jax: forward\(\*, x, mask=None\)"
    ):
        compare(nn.Linear(6, 4), FlaxNamed(), (x, y), levels=QUICK)
    for batch in ({"x": x, "y": y}, ({"x": x, "y": y},)):
        with pytest.raises(
            SettingError, match=r"wants \(inputs, labels\).*goes in as \(batch,\)"
        ):
            compare(OfDict(), OfDict(), batch, levels=QUICK)


# Nothing else
# -----------------------------------------------------------------------------


class Scored(nn.Module):
    """Scores that are masked by infinities."""

    def __init__(self, change=lambda x: x):
        super().__init__()
        self.q, self.fc, self.change = nn.Linear(6, 6), nn.Linear(6, 4), change

    def forward(self, x):
        scores = (self.q(x) @ x.transpose(1, 2)).masked_fill(
            torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf
        )
        return self.fc(self.change(torch.softmax(scores, -1)) @ x).mean(1)


def odd(x):
    return x + 0.1 * torch.sin(3.0 * x) * x.flip(1)


def test_no_warning_of_numbers_comes_from_the_search_for_a_cause():
    """Warnings are errors here."""
    assert proof(Scored, Scored(odd), normal(3, 5, 6)).diverges


class Stack(Network):
    """Three convolutions in a row, one of which may be left out: what follows has other names."""

    def __init__(self, left_out=None):
        super().__init__()
        sizes = enumerate([(3, 4), (4, 4), (4, 7)])
        kept = [self.nn.Conv2d(*size, 3) for at, size in sizes if at != left_out]
        self.body, self.head = self.nn.Sequential(*kept), self.nn.Linear(7, 5)

    def forward(self, x):
        return self.head(self.nn.mean(self.body(x), (2, 3)))


def test_a_kernel_that_a_port_has_nowhere_is_a_difference_whatever_the_names():
    sides = Stack.on("torch")(), Stack.on("chainer")(left_out=1)
    draw = np.random.default_rng(0).standard_normal
    batch = draw((3, 3, 9, 9)), np.array([0, 1, 4])
    found = compare(*sides, batch, weights="load", levels=QUICK)
    assert found.headline.startswith("DIVERGES at body.1.weight (Conv2d), missing")


class Unlike(Network):
    """Of a `Stack` it has the last layer alone."""

    def __init__(self):
        super().__init__()
        self.wide, self.last = self.nn.Conv2d(3, 7, 5), self.nn.Linear(7, 5)

    def forward(self, x):
        return self.last(self.nn.mean(self.wide(x), (2, 3)))


def test_what_does_not_match_stands_in_the_first_and_the_last_sentence_alone():
    draw = np.random.default_rng(0).standard_normal
    batch = draw((3, 3, 9, 9)), np.array([0, 1, 4])
    found = compare(
        Stack.on("torch")(), Unlike.on("chainer")(), batch, weights="load", levels=QUICK
    )
    assert found.headline.startswith("NOT PROVED")
    assert str(found).count("does not match") == 2
    named = found.headline.count("missing: ") + found.headline.count("unexpected: ")
    assert named == 3 and " more. Say which" in found.headline
