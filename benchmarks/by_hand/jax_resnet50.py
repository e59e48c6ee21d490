"""ResNet-50 in flax.nnx: channels last, torchvision's structure."""

from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks.by_hand import jax_step
from benchmarks.by_hand.jax_resnet import ConvNorm, ResNet


class Bottleneck(nnx.Module):
    def __init__(self, inputs, width, stride, rngs):
        self.a = ConvNorm(inputs, width, 1, 1, 0, rngs)
        self.b = ConvNorm(width, width, 3, stride, 1, rngs)
        self.c = ConvNorm(width, 4 * width, 1, 1, 0, rngs)
        changes = stride != 1 or inputs != 4 * width
        self.downsample = (
            ConvNorm(inputs, 4 * width, 1, stride, 0, rngs) if changes else None
        )

    def __call__(self, x):
        y = self.c(jax.nn.relu(self.b(jax.nn.relu(self.a(x)))))
        return jax.nn.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet50(rngs):
    blocks, inputs = [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            width = 64 * 2**stage
            blocks.append(
                Bottleneck(inputs, width, 2 if stage and block == 0 else 1, rngs)
            )
            inputs = 4 * width
    return ResNet(blocks, 2048, rngs)


def forward(images: np.ndarray):
    """A function that computes the outputs in evaluation mode; see `jax_step`."""
    return jax_step.forward(resnet50(nnx.Rngs(0)), images)


def training_step(images: np.ndarray, labels: np.ndarray, **settings: Any):
    """A function that makes one training step and returns the loss; see `jax_step`."""
    return jax_step.training_step(resnet50(nnx.Rngs(0)), images, labels, **settings)
