"""Changes of one array, of any backend, that conventions are made of: ``change(nn, x)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import Change


def without_gradient(nn: Any, x: Any) -> Any:
    """The same, through which no gradient goes."""
    return nn.stop_gradient(x)


def times(by: float) -> Change:
    """Times a number."""
    return lambda nn, x: x * by


def plus(by: float) -> Change:
    """Plus a number."""
    return lambda nn, x: x + by


def flipped(*axes: int) -> Change:
    """Reversed along some axes."""

    def change(nn: Any, x: Any) -> Any:
        for axis in axes:
            x = nn.flip(x, axis)
        return x

    return change


def permuted(order: Sequence[int]) -> Change:
    """With its axes in another order."""
    return lambda nn, x: nn.permute(x, order)


def reshaped(shape: Sequence[int]) -> Change:
    """The same elements in another shape."""
    return lambda nn, x: nn.reshape(x, shape)


def selected(order: Sequence[int] | np.ndarray, axis: int) -> Change:
    """The elements of an axis in another order, or some of them."""
    return lambda nn, x: nn.select(x, nn.constant(np.asarray(order), like=x), axis)
