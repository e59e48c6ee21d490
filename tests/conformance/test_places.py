"""Places of mistakes in ports that group, call or name blocks otherwise than the original."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import Subject, compare

L, C = chainer.links, chainer.functions


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


BATCH = (normal(5, 6), np.random.default_rng(1).integers(0, 4, 5))


def proof(reference, candidate, weights="load", batch=BATCH):
    return compare(
        reference, candidate, batch, weights=weights, levels=("L0", "L1", "L3")
    )


def made(kind):
    torch.manual_seed(0)
    network = kind()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


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
    found = proof(made(Grouped), OneByOne(**mistake))
    first = found.findings[0]
    assert first.place == place, found
    if cause:
        assert first.explanation.known
        assert cause in first.explanation.cause
    assert not any(
        "corresponds" in sentence for sentence in (found.headline, *first.remarks)
    )


def test_blocks_called_one_by_one_are_right():
    assert proof(made(Grouped), OneByOne()).proved


def test_effect_of_weights_that_are_not_copied():
    """It is that of the candidate as it came, not that of the copy with the reference's weights."""
    reference, candidate = made(Grouped), OneByOne()
    for name, value in reference.named_parameters():
        link, owner = candidate, name.split(".")
        for part in owner[:-1]:
            link = link[int(part)] if part.isdigit() else getattr(link, part)
        is_norm = "norm" in owner
        names = ("gamma", "beta") if is_norm else ("W", "b")
        array = names[0] if owner[-1] == "weight" else names[1]
        getattr(link, array).array = value.detach().numpy().copy()
    assert proof(reference, candidate, "judge").proved
    right = candidate(BATCH[0]).array
    candidate.head.W.array = candidate.head.W.array[::-1].copy()
    wrong = candidate(BATCH[0]).array
    found = proof(reference, candidate, "judge").findings[0]
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
    assert proof(made(Tied), ChainerTied()).proved
    first = proof(made(Tied), ChainerTied(act=C.sigmoid)).findings[0]
    assert "gradient" not in first.what


def test_a_function_of_the_loss_is_at_the_loss():
    def loss_by(name):
        def loss(network, x, target):
            functions = network.nn
            scores = getattr(functions, name)(network(x))
            return functions.mse_loss(scores, target)

        return loss

    network = made(lambda: nn.Linear(6, 4))
    sides = [Subject(network, loss_by(name)) for name in ("sigmoid", "tanh")]
    found = proof(*sides, batch=(normal(5, 6), normal(5, 4)))
    assert found.headline.startswith("DIVERGES at loss (sigmoid)"), found.headline
    assert "activation tanh instead of sigmoid" in found.headline
