"""Mutants of wiring: calls left out, repeated, reordered or cut off from the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods

# A residual block
# -----------------------------------------------------------------------------


def _block(join: Callable[[Any, Any, Any], Any]) -> Plant:
    """A residual block, without convolution in its shortcut, with another sum."""

    def forward(self, x):
        branch = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(join(self.nn, branch, x))

    return with_methods("block2", forward=forward)


# The convolutional network
# -----------------------------------------------------------------------------


def _flat(order: Sequence[int]) -> Plant:
    return with_methods(
        "", flat=lambda self, x: self.nn.flatten(self.nn.permute(x, order))
    )


# Tied
# -----------------------------------------------------------------------------


def _one_gradient(self, tokens):
    nn = self.nn
    x = nn.tanh(self.other(nn.tanh(self.square(self.embedding(tokens)))))
    return nn.permute(nn.linear(x, nn.stop_gradient(self.head.weight * 1.0)), (0, 2, 1))


def _mistake(
    name: str, plant: Plant, place: Sequence[str], fixture: str, *cause: str
) -> Mistake:
    return Mistake(name, "wiring", plant, tuple(place), (*cause, "input"), fixture)


_BLOCK = ("block2", "BasicBlock")
MISTAKES = [
    _mistake(
        "residual block2: no shortcut",
        _block(lambda nn, y, x: y),
        _BLOCK,
        "residual",
        "shortcut",
        "skip",
    ),
    _mistake(
        "residual block2: shortcut detached",
        _block(lambda nn, y, x: y + nn.stop_gradient(x)),
        _BLOCK,
        "residual",
        "detached",
        "gradient",
    ),
    _mistake(
        "convolutional network: flattened in NHWC order",
        _flat((0, 2, 3, 1)),
        ("flatten", "fc", "Convolutional"),
        "convolutional",
        "NHWC",
        "order",
    ),
    _mistake(
        "tied network: ties take one gradient",
        with_methods("", forward=_one_gradient),
        ("head", "embedding", "Tied"),
        "tied",
        "gradient",
        "tied",
    ),
]
