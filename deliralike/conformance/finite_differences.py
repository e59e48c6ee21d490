"""Gradients of functions of NumPy arrays, by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deliralike.conformance.kinds import Shape


def differences(
    function: Callable[..., float],
    inputs: Sequence[Any],
    which: int,
    step: float = 1e-3,
) -> np.ndarray:
    """Return the gradient of a function with respect to one of its inputs, an array.

    Its error is of the fourth order in the step.
    """
    found = np.zeros(inputs[which].shape)
    for place in np.ndindex(found.shape):

        def moved(by: float, place: Shape = place) -> float:
            changed = list(inputs)
            changed[which] = np.array(inputs[which], np.float64)
            changed[which][place] += by
            return function(*changed)

        found[place] = _slope(moved, step)
    return found


def _slope(function: Callable[[float], float], step: float) -> float:
    """The derivative of a function at 0."""
    near = function(step) - function(-step)
    far = function(2.0 * step) - function(-2.0 * step)
    return (8.0 * near - far) / (12.0 * step)
