"""Places of mistakes in ports that group, call or name blocks otherwise than the original."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from tests.conformance.small import QUICK, labels, moved, normal, proof

L, C = chainer.links, chainer.functions


X = normal(5, 6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.act = nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU()

    def forward(self, x):
        return self.act(x + self.norm(self.fc(x)))


class Grouped(nn.Module):
    """Two blocks in one that calls them."""

    def __init__(self):
        super().__init__()
        self.stem, self.act = nn.Linear(6, 6), nn.GELU()
        self.stage = nn.Sequential(Block(), Block())
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.stage(self.act(self.stem(x))))


class ChainerBlock(chainer.Chain):
    def __init__(self, eps, before):
        super().__init__()
        self.before = before
        with self.init_scope():
            self.fc, self.norm = L.Linear(6, 6), L.LayerNormalization(6, eps=eps)

    def forward(self, x):
        y = self.norm(self.fc(x))
        return x + C.relu(y) if self.before else C.relu(x + y)


def gelu(x):
    return 0.5 * x * (1 + C.erf(x / np.sqrt(2)))


class OneByOne(chainer.Chain):
    """The blocks are in a list, and called one after another."""

    def __init__(self, eps=1e-5, before=False, act=gelu):
        super().__init__()
        self.act = act
        with self.init_scope():
            self.stem, self.head = L.Linear(6, 6), L.Linear(6, 4)
            self.stage = chainer.ChainList(
                ChainerBlock(1e-5, before=False), ChainerBlock(eps, before)
            )

    def forward(self, x):
        x = self.act(self.stem(x))
        for block in self.stage:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize(
    ("mistake", "place", "cause"),
    [
        ({"eps": 1e-3}, "stage.1.norm", "eps=0.001 instead of 1e-05"),
        (
            {"before": True},
            "stage.1",
            "",
        ),  # what stands between two layers has a place alone
        ({"act": lambda x: x}, "act", "no GELU: it is left out"),
    ],
)
def test_blocks_that_one_side_calls_one_by_one_are_looked_into(mistake, place, cause):
    found = proof(Grouped, OneByOne(**mistake), X)
    first = found.findings[0]
    assert first.place == place, found
    if cause:
        assert first.explanation.known
        assert cause in first.explanation.cause
    assert not any(
        "corresponds" in sentence for sentence in (found.headline, *first.remarks)
    )


def test_blocks_called_one_by_one_are_right():
    assert proof(Grouped, OneByOne(), X).proved


def test_effect_of_weights_that_are_not_copied():
    """It is that of the candidate as it came, not that of the copy with the reference's weights."""
    reference, candidate = moved(Grouped), OneByOne()
    state = backends.wrap(reference).neutral_state()
    backends.wrap(candidate).load_neutral_state(state)
    right = candidate(X).array
    candidate.head.W.array = candidate.head.W.array[::-1].copy()
    wrong = candidate(X).array
    batch = (X, labels(len(X)))
    found = compare(reference, candidate, batch, levels=QUICK).findings[0]
    assert (found.level, found.place) == ("L0", "head.weight")
    size = np.linalg.norm(wrong - right) / np.linalg.norm(right)
    assert found.effect == f"Effect on evaluation outputs about {size:.0e}.".replace(
        "e+00", "e+0"
    )


class Tied(nn.Module):
    """One matrix for two layers."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(
            torch.tanh(F.linear(torch.tanh(self.fc(x)), self.fc.weight.t()))
        )


class ChainerTied(chainer.Chain):
    def __init__(self, act=C.tanh):
        super().__init__()
        self.act = act
        with self.init_scope():
            self.fc, self.head = L.Linear(6, 6), L.Linear(6, 4)

    def forward(self, x):
        return self.head(C.tanh(C.matmul(self.act(self.fc(x)), self.fc.W)))


def test_what_differs_forwards_comes_before_gradients():
    """The matrix's gradient differs as well, since it is used behind the mistake."""
    assert proof(Tied, ChainerTied(), X).proved
    first = proof(Tied, ChainerTied(act=C.sigmoid), X).findings[0]
    assert "gradient" not in first.what
    assert "sigmoid instead of tanh" in first.explanation.cause


class Within(nn.Module):
    """A class of its own between layers, which the port writes out."""

    def __init__(self):
        super().__init__()
        self.fc, self.scale, self.head = nn.Linear(6, 6), Scale(), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.scale(self.fc(x)))


class Scale(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)


class WrittenOut(chainer.Chain):
    def __init__(self, eps=1e-3):
        super().__init__()
        self.eps = eps
        with self.init_scope():
            self.fc, self.head = L.Linear(6, 6), L.Linear(6, 4)

    def forward(self, x):
        x = self.fc(x)
        root = C.sqrt(C.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return self.head(x / C.broadcast_to(root, x.shape))


def test_the_block_that_makes_an_array_is_the_place():
    assert proof(Within, WrittenOut(), X).proved
    first = proof(Within, WrittenOut(eps=1e-2), X).findings[0]
    assert (first.place, first.what) == ("scale", "output")
    assert first.explanation.cause == "input plus 0.009, in rsqrt()"


class Upright(nn.LayerNorm):
    """A norm over the channels of pictures, as ConvNeXt has it."""

    order = (0, 2, 3, 1)

    def forward(self, x):
        shape, eps = self.normalized_shape, self.eps
        x = F.layer_norm(x.permute(self.order), shape, self.weight, self.bias, eps)
        return x.permute(0, 3, 1, 2)


class Lying(Upright):
    order = (0, 3, 2, 1)


class Pictures(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, 2)
        self.norm = norm(6)
        self.second = nn.Conv2d(6, 5, 3)

    def forward(self, x):
        return self.second(self.norm(self.first(x))).mean((2, 3))


def test_a_block_that_exchanges_rows_and_columns_is_the_place():
    torch.manual_seed(0)
    reference, candidate = Pictures(Upright), Pictures(Lying)
    candidate.load_state_dict(reference.state_dict())
    draw = np.random.default_rng(0).standard_normal
    found = compare(reference, candidate, (draw((3, 3, 17, 17)), np.array([0, 1, 4])))
    assert found.headline.startswith("DIVERGES at norm (Upright)")
