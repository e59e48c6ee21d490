"""Common relations between two arrays, whatever computed them: scaled, permuted, rounded, clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.causes import few, number
from deliralike.conformance.explain.activations import ACTIVATIONS, applied
from deliralike.conformance.explain.enumeration import other_orders, short_decimals
from deliralike.conformance.explain.trials import EXACT, Trial

TYPES = ("float32", "float16", "bfloat16")
_EPS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_SEVERAL = 4  # so many numbers must agree with one factor or one number that is added
_MANY = 8  # so many numbers must agree with one that was fitted to them


def nearest(reference: Any, candidate: Any) -> Trial | None:
    """The relation of a candidate's array to the reference's that fits best.

    Args:
        reference, candidate: Two arrays; None for one that is absent.

    Returns:
        None where nothing can be said.
    """
    best: Trial | None = None
    for cause, made in _relations(reference, candidate):
        distance = 0.0 if made is None else relative_difference(candidate, made)
        if best is None or distance < best.distance:
            best = Trial(cause, distance)
        if best.distance <= EXACT:
            break
    return best


# What the candidate's array would be, None where what is said is seen in the candidate alone.
_Made = Iterator[tuple[str, np.ndarray | None]]


def _relations(reference: Any, candidate: Any) -> _Made:
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
        yield f"all {number(float(c.flat[0]))}, as at a fresh start", np.full_like(c, c.flat[0])
    yield from _stored(r, c)
    if r.shape == c.shape:
        yield from _scaled(r, c)
        for name in ACTIVATIONS:
            yield f"{name} of it", applied(name, r)
        zero = (c == 0.0) & (r != 0.0)
        if (
            zero.any() and not zero.all() and r.size >= _SEVERAL
        ):  # as another mask of dropout makes them
            yield f"zero in {zero.mean():.0%} of the elements", np.where(zero, 0.0, r)
    yield from _moved(r, c)


def _scaled(r: np.ndarray, c: np.ndarray) -> _Made:
    """Multiplied with a number, with a number added, or both."""
    if r.size < _SEVERAL:
        return
    x, y = r.ravel(), c.ravel()
    if square := float(x @ x):
        factor = _plain(float(x @ y) / square, lambda a: relative_difference(c, a * r))
        words = "negated (the sign)" if factor == -1.0 else f"scaled: times {number(factor)}"
        yield words, factor * r
    shift = _plain(float((y - x).mean()), lambda b: relative_difference(c, r + b))
    yield f"plus {number(shift)}", r + shift
    centred = x - x.mean()
    if r.size >= _MANY and (square := float(centred @ centred)):
        factor = _plain(float(centred @ y) / square, lambda a: 0.0)
        shift = _plain(float(y.mean() - factor * x.mean()), lambda b: 0.0)
        yield f"times {number(factor)} plus {number(shift)}", factor * r + shift


def _plain(value: float, distance: Callable[[float], float]) -> float:
    """The number with the fewest digits that fits as well."""
    best = distance(value)
    for plain in short_decimals(value, 6):
        if abs(plain - value) <= 1e-6 * abs(value) and distance(plain) <= max(2.0 * best, EXACT):
            return plain
    return value


def _stored(r: np.ndarray, c: np.ndarray) -> _Made:
    """Held in a shorter floating type, which is seen in all of its numbers."""
    apart = relative_difference(r, c) if r.shape == c.shape else np.inf
    for name in reversed(TYPES):
        if apart <= 1e3 * _EPS[name] and not _is_short(r, name) and _is_short(c, name):
            yield f"computed in {name}", rounded(c, name)


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    """The nearest numbers of a shorter floating type."""
    if name != "bfloat16":
        with np.errstate(all="ignore"):
            return x.astype(name).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _is_short(x: np.ndarray, name: str) -> bool:
    return bool((rounded(x, name) == x).all())


def _moved(r: np.ndarray, c: np.ndarray) -> _Made:
    """The same elements at other places."""
    if r.size != c.size or r.size < 2:
        return
    for order in other_orders(r.ndim):
        moved = r.transpose(order)
        if moved.shape == c.shape:
            yield ("transposed" if r.ndim == 2 else f"axes permuted to {order}"), moved
        else:
            yield f"axes permuted to {order}, then reshaped", moved.reshape(c.shape)
    if r.shape != c.shape:
        yield "reshaped", r.reshape(c.shape)
        return
    axes = [axis for axis in range(r.ndim) if r.shape[axis] > 1]
    for axis in axes:
        yield f"reversed along axis {axis}", np.flip(r, axis)
    if r.ndim > 2:
        yield "reversed along all axes after the second", np.flip(r, tuple(range(2, r.ndim)))
    for axis in axes:
        found = order_along(r, c, axis)
        if found is not None:
            yield f"axis {axis} in the order {_some(found)}", np.take(r, found, axis)


def order_along(r: np.ndarray, c: np.ndarray, axis: int) -> np.ndarray | None:
    """Return the order of slices along an axis that maps one array to another, else None."""
    mine, theirs = _of_slices(r, axis), _of_slices(c, axis)
    first, second = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
    largest = float(np.abs(mine).max(initial=0.0))
    if not np.allclose(mine[first], theirs[second], rtol=1e-8, atol=1e-8 * largest):
        return None
    order = np.empty_like(first)
    order[second] = first
    return None if (order == np.arange(len(order))).all() else order


def _of_slices(x: np.ndarray, axis: int) -> np.ndarray:
    """A number for each slice along an axis, by which it is known."""
    rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    return rows @ np.cos(np.arange(rows.shape[1]) + 1.0)


def _some(numbers: np.ndarray) -> str:
    """Numbers of a list, no more than a reader wants."""
    return f"[{few(list(map(str, numbers.tolist())), 8)}]"
