"""ConvNeXt-T in flax.nnx: channels last."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from benchmarks.by_hand import jax_step
from benchmarks.by_hand.jax_mixer import Mlp, Patches

# sums of a kernel's gradient that are made in one loop
_TOGETHER = 7


def _shifted(x, size):
    """The input below each element of a kernel, with zeros around it, row by row."""
    pad, (_, height, width, _) = size // 2, x.shape
    x = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    return [
        x[:, i : i + height, j : j + width] for i in range(size) for j in range(size)
    ]


@jax.custom_vjp
def depthwise(x, kernel):
    """A depthwise convolution as shifted products: (batch, *size, width), (side, side, width)."""
    rows = kernel.reshape(-1, kernel.shape[2])
    return sum(
        shifted * row
        for shifted, row in zip(_shifted(x, len(kernel)), rows, strict=True)
    )


def _forward(x, kernel):
    return depthwise(x, kernel), (x, kernel)


def _backward(kept, gradient):
    x, kernel = kept
    products = [shifted * gradient for shifted in _shifted(x, len(kernel))]
    sums = []
    for first in range(0, len(products), _TOGETHER):
        some = tuple(products[first : first + _TOGETHER])
        zeros = (np.zeros((), gradient.dtype),) * len(some)
        sums += lax.reduce(some, zeros, _add, (0, 1, 2))
    return depthwise(gradient, kernel[::-1, ::-1]), jnp.stack(sums).reshape(
        kernel.shape
    )


def _add(totals, more):
    return tuple(total + each for total, each in zip(totals, more, strict=True))


depthwise.defvjp(_forward, _backward)


class Depthwise(nnx.Module):
    def __init__(self, width, rngs, plain=False):
        groups = {"feature_group_count": width, "padding": 3}
        self.conv = nnx.Conv(width, width, (7, 7), **groups, rngs=rngs)
        self.plain = plain

    def __call__(self, x):
        if self.plain:
            return self.conv(x)
        return depthwise(x, self.conv.kernel[...][:, :, 0]) + self.conv.bias[...]


class Block(nnx.Module):
    def __init__(self, width, rngs, plain):
        self.scale = nnx.Param(jnp.full(width, 1e-6))
        self.depthwise = Depthwise(width, rngs, plain)
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.mlp = Mlp(width, 4 * width, rngs)

    def __call__(self, x):
        return x + self.scale[...] * self.mlp(self.norm(self.depthwise(x)))


class ConvNeXt(nnx.Module):
    def __init__(self, rngs, depths=(3, 3, 9, 3), width=96, classes=1000, plain=False):
        layers = [
            Patches(3, width, 4, rngs),
            nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs),
        ]
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs))
                layers.append(Patches(width, 2 * width, 2, rngs))
                width *= 2
            layers += [Block(width, rngs, plain) for _ in range(depth)]
        self.layers = nnx.List(layers)
        self.norm = nnx.LayerNorm(width, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.mean((1, 2))))


def forward(images: np.ndarray):
    """A function that computes the outputs in evaluation mode; see `jax_step`."""
    return jax_step.forward(ConvNeXt(nnx.Rngs(0)), images)


def training_step(
    images: np.ndarray, labels: np.ndarray, plain: bool = False, **settings: Any
):
    """A function that makes one training step and returns the loss; see `jax_step`.

    Args:
        plain: Whether depthwise convolutions are JAX's own instead of shifted products.
    """
    return jax_step.training_step(
        ConvNeXt(nnx.Rngs(0), plain=plain), images, labels, **settings
    )
