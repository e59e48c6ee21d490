"""Mistakes in ports that are one function over arrays, of which little or nothing is seen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F

from deliralike.conformance import compare

QUICK = ("L0", "L1", "L3")


class Blocks(nn.Module):
    """A reference of layers, with a norm by hand in between."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.outer = nn.Linear(5, 8), nn.Linear(4, 3)
        self.norm = nn.LayerNorm(8)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        h = self.norm(self.inner(x))
        gate, value = h.chunk(2, -1)
        h = F.silu(gate) * value
        return self.outer(h / torch.sqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))


def apply(p, x, eps=1e-5, activation=jax.nn.silu):
    h = x @ p["inner.weight"].T + p["inner.bias"]
    h = h - h.mean(-1, keepdims=True)
    h = h / jnp.sqrt((h * h).mean(-1, keepdims=True) + eps) * p["norm.weight"] + p["norm.bias"]
    gate, value = jnp.split(h, 2, -1)
    h = activation(gate) * value
    root = jnp.sqrt((h * h).mean(-1, keepdims=True) + 1e-6)
    return h / root @ p["outer.weight"].T + p["outer.bias"]


class Port(nnx.Module):
    def __init__(self, reference, run):
        arrays = {
            name: jnp.asarray(value.numpy()) for name, value in reference.state_dict().items()
        }
        self.params = nnx.data({name: nnx.Param(value) for name, value in arrays.items()})
        self.run = run

    def __call__(self, x):
        return self.run({name: value[...] for name, value in self.params.items()}, x)


def compiled(**how):
    return jax.jit(partial(apply, **how))


def mapped(**how):
    return jax.vmap(partial(apply, **how), in_axes=(None, 0))


def scanned(**how):
    def run(p, x):
        return jax.lax.scan(lambda carry, row: (carry, apply(p, row, **how)), 0, x)[1]

    return run


def proof(run):
    reference = Blocks()
    batch = np.random.default_rng(2).normal(size=(6, 5)), np.arange(6) % 3
    return compare(reference, Port(reference, run), batch, weights="judge", levels=QUICK)


@pytest.mark.parametrize(
    ("hidden", "how", "words"),
    [
        (compiled, {"eps": 1e-3}, "eps=0.001 instead of 1e-5"),
        (mapped, {"activation": partial(jax.nn.gelu, approximate=False)}, "gelu instead of silu"),
    ],
)
def test_mistakes_within_one_function(hidden, how, words):
    assert words in proof(hidden(**how)).headline


def test_a_right_function_is_proved():
    assert proof(scanned()).headline.startswith("PROVED")
