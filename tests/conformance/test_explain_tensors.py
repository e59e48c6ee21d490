"""A port that holds elsewhere what a block of the reference holds itself."""

import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch import nn

from deliralike.conformance import compare

CENTRES = np.array([[0.5, 1.5], [2.5, 3.0], [1.0, 4.0]])


class Boxes(nn.Module):
    """Three pairs of numbers from each sample, moved from where they usually are."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.gamma = nn.Parameter(torch.rand(5) + 0.5)
        self.register_buffer("centres", torch.tensor(CENTRES, dtype=torch.float32))
        self.fc = nn.Linear(5, 6)

    def forward(self, x):
        pairs = self.fc(self.gamma * x).reshape(-1, 3, 2)
        return self.centres * torch.exp(pairs) + pairs


class FlaxPort(nnx.Module):
    """The centres are numbers in the code, and the layer has another name."""

    def __init__(self):
        self.gamma = nnx.Param(jnp.ones(5))
        self.dense = nnx.Linear(5, 6, rngs=nnx.Rngs(0))

    def __call__(self, x):
        pairs = self.dense(self.gamma[...] * x).reshape(-1, 3, 2)
        return jnp.asarray(CENTRES) * jnp.exp(pairs) + pairs


def test_a_port_that_holds_them_elsewhere_is_proved():
    batch = np.random.default_rng(4).normal(size=(16, 5)), np.zeros((16, 3, 2))
    found = compare(
        Boxes(),
        FlaxPort(),
        batch,
        loss=lambda network, x, y: network.backend.nn.mean((network(x) - y) ** 2),
        weights="load",
        levels=("L0", "L1", "L3"),
    )
    assert found.proved
