"""Mutants of convolution, pooling and resizing: paddings, kernels, windows, positions of pixels."""

from __future__ import annotations

from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings


def _flipped(nn: Any, weight: Any) -> Any:
    """The kernel's rows and columns backwards; a product is a tensor and no parameter."""
    return nn.flip(nn.flip(weight * 1.0, 2), 3)


# Convolution
# -----------------------------------------------------------------------------


def _same_padding(self, x):
    padded = self.nn.pad(x, [(0, 1), (0, 1)])
    return self.nn.conv(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def _flipped_kernel(self, x):
    chosen = self.stride, self.padding, self.dilation, self.groups
    return self.nn.conv(x, _flipped(self.nn, self.weight), self.bias, *chosen)


def _conv(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"convolution: {name}", "convolution", plant, ("conv",), cause)


_CONVOLUTION = [
    _conv(
        "SAME padding, none before",
        with_methods("conv", forward=_same_padding),
        "SAME",
        "asymmetric",
        "pad",
    ),
    _conv("kernel flipped", with_methods("conv", forward=_flipped_kernel), "flip"),
]

# Pooling
# -----------------------------------------------------------------------------


def _padded_with_zeros(self, x):
    padded = self.nn.pad(x, [(1, 1), (1, 1)])
    return self.nn.max_windows(padded, (3, 3), (2, 2), ((0, 0), (0, 0)), (1, 1))


def _pool(
    name: str, plant: Plant, *cause: str, place: str = "pool", fixture: str = "convolutional"
) -> Mistake:
    return Mistake(f"pooling: {name}", "pooling", plant, (place,), cause, fixture)


_POOLING = [
    _pool(
        "maximum padded with zeros", with_methods("pool", forward=_padded_with_zeros), "zero", "pad"
    ),
    _pool(
        "ceil rule of the maximum",
        with_settings("max", ceil_mode=True),
        "ceil",
        place="max",
        fixture="pooling",
    ),
    _pool(
        "average excludes padding",
        with_settings("average", count_include_pad=False),
        "count_include_pad",
        "padding",
        place="average",
        fixture="pooling",
    ),
]

MISTAKES = [*_CONVOLUTION, *_POOLING]
