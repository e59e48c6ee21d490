"""How far two arrays are apart, relative to the first."""

from __future__ import annotations

from typing import Any

import numpy as np


def relative_difference(reference: Any, candidate: Any) -> float:
    """The L2 norm of the difference, divided by that of the reference.

    Two absent arrays (None) agree, and so do two that are zero everywhere; an absent one and a
    present one, or two of different shapes, are infinitely far apart. Infinities in the same places
    are equal.

    Example:
        >>> relative_difference([3.0, 4.0], [3.0, 4.5])
        0.1
    """
    if reference is None or candidate is None:
        return 0.0 if reference is candidate else np.inf
    first = wide(reference)
    second = wide(candidate)
    if first.shape != second.shape:
        return np.inf
    # an infinity minus itself, as in masks of scores
    with np.errstate(invalid="ignore"):
        difference = norm(first - second)
        size = norm(first)
    if not np.isfinite(difference + size):
        with np.errstate(invalid="ignore"):
            distance = np.where(first == second, 0.0, first - second)
        difference = norm(distance)
        size = norm(first[np.isfinite(first)])
    if difference == 0.0:
        return 0.0
    return difference / size if size and np.isfinite(difference) else np.inf


def order_free(array: np.ndarray) -> np.ndarray:
    """Numbers that no order of the elements changes: the sums of their sizes and of the squares.

    Example:
        >>> order_free(np.array([3, -4]))
        array([ 7., 25.])
    """
    with np.errstate(all="ignore"):
        sizes = np.abs(np.nan_to_num(wide(array)))
        return np.array([sizes.sum(), np.square(sizes).sum()])


def norm(array: np.ndarray) -> float:
    """The L2 norm, of arrays too that hold numbers whose squares would underflow."""
    if np.iscomplexobj(array):
        array = np.abs(array)
    flat = np.ravel(array)
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(np.dot(flat, flat)) if flat.dtype == np.float64 else np.nan
    if _SMALLEST < squared < np.inf:
        return squared**0.5
    largest = float(np.abs(array).max(initial=0.0))
    if not (0.0 < largest < np.inf):
        return largest
    return largest * float(np.sqrt(np.square(array / largest).sum()))


_SMALLEST = 1e-200  # a sum of squares that lacks nothing by underflow


def wide(array: Any) -> np.ndarray:
    """Return an array in float64, in which everything is compared; a complex one in complex128."""
    return np.asarray(array, np.result_type(np.asarray(array).dtype, np.float64))
