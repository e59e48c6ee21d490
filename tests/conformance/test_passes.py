"""What a comparison costs: passes through the networks, counted in them."""

from collections import Counter

import numpy as np
import pytest
import torch

from deliralike import Network
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from tests.compiled import compilations

CALLS = Counter()
BATCH = np.random.default_rng(0).standard_normal((6, 4)), np.arange(6) % 3
MOST = 14


class OnTorch(torch.nn.Module):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x):
        CALLS["torch"] += 1
        return self.out(torch.relu(self.norm(self.fc(x))))


class OnChainer(chainer.Chain):
    """The same, with names of its own."""

    def __init__(self):
        super().__init__()
        links = chainer.links
        with self.init_scope():
            self.first, self.last = links.Linear(4, 4), links.Linear(4, 3)
            self.bn = links.BatchNormalization(4, decay=0.9, eps=1e-5)

    def forward(self, x):
        CALLS["chainer"] += 1
        return self.last(chainer.functions.relu(self.bn(self.first(x))))


class OnEmbedding(torch.nn.Module):
    """Of whole numbers."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = (
            torch.nn.Embedding(7, 4, padding_idx=0),
            torch.nn.Linear(4, 3),
        )

    def forward(self, x):
        CALLS["torch"] += 1
        return self.out(self.embedding(x).mean(1))


WORDS = np.random.default_rng(0).integers(1, 7, (5, 6)), np.arange(5) % 3


@pytest.mark.parametrize(
    ("sides", "batch"),
    [
        ((OnTorch, OnTorch), BATCH),
        ((OnTorch, OnChainer), BATCH),
        ((OnEmbedding,) * 2, WORDS),
    ],
    ids=["same", "other names", "words"],
)
def test_a_right_pair_is_proved_with_fourteen_passes(sides, batch):
    CALLS.clear()
    proof = compare(*(side() for side in sides), batch, weights="load")
    assert proof.proved, proof
    judged = [level for level in proof.levels if level.name != "L3"]
    assert {level.status for level in judged} == {"passed"}
    assert 4 <= CALLS.total() <= MOST


def test_quick_ones_take_six():
    CALLS.clear()
    options = {"weights": "load", "levels": ("L0", "L1", "L3")}
    assert compare(OnTorch(), OnTorch(), BATCH, **options).proved
    assert CALLS.total() == 6


class WrittenOnce(Network):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm = self.nn.Linear(4, 3), self.nn.BatchNorm1d(3)

    def forward(self, x):
        CALLS[self.backend.name] += 1
        return self.norm(self.fc(x))


def test_names_and_values_alone_take_one_pass_in_each_mode(backend):
    sides = [
        WrittenOnce.on(name, dtype="float64")() for name in ("torch", backend.name)
    ]
    CALLS.clear()
    proof = compare(
        *sides, BATCH, levels=("L0", "L1"), progress=lambda words, done: None
    )
    assert [(level.name, level.status) for level in proof.levels] == [
        ("L0", "passed"),
        ("L1", "passed"),
    ]
    assert CALLS.total() == 4


def test_jax_compiles_a_network_as_a_whole():
    """Its operations would be one program each, which takes longer to compile."""
    sides = [WrittenOnce.on(name, dtype="float64")() for name in ("torch", "jax")]
    with compilations() as compiled:
        assert compare(*sides, BATCH, levels=("L0", "L1")).proved
    assert len(compiled) < 10
