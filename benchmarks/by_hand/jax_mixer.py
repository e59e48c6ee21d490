"""MLP-Mixer B/16 in flax.nnx: channels last."""

from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks.by_hand import jax_step


class Patches(nnx.Module):
    """Windows side by side through a linear layer: quicker on a CPU than a convolution."""

    def __init__(self, inputs, width, side, rngs):
        self.side = side
        self.linear = nnx.Linear(side * side * inputs, width, rngs=rngs)

    def __call__(self, x):
        batch, height, width, channels = x.shape
        rows, columns = height // self.side, width // self.side
        x = x.reshape(batch, rows, self.side, columns, self.side, channels)
        return self.linear(x.swapaxes(2, 3).reshape(batch, rows, columns, -1))


class Mlp(nnx.Module):
    def __init__(self, width, hidden, rngs):
        self.up = nnx.Linear(width, hidden, rngs=rngs)
        self.down = nnx.Linear(hidden, width, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.gelu(self.up(x), approximate=False))


class Block(nnx.Module):
    def __init__(self, tokens, width, rngs):
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.over_tokens = Mlp(tokens, width // 2, rngs)
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.over_channels = Mlp(width, 4 * width, rngs)

    def __call__(self, x):
        x = x + self.over_tokens(self.norm1(x).swapaxes(1, 2)).swapaxes(1, 2)
        return x + self.over_channels(self.norm2(x))


class Mixer(nnx.Module):
    def __init__(self, rngs, side=224, patch=16, width=768, depth=12, classes=1000):
        tokens = (side // patch) ** 2
        self.patches = Patches(3, width, patch, rngs)
        self.blocks = nnx.List([Block(tokens, width, rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, x.shape[3])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def forward(images: np.ndarray):
    """A function that computes the outputs in evaluation mode; see `jax_step`."""
    return jax_step.forward(Mixer(nnx.Rngs(0)), images)


def training_step(images: np.ndarray, labels: np.ndarray, **settings: Any):
    """A function that makes one training step and returns the loss; see `jax_step`."""
    return jax_step.training_step(Mixer(nnx.Rngs(0)), images, labels, **settings)
