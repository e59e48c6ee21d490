"""Mistakes with what a block holds itself, and with the features that its layers give."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from deliralike.conformance import compare

CENTRES = np.array([[0.5, 1.5], [2.5, 3.0], [1.0, 4.0]])


class Boxes(nn.Module):
    """Three pairs of numbers from each sample, moved from where they usually are; what a port may
    do otherwise is a setting."""

    def __init__(self, of_pairs=None, centres=CENTRES, gamma=None):
        super().__init__()
        torch.manual_seed(3)
        self.gamma = nn.Parameter(torch.rand(5) + 0.5)
        self.register_buffer("centres", torch.tensor(centres.copy(), dtype=torch.float32))
        self.fc = nn.Linear(5, 6)
        self.of_pairs, self.of_gamma = of_pairs or right, gamma or (lambda gamma: gamma)

    def forward(self, x):
        return self.of_pairs(self.fc(self.of_gamma(self.gamma) * x), self.centres)


class Port(Boxes):
    """The centres are numbers in the code, and the layer has another name."""

    def __init__(self, *how):
        super().__init__(*how)
        self.rows = self.centres.tolist()
        del self.centres
        self.dense = self.fc
        del self.fc

    def forward(self, x):
        centres = torch.cat([torch.tensor([row], dtype=x.dtype) for row in self.rows])
        return self.of_pairs(self.dense(self.of_gamma(self.gamma) * x), centres)


def right(x, centres, shape=(3, 2)):
    pairs = x.reshape(-1, *shape)
    pairs = pairs if shape == (3, 2) else pairs.swapaxes(1, 2)
    return centres * torch.exp(pairs) + pairs


def turned(x, centres):
    return right(x, centres, (2, 3))


def straight(x, centres):
    pairs = x.reshape(-1, 3, 2)
    return centres * (1.0 + pairs) + pairs


def proof(port):
    batch = np.random.default_rng(4).normal(size=(16, 5)), np.zeros((16, 3, 2))
    return compare(
        Boxes(),
        port,
        batch,
        loss=lambda network, x, y: network.backend.nn.mean((network(x) - y) ** 2),
        weights="load",
        levels=("L0", "L1", "L3"),
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ((straight,), "function 1 + x instead of exp"),
    ],
)
def test_mistakes_with_tensors_and_features_have_their_cause(how, words):
    explanation = str(proof(Port(*how)).findings[0].explanation)
    assert words in explanation


class FlaxPort(nnx.Module):
    """The same."""

    def __init__(self):
        self.gamma = nnx.Param(jnp.ones(5))
        self.dense = nnx.Linear(5, 6, rngs=nnx.Rngs(0))
        self.rows = tuple(map(tuple, CENTRES))

    def __call__(self, x):
        pairs = self.dense(self.gamma[...] * x).reshape(-1, 3, 2)
        centres = jnp.concatenate([jnp.asarray([row]) for row in self.rows])
        return centres * jnp.exp(pairs) + pairs


def test_a_port_that_holds_them_elsewhere_is_proved():
    assert proof(FlaxPort()).proved
