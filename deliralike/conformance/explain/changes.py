"""Changes of one array, of any backend, that conventions are made of: ``change(nn, x)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import Change


def ones(nn: Any, x: Any) -> Any:
    """Ones, through which gradients of zero go."""
    return x * 0.0 + 1.0


def squared(nn: Any, x: Any) -> Any:
    """Times itself."""
    return x * x


def without_gradient(nn: Any, x: Any) -> Any:
    """The same, through which no gradient goes."""
    return nn.stop_gradient(x)


def times(by: float) -> Change:
    """Times a number."""
    return lambda nn, x: x * by


def plus(by: float) -> Change:
    """Plus a number."""
    return lambda nn, x: x + by


def added(error: np.ndarray) -> Change:
    """Plus numbers of its own for each element."""
    return lambda nn, x: x + nn.constant(error, like=x)


def replaced(value: np.ndarray) -> Change:
    """Another array."""
    return lambda nn, x: nn.constant(value, like=x)


def flipped(*axes: int) -> Change:
    """Reversed along some axes."""

    def change(nn: Any, x: Any) -> Any:
        for axis in axes:
            x = nn.flip(x, axis)
        return x

    return change


def exchanged(first: int, second: int) -> Change:
    """With two axes in each other's place."""
    return lambda nn, x: nn.transpose(x, first, second)


def permuted(order: Sequence[int]) -> Change:
    """With its axes in another order."""
    return lambda nn, x: nn.permute(x, order)


def reshaped(shape: Sequence[int]) -> Change:
    """The same elements in another shape."""
    return lambda nn, x: nn.reshape(x, shape)


def selected(order: Sequence[int] | np.ndarray, axis: int) -> Change:
    """The elements of an axis in another order, or some of them."""
    return lambda nn, x: nn.select(x, nn.constant(np.asarray(order), like=x), axis)
