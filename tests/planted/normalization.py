"""Mistakes of norms: epsilon, variance, running statistics, groups and axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings

# Batch norm, step by step
# -----------------------------------------------------------------------------


def _own(norm: Any, x: Any) -> tuple[Any, Any]:
    """The batch's own mean and biased variance."""
    dims = (0, *range(2, len(x.shape)))
    return norm.nn.mean(x, dims), norm.nn.var(x, dims, correction=0)


def _running(norm: Any, x: Any) -> tuple[Any, Any]:
    return norm.running_mean, norm.running_var


def _normalised(norm: Any, x: Any, mean: Any, var: Any) -> Any:
    return norm.nn.batch_norm(x, mean, var, norm.weight, norm.bias, norm.eps)


def _moved(norm: Any, mean: Any, var: Any, count: int) -> None:
    norm._update(mean, var, count)


def _left(norm: Any, mean: Any, var: Any, count: int) -> None:
    """Nothing moves."""


def _count(x: Any) -> int:
    """How many values each channel has."""
    return math.prod(x.shape) // x.shape[1]


Statistics = Callable[[Any, Any], tuple[Any, Any]]


def _batch_norm(
    in_training: Statistics = _own,
    in_evaluation: Statistics = _running,
    move: Callable[..., None] = _moved,
) -> Plant:
    """Batch norm with one step of another kind.

    Args:
        in_training, in_evaluation: The mean and variance that are normalised by.
        move: How the running statistics follow those of the batch.
    """

    def forward(self, x):
        y = _normalised(
            self, x, *(in_training if self.training else in_evaluation)(self, x)
        )
        if self.training:
            move(self, *_own(self, x), _count(x))
        return y

    return with_methods("norm", forward=forward)


def _cut(norm: Any, x: Any) -> tuple[Any, Any]:
    mean, var = _own(norm, x)
    return norm.nn.stop_gradient(mean), norm.nn.stop_gradient(var)


def _batch(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"batch norm: {name}", "batch norm", plant, ("norm",), cause)


MISTAKES = [
    _batch(
        "eps 3.7e-4, which no framework has", with_settings("norm", eps=3.7e-4), "eps"
    ),
    _batch(
        "momentum of the old value", with_settings("norm", momentum=0.9), "momentum"
    ),
    _batch(
        "frozen in training",
        _batch_norm(_running, move=_left),
        "frozen",
        "running statistics",
    ),
    _batch(
        "batch statistics in evaluation",
        _batch_norm(in_evaluation=_own),
        "batch statistics",
    ),
    _batch("no gradient through the statistics", _batch_norm(_cut), "gradient"),
]
