"""Common relations between two arrays, whatever computed them: scaled, permuted, after a function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.causes import number
from deliralike.conformance.explain.activations import ACTIVATIONS, applied
from deliralike.conformance.explain.enumeration import other_axes
from deliralike.conformance.explain.trials import EXACT, Trial, plainest
from deliralike.errors import listed

Array = np.ndarray
Way = tuple[
    str, Array | None
]  # in words, and what the array would be; None where that is seen

_SEVERAL = 4  # so many numbers must agree with one that was fitted to them


def nearest(reference: Any, candidate: Any) -> Trial | None:
    """The relation of a candidate's array to the reference's that fits best.

    Args:
        reference, candidate: Two arrays; None for one that is absent.

    Returns:
        None where nothing can be said.
    """
    best: Trial | None = None
    for cause, other in _relations(reference, candidate):
        distance = 0.0 if other is None else relative_difference(candidate, other)
        if best is None or distance < best.distance:
            best = Trial(cause, distance)
        if best.distance <= EXACT:
            break
    return best


def _relations(reference: Any, candidate: Any) -> Iterator[Way]:
    """Every relation that is known, the likely ones first."""
    if reference is None or candidate is None:
        yield ("missing" if candidate is None else "present where there is none"), None
        return
    r, c = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if not c.any():
        yield "zero", np.zeros_like(c)
        return
    if not np.isfinite(c).all():
        yield "not finite", None
        return
    if c.size > 1 and np.ptp(c) == 0.0 and np.ptp(r) > 0.0:
        yield (
            f"all {number(float(c.flat[0]))}, as at a fresh start",
            np.full_like(c, c.flat[0]),
        )
    if r.shape == c.shape:
        yield from _scaled(r, c)
        for name in ACTIVATIONS:
            yield f"{name} of it", applied(name, r)
    if r.size == c.size > 1:
        yield from _moved(r, c)
    if r.shape == c.shape:
        yield from _shifted(r, c)


def _scaled(r: Array, c: Array) -> Iterator[Way]:
    """Multiplied with a number, or with a number added."""
    square = float(np.vdot(r, r))
    if r.size < _SEVERAL or not square:
        return
    factor = plainest(
        float(np.vdot(r, c)) / square, lambda a: relative_difference(c, a * r)
    )
    words = (
        "negated (the sign)" if factor == -1.0 else f"scaled: times {number(factor)}"
    )
    yield words, factor * r
    shift = plainest(float((c - r).mean()), lambda b: relative_difference(c, r + b))
    yield f"plus {number(shift)}", r + shift


def _moved(r: Array, c: Array) -> Iterator[Way]:
    """The same elements at other places."""
    for order in other_axes(r.shape):
        moved = r.transpose(order)
        words = "transposed" if r.ndim == 2 else f"axes permuted to {order}"
        if moved.shape != c.shape:
            words = f"axes permuted to {order}, then reshaped"
        yield words, moved.reshape(c.shape)
    if r.shape != c.shape:
        yield "reshaped", r.reshape(c.shape)
        return
    axes = [axis for axis in range(r.ndim) if r.shape[axis] > 1]
    for axis in axes:
        yield f"reversed along axis {axis}", np.flip(r, axis)
    for axis in axes:
        found = order_along(r, c, axis)
        if found is not None:
            words = listed(found.tolist(), 8)
            yield f"axis {axis} in the order [{words}]", np.take(r, found, axis)


def _shifted(r: Array, c: Array) -> Iterator[Way]:
    """Moved along an axis, where other elements come in at its end, such as the next position's."""
    for axis, size in enumerate(r.shape):
        for by in (1, -1) if size >= _SEVERAL else ():
            part = (slice(None),) * axis + (slice(by, None) if by > 0 else slice(by),)
            other = (slice(None),) * axis + (
                slice(-by) if by > 0 else slice(-by, None),
            )
            if not np.array_equal(r[part], r[other]):
                moved = c.copy()
                moved[other] = r[part]
                yield f"shifted by {by} along axis {axis}", moved


def order_along(r: Array, c: Array, axis: int) -> Array | None:
    """Return the order of slices along an axis that maps one array to another, else None."""
    expected, actual = _of_slices(r, axis), _of_slices(c, axis)
    first, second = (
        np.argsort(expected, kind="stable"),
        np.argsort(actual, kind="stable"),
    )
    largest = float(np.abs(expected).max(initial=0.0))
    if not np.allclose(expected[first], actual[second], rtol=1e-8, atol=1e-8 * largest):
        return None
    order = np.empty_like(first)
    order[second] = first
    return None if (order == np.arange(len(order))).all() else order


def _of_slices(x: Array, axis: int) -> Array:
    """A number for each slice along an axis, by which it is known."""
    rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    return rows @ np.cos(np.arange(rows.shape[1]) + 1.0)
