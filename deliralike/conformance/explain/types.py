"""Causes that numbers show of their types: a shorter type holds them, or they overflowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import Explanation, is_number
from deliralike.conformance.ulp import fits

# The type's name, the bits of its significand, and how far its rounding can bring a well
# conditioned result.
_TYPES = (("bfloat16", 8, 0.3), ("float16", 11, 0.05), ("float32", 24, 1e-4))
_ENOUGH = 4  # so many numbers are not held by chance


def explain(reference: Mapping[Any, Any], candidate: Mapping[Any, Any]) -> Explanation | None:
    """Return overflow, or the shortest type that holds the candidate's numbers, as the cause.

    The type must not hold the numbers of the reference as well.

    Args:
        reference, candidate: What each side computed in float64, by name; what is equal is left
            out.
    """
    differing = list(_differing(reference, candidate))
    size = sum(y.size for _, y in differing)
    bad = 0
    for x, y in differing:
        if not np.isinf(x).any():
            bad += max(0, int(np.isfinite(x).sum() - np.isfinite(y).sum()))
    if bad:
        return Explanation.seen(
            f"overflow or an undefined operation: {bad} of {size} numbers are not finite"
        )
    if size < _ENOUGH:
        return None
    for name, bits, reach in _TYPES:
        held = all(fits(y, bits).all() for _, y in differing)
        is_telling = held and not all(fits(x, bits).all() for x, _ in differing)
        if is_telling and max(relative_difference(x, y) for x, y in differing) <= reach:
            return Explanation.seen(f"computed in {name}, which holds all of its numbers")
    return None


def _differing(
    reference: Mapping[Any, Any], candidate: Mapping[Any, Any]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Floating arrays of one shape that differ."""
    for name, mine in reference.items():
        theirs = candidate.get(name)
        if not (is_number(mine) and is_number(theirs)):
            continue
        x, y = np.asarray(mine), np.asarray(theirs)
        is_floating = x.dtype.kind == y.dtype.kind == "f"
        if is_floating and x.shape == y.shape and not np.array_equal(x, y):
            yield x, y
