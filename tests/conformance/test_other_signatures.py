"""Ports whose layouts, signatures, names or tensors are others than the original's: right ones are
proved, and a mistake is found where it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from deliralike.conformance import compare
from deliralike.errors import UnknownName
from tests.conformance.small import QUICK, labels, normal, proof

# Layouts, one by one
# -----------------------------------------------------------------------------


class Flattened(nn.Module):
    """Maps of a convolution are flattened with the channels first, and mapped twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.act = nn.Conv2d(1, 4, 3, padding=1), nn.LeakyReLU(0.2)
        self.mu, self.head = nn.Linear(24, 5), nn.Linear(5, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.mu(self.act(self.conv(x)).flatten(1))))


class FlaxFlattened(nnx.Module):
    """They are flattened with the channels last, and the layers have other names."""

    def __init__(self, change):
        rngs = nnx.Rngs(0)
        self.conv, self.hidden = (
            nnx.Conv(1, 4, (3, 3), rngs=rngs),
            nnx.Linear(24, 5, rngs=rngs),
        )
        self.out, self.change = nnx.Linear(5, 4, rngs=rngs), change

    def __call__(self, x):
        x = self.change(self.conv(x))
        return self.out(jnp.tanh(self.hidden(x.reshape(len(x), -1))))


def test_an_order_of_columns_behind_a_mistake():
    found = proof(Flattened, FlaxFlattened(nnx.leaky_relu), normal(5, 1, 2, 3))
    assert found.findings[0].place == "act"
    assert "negative_slope=0.01 instead of 0.2" in found.findings[0].explanation.cause
    assert all(one.place != "mu" for one in found.findings)


# Signatures
# -----------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(11, 6), nn.LSTM(6, 7, batch_first=True)
        self.head = nn.Linear(7, 4)

    def forward(self, x):
        outputs, _ = self.rnn(self.emb(x))
        return self.head(outputs[:, -1])


class Loop(nnx.Module):
    """A loop over a cell, which gives its carry and takes it first."""

    def __init__(self, change=lambda x: x):
        rngs = nnx.Rngs(0)
        self.emb, self.cell = (
            nnx.Embed(11, 6, rngs=rngs),
            nnx.OptimizedLSTMCell(6, 7, rngs=rngs),
        )
        self.head, self.change = nnx.Linear(7, 4, rngs=rngs), change

    def __call__(self, x):
        x = self.emb(x)
        carry = (jnp.zeros((len(x), 7)), jnp.zeros((len(x), 7)))
        for step in range(x.shape[1]):
            carry, y = self.cell(carry, self.change(x[:, step]))
        return self.head(y)


def test_a_loop_over_a_cell_for_a_recurrent_layer():
    words = np.random.default_rng(2).integers(0, 11, (5, 3))
    assert proof(Recurrent, Loop(), words).proved
    found = proof(Recurrent, Loop(jnp.tanh), words).findings[0]
    assert found.place == "rnn"
    assert "tanh" in found.explanation.cause


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.n = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.LayerNorm(8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = self.n(x)
        return self.head((x + self.attn(h, h, h)[0]).mean(1))


class Fused(nnx.Module):
    """Attention by hand, with one projection for queries, keys and values."""

    def __init__(self, scale=0.5):
        rngs = nnx.Rngs(0)
        self.n, self.qkv = (
            nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs),
            nnx.Linear(8, 24, rngs=rngs),
        )
        self.proj, self.head = nnx.Linear(8, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)
        self.scale = scale

    def __call__(self, x):
        parts = jnp.split(self.qkv(self.n(x)), 3, -1)
        q, k, v = (p.reshape(*x.shape[:2], 2, 4).transpose(0, 2, 1, 3) for p in parts)
        weights = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * self.scale, -1)
        out = (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        return self.head((x + self.proj(out)).mean(1))


def test_attention_by_hand_for_a_layer():
    tokens = normal(5, 6, 8)
    assert proof(Attending, Fused(), tokens).proved
    found = proof(Attending, Fused(scale=1.0), tokens).findings[0]
    assert found.place == "attn"
    assert "scale" in found.explanation.cause


# Names and tensors
# -----------------------------------------------------------------------------


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


class Reversed(nnx.Module):
    """Layers of one shape that are made in reverse order, under names that say nothing."""

    def __init__(self, change=nnx.relu):
        rngs = nnx.Rngs(0)
        self.z, self.y, self.x = (nnx.Linear(6, n, rngs=rngs) for n in (4, 6, 6))
        self.change = change

    def __call__(self, x):
        return self.z(nnx.relu(self.y(self.change(self.x(x)))))


def test_the_order_of_calls_tells_layers_of_one_shape_apart():
    assert proof(Two, Reversed(), normal(5, 6)).proved
    found = proof(Two, Reversed(change=lambda x: x), normal(5, 6)).findings[0]
    assert "relu" in found.explanation.cause
    assert found.explanation.known


class Masked(Two):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)))
        self.pos = nn.Parameter(torch.zeros(2, 3))  # is not used

    def forward(self, x):
        return super().forward(x @ self.mask)


class Written(Reversed):
    """The mask is made where it is needed."""

    def __call__(self, x):
        return super().__call__(x @ jnp.tril(jnp.ones((6, 6))))


def test_tensors_that_one_side_alone_has():
    found = proof(Masked, Written(), normal(5, 6))
    assert found.proved
    assert "mask" in str(found)
    assert proof(Masked, Written(), normal(5, 6), names={"pos": None}).proved
    with pytest.raises(UnknownName, match="'poss': None"):
        proof(Masked, Written(), normal(5, 6), names={"poss": None})


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.c = nn.Linear(6, 4)

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.c(x)


class Scanned(nnx.Module):
    """One parameter for all layers, with square matrices as (in, out)."""

    def __init__(self):
        self.kernel, self.bias = (
            nnx.Param(jnp.zeros((3, 6, 6))),
            nnx.Param(jnp.zeros((3, 6))),
        )
        self.c = nnx.Linear(6, 4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        def layer(x, weights):
            return jnp.tanh(x @ weights[0] + weights[1]), None

        return self.c(jax.lax.scan(layer, x, (self.kernel[...], self.bias[...]))[0])


def test_layers_that_are_scanned_over():
    assert proof(Stack, Scanned(), normal(5, 6)).proved


class Words(nn.Module):
    """An embedding of which a batch uses some rows, and a buffer that a port lacks."""

    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.Embedding(11, 6), nn.Linear(6, 4)
        self.extra = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.fc(self.emb(x).mean(1))


class FewerWords(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.emb, self.fc = nn.Embedding(11, 6), nn.Linear(6, 4)
        state = original.state_dict()
        self.load_state_dict({name: state[name] for name in self.state_dict()})

    def forward(self, x):
        return self.fc(self.emb(x).mean(1))


def test_a_weight_that_the_batch_does_not_use_is_judged_all_the_same():
    torch.manual_seed(0)
    original = Words()
    batch = (np.random.default_rng(0).integers(0, 10, (5, 6)), labels(5, 4))
    port = FewerWords(original)
    assert compare(original, port, batch, levels=QUICK).proved
    port.emb.weight.data[10, 3] += 1.0  # a row that no sample asks for
    found = compare(original, port, batch, levels=QUICK)
    assert found.diverges
    assert "emb.weight" in found.headline
