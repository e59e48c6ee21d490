"""Gradients of functions of NumPy arrays, by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deliralike.conformance.kinds import Shape

_STEP = 1e-3


def differences(
    function: Callable[..., float],
    inputs: Sequence[Any],
    which: int,
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

        near = moved(_STEP) - moved(-_STEP)
        far = moved(2.0 * _STEP) - moved(-2.0 * _STEP)
        found[place] = (8.0 * near - far) / (12.0 * _STEP)
    return found
