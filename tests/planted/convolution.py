"""Mutants of convolution, pooling and resizing: paddings, kernels, windows, positions of pixels."""

from __future__ import annotations

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings

# Convolution
# -----------------------------------------------------------------------------


def _same_padding(self, x):
    padded = self.nn.pad(x, [(0, 1), (0, 1)])
    return self.nn.conv(
        padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups
    )


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
]

# Pooling
# -----------------------------------------------------------------------------


def _pool(
    name: str,
    plant: Plant,
    *cause: str,
    place: str = "pool",
    fixture: str = "convolutional",
) -> Mistake:
    return Mistake(f"pooling: {name}", "pooling", plant, (place,), cause, fixture)


_POOLING = [
    _pool(
        "ceil rule of the maximum",
        with_settings("max", ceil_mode=True),
        "ceil",
        place="max",
        fixture="pooling",
    ),
]

MISTAKES = [*_CONVOLUTION, *_POOLING]
