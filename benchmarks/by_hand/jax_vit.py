"""ViT-B/16 in flax.nnx: channels last, pre-norm blocks, a class token."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.by_hand import jax_step
from benchmarks.by_hand.jax_mixer import Patches


class Block(nnx.Module):
    def __init__(self, width, heads, hidden, rngs):
        self.ln_1 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.ln_2 = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.up, self.down = (
            nnx.Linear(width, hidden, rngs=rngs),
            nnx.Linear(hidden, width, rngs=rngs),
        )

    def __call__(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(jax.nn.gelu(self.up(self.ln_2(x)), approximate=False))


class ViT(nnx.Module):
    def __init__(self, rngs, classes=1000, width=768, depth=12, heads=12):
        self.patches = Patches(3, width, 16, rngs)
        self.token = nnx.Param(jnp.zeros((1, 1, width)))
        self.positions = nnx.Param(
            0.02 * jax.random.normal(rngs.params(), (1, 197, width))
        )
        self.blocks = nnx.List(
            [Block(width, heads, 4 * width, rngs) for _ in range(depth)]
        )
        self.ln = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = self.patches(x).reshape(x.shape[0], 196, -1)
        x = jnp.concatenate(
            [jnp.broadcast_to(self.token[...], (x.shape[0], 1, x.shape[2])), x], axis=1
        )
        x = x + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def forward(images: np.ndarray):
    """A function that computes the outputs in evaluation mode; see `jax_step`."""
    return jax_step.forward(ViT(nnx.Rngs(0)), images)


def training_step(images: np.ndarray, labels: np.ndarray, **settings: Any):
    """A function that makes one training step and returns the loss; see `jax_step`."""
    return jax_step.training_step(ViT(nnx.Rngs(0)), images, labels, **settings)
