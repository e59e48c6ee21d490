"""ResNet-18 in flax.nnx: channels last."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks.by_hand.jax_step import batches as _batches
from benchmarks.by_hand.jax_step import training_step as _training_step


class ConvNorm(nnx.Module):
    def __init__(self, inputs, width, size, stride, pad, rngs):
        pads = ((pad, pad), (pad, pad))
        self.conv = nnx.Conv(
            inputs, width, (size, size), stride, padding=pads, use_bias=False, rngs=rngs
        )
        self.bn = nnx.BatchNorm(
            width, momentum=0.9, epsilon=1e-5, use_fast_variance=False, rngs=rngs
        )

    def __call__(self, x):
        return self.bn(self.conv(x))


class Block(nnx.Module):
    def __init__(self, inputs, width, stride, rngs):
        self.a = ConvNorm(inputs, width, 3, stride, 1, rngs)
        self.b = ConvNorm(width, width, 3, 1, 1, rngs)
        self.downsample = (
            ConvNorm(inputs, width, 1, stride, 0, rngs)
            if stride != 1 or inputs != width
            else None
        )

    def __call__(self, x):
        y = self.b(jax.nn.relu(self.a(x)))
        return jax.nn.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nnx.Module):
    def __init__(self, blocks, width, rngs, classes=1000):
        self.stem = ConvNorm(3, 64, 7, 2, 3, rngs)
        self.blocks = nnx.List(blocks)
        self.fc = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(
            jax.nn.relu(self.stem(x)), (3, 3), strides=(2, 2), padding=((1, 1), (1, 1))
        )
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


def resnet18(rngs):
    widths, blocks = [64, 64, 128, 256, 512], []
    for i in range(1, 5):
        blocks += [
            Block(widths[i - 1], widths[i], 1 if i == 1 else 2, rngs),
            Block(widths[i], widths[i], 1, rngs),
        ]
    return ResNet(blocks, 512, rngs)


def training_step(images: np.ndarray, labels: np.ndarray, **settings: Any):
    """A function that makes one training step and returns the loss; see `jax_step`."""
    return _training_step(resnet18(nnx.Rngs(0)), images, labels, **settings)


def batches(
    images: np.ndarray, labels: np.ndarray, count: int, lr: float, momentum: float
) -> Iterator[None]:
    """Compute batches, of which `count` make an update, one after the other; see `jax_step`."""
    return _batches(resnet18(nnx.Rngs(0)), images, labels, count, lr, momentum)
