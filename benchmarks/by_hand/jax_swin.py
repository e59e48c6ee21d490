"""Swin-T in flax.nnx: channels last, sizes that windows divide."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.by_hand import jax_step
from benchmarks.by_hand.jax_mixer import Mlp, Patches


def _windows(x, side):
    """(batch, height, width, channels) as (batch, windows, tokens, channels)."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // side, side, width // side, side, channels)
    return x.swapaxes(2, 3).reshape(batch, -1, side * side, channels)


def _joined(x, side, size):
    """The inverse of `_windows`."""
    batch, _, _, channels = x.shape
    x = x.reshape(batch, size // side, size // side, side, side, channels)
    return x.swapaxes(2, 3).reshape(batch, size, size, channels)


def _offsets(side):
    """The row of the bias table for each pair of tokens."""
    places = np.stack(np.indices((side, side))).reshape(2, -1)
    down, right = places[:, :, None] - places[:, None, :] + side - 1
    return down * (2 * side - 1) + right


def _mask(size, side, shift):
    """-100 for tokens of a window that rolling brought together: (windows, 1, tokens, tokens)."""
    part = np.searchsorted([size - side, size - shift], np.arange(size), side="right")
    regions = _windows((3 * part[:, None] + part)[None, :, :, None], side)[0]
    return np.where(regions != regions.swapaxes(1, 2), np.float32(-100), np.float32(0))[
        :, None
    ]


class Attention(nnx.Module):
    def __init__(self, size, width, heads, side, shift, rngs):
        self.side, self.heads = side, heads
        self.shift = shift if size > side else 0
        table = 0.02 * jax.random.normal(rngs.params(), ((2 * side - 1) ** 2, heads))
        self.table = nnx.Param(table)
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.out = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x):
        size, width = x.shape[2:]
        bias = self.table[...][_offsets(self.side)].transpose(2, 0, 1)
        if self.shift:
            x = jnp.roll(x, (-self.shift, -self.shift), (1, 2))
            bias = bias + _mask(size, self.side, self.shift)
        x = _windows(x, self.side)
        packed = self.qkv(x).reshape(*x.shape[:3], 3, self.heads, width // self.heads)
        query, key, value = jnp.moveaxis(packed, 3, 0)
        query = query / np.sqrt(np.float32(width // self.heads))
        scores = jnp.einsum("bnqhd,bnkhd->bnhqk", query, key) + bias
        x = jnp.einsum("bnhqk,bnkhd->bnqhd", jax.nn.softmax(scores), value).reshape(
            x.shape
        )
        x = _joined(self.out(x), self.side, size)
        return jnp.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class Block(nnx.Module):
    def __init__(self, size, width, heads, side, shift, rngs):
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.attention = Attention(size, width, heads, side, shift, rngs)
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.mlp = Mlp(width, 4 * width, rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Merging(nnx.Module):
    def __init__(self, width, rngs):
        self.reduction = nnx.Linear(4 * width, 2 * width, use_bias=False, rngs=rngs)
        self.norm = nnx.LayerNorm(4 * width, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(jnp.concatenate(corners, -1)))


class Swin(nnx.Module):
    def __init__(
        self,
        rngs,
        size=56,
        depths=(2, 2, 6, 2),
        width=96,
        heads=3,
        side=7,
        classes=1000,
    ):
        layers = [
            Patches(3, width, 4, rngs),
            nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs),
        ]
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(Merging(width, rngs))
                size, width, heads = size // 2, 2 * width, 2 * heads
            for block in range(depth):
                shift = side // 2 if block % 2 else 0
                layers.append(Block(size, width, heads, side, shift, rngs))
        self.layers = nnx.List(layers)
        self.norm = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean((1, 2)))


def forward(images: np.ndarray):
    """A function that computes the outputs in evaluation mode; see `jax_step`."""
    return jax_step.forward(Swin(nnx.Rngs(0)), images)


def training_step(images: np.ndarray, labels: np.ndarray, **settings: Any):
    """A function that makes one training step and returns the loss; see `jax_step`."""
    return jax_step.training_step(Swin(nnx.Rngs(0)), images, labels, **settings)
