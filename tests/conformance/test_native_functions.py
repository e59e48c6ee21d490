"""Mistakes in code that calls the frameworks' own functions, at the top and in blocks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.conformance.subject import Subject

CF, L = chainer.functions, chainer.links
GENERATOR = np.random.default_rng(0)
TOKENS = GENERATOR.normal(size=(3, 6, 8)), GENERATOR.integers(0, 5, 3)
ROWS = GENERATOR.normal(size=(6, 8)), GENERATOR.integers(0, 5, 6)
QUICK = ("L0", "L1", "L3")


def first(proof):
    """The first finding of level L3, as a text."""
    return next(str(finding) for finding in proof.findings if finding.level == "L3")


# Attention
# -----------------------------------------------------------------------------


class TorchAttention(nn.Module):
    """Two heads, written out."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.o = nn.Linear(8, 5)

    def forward(self, x):
        q, k, v = (
            layer(x).view(3, 6, 2, 4).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(4), dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(3, 6, 8)
        return F.gelu(self.o(y))


class TorchModel(nn.Module):
    """Attention as a block."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = TorchAttention(), nn.Linear(5, 5)

    def forward(self, x):
        return self.head(self.attention(x)).mean(1)


def linear(inputs, outputs):
    return nnx.Linear(inputs, outputs, rngs=nnx.Rngs(0))


class FlaxAttention(nnx.Module):
    """The same by sums over named axes; right by default."""

    def __init__(self, scale=2.0, axis=-1, approximate=False):
        self.q, self.k, self.v = (linear(8, 8) for _ in range(3))
        self.o = linear(8, 5)
        self.scale, self.axis, self.approximate = scale, axis, approximate

    def __call__(self, x):
        q, k, v = (layer(x).reshape(3, 6, 2, 4) for layer in (self.q, self.k, self.v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / self.scale
        weights = jax.nn.softmax(scores, axis=self.axis)
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(3, 6, 8)
        return nnx.gelu(self.o(y), approximate=self.approximate)


class FlaxModel(nnx.Module):
    """Attention as a block."""

    def __init__(self, **chosen):
        self.attention, self.head = FlaxAttention(**chosen), linear(5, 5)

    def __call__(self, x):
        return self.head(self.attention(x)).mean(axis=1)


def mean_square(network, x, y):
    return network.backend.nn.mean(network(x) ** 2)


MISTAKES = [
    ({"scale": 1.0}, "being the output of matmul() instead of scaled: times 0.5"),
    ({"axis": -2}, "softmax over axis 2 instead of 3"),
    ({"approximate": True}, "gelu (tanh approximation) instead of gelu"),
]


@pytest.fixture(autouse=True)
def no_programs():
    """The same operations in one network after another: whole programs take longer to compile."""
    with backends.get("jax").op_by_op():
        yield


@pytest.mark.parametrize(
    ("how", "chosen", "cause"),
    [
        ("at the top", *MISTAKES[0]),
        ("in a block", *MISTAKES[1]),
        ("at the top", *MISTAKES[2]),
    ],
    ids=["scale", "axis", "gelu"],
)
def test_mistakes_in_attention_that_is_written_out(how, chosen, cause):
    pairs = {
        "at the top": (TorchAttention, FlaxAttention),
        "in a block": (TorchModel, FlaxModel),
    }
    reference, port = pairs[how]
    sides = reference(), port(**chosen)
    proof = compare(*sides, TOKENS, loss=mean_square, weights="load", levels=QUICK)
    assert proof.verdict == "diverges"
    assert cause in first(proof)
    assert first(proof).startswith(
        "the network" if how == "at the top" else "attention "
    )


def test_a_right_port_of_attention_is_proved():
    sides = TorchModel(), FlaxModel()
    assert compare(
        *sides, TOKENS, loss=mean_square, weights="load", levels=QUICK
    ).proved


class FlaxOther(FlaxAttention):
    """The same in other words: queries are scaled, and weights are normalised by hand."""

    def __call__(self, x):
        q, k, v = (layer(x).reshape(3, 6, 2, 4) for layer in (self.q, self.k, self.v))
        powers = jnp.exp(jnp.einsum("bqhd,bkhd->bhqk", q / self.scale, k))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        y = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(3, 6, 8)
        return nnx.gelu(self.o(y), approximate=self.approximate)


def test_right_code_in_other_words_is_not_accused_beside_a_mistake():
    sides = TorchAttention(), FlaxOther(approximate=True)
    proof = compare(*sides, TOKENS, loss=mean_square, weights="load", levels=QUICK)
    places = [str(finding) for finding in proof.findings if finding.level == "L3"]
    assert len(places) == 1, places
    assert "gelu (tanh approximation) instead of gelu" in places[0]


# Losses
# -----------------------------------------------------------------------------


class TorchMlp(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class FlaxMlp(nnx.Module):
    """The same."""

    def __init__(self):
        self.a, self.b = linear(8, 8), linear(8, 5)

    def __call__(self, x):
        return self.b(nnx.relu(self.a(x)))


def smoothed(network, x, y):
    return F.cross_entropy(network(x), y, label_smoothing=0.1)


def plain(network, x, y):
    return F.cross_entropy(network(x), y)


def optax_plain(network, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(network(x), y).mean()


def optax_summed(network, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(network(x), y).sum()


def optax_twice(network, x, y):
    probabilities = jax.nn.softmax(network(x))
    return optax.softmax_cross_entropy_with_integer_labels(probabilities, y).mean()


def optax_smoothed(network, x, y):
    labels = optax.smooth_labels(jax.nn.one_hot(y, 5), 0.1)
    return optax.softmax_cross_entropy(network(x), labels).mean()


def by_hand(network, x, y):
    scores = jax.nn.log_softmax(network(x))
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


TORCH, JAX = TorchMlp, FlaxMlp
LOSSES = [
    (TORCH, smoothed, JAX, by_hand, "no label smoothing instead of 0.1"),
    (TORCH, plain, JAX, optax_summed, "sum instead of mean"),
    (
        TORCH,
        plain,
        JAX,
        optax_twice,
        "softmax of the scores first (softmax twice, where the loss has its own)",
    ),
    (JAX, optax_plain, TORCH, smoothed, "label_smoothing=0.1 instead of 0"),
    (TORCH, plain, JAX, by_hand, ""),
    (TORCH, smoothed, JAX, optax_smoothed, ""),
]


@pytest.mark.parametrize(("mine", "loss", "theirs", "other", "cause"), LOSSES)
def test_losses_of_the_frameworks(mine, loss, theirs, other, cause):
    sides = (
        Subject(backends.wrap(mine()), loss),
        Subject(backends.wrap(theirs()), other),
    )
    proof = compare(*sides, ROWS, weights="load", levels=QUICK)
    if not cause:
        assert proof.proved, proof
        return
    assert proof.verdict == "diverges"
    places = [str(finding) for finding in proof.findings if finding.level == "L3"]
    assert all(place.startswith("loss") for place in places)
    assert all(f"Explained by {cause} (" in place for place in places), places
