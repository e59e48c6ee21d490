"""The value of one setting, found from what a candidate gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deliralike.conformance.explain.trials import plainest

ITERATIONS = 14


def fit(
    predict: Callable[[float], np.ndarray],
    target: np.ndarray,
    starts: Sequence[float],
    least: float,
) -> tuple[float, float]:
    """Return the number whose prediction is nearest to a target.

    It is found by Gauss-Newton steps along one axis, with secant slopes.

    Args:
        predict: From the number to a vector; not finite where it cannot be evaluated.
        target: A vector of that length.
        starts: Where to begin; the best of them is improved.
        least: The smallest number that may be.

    Returns:
        The number, rounded to as few digits as do as well, and the L2 norm of what is left.

    Example:
        >>> fit(lambda a: np.array([1.0, 2.0]) * a, np.array([0.3, 0.6]), [1.0], 0.0)
        (0.3, 0.0)
    """

    def left(value: float) -> tuple[float, np.ndarray]:
        found = predict(value)
        return _size(target - found), found

    tried = sorted(((*left(start), start) for start in starts), key=lambda one: one[0])
    distance, found, value = tried[0]
    if not np.isfinite(distance):
        return value, np.inf
    last = max(value * (1.0 + 1e-4) + 1e-9 * (value == 0.0), least)
    if last == value:
        last = value * (1.0 - 1e-4)
    _, last_found = left(last)
    best = (distance, value)
    for _ in range(ITERATIONS):
        slope = found - last_found
        square = float(slope @ slope)
        if best[0] <= 1e-16 or not 0.0 < square < np.inf:
            break
        step = float((target - found) @ slope) / square * (value - last)
        last, last_found = value, found
        value = max(value + step, least)
        distance, found = left(value)
        best = min(best, (distance, value))
        if abs(value - last) <= 1e-14 * abs(value):
            break
    (plain,) = plainest([best[1]], lambda values: left(values[0])[0])
    return plain, left(plain)[0]


def _size(vector: np.ndarray) -> float:
    size = float(np.sqrt(np.square(vector).sum()))
    return size if np.isfinite(size) else np.inf
