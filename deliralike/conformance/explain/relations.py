"""Common relations between two arrays, whatever computed them: scaled, permuted, rounded, clipped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.variant import number


@dataclass(frozen=True)
class Relation:
    """One array as a function of another.

    Attributes:
        cause: What a report says.
        distance: How far the candidate is from it, relative.
    """

    cause: str
    distance: float


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
    "gelu tanh": lambda x: (
        0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "softplus": _softplus,
    "hardsigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardswish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "abs": np.abs,
    "exp": np.exp,
    "square": np.square,
    "sqrt (its root)": np.sqrt,
    "inverse": lambda x: 1.0 / x,
    "inverse square root": lambda x: 1.0 / np.sqrt(x),
    "log": np.log,
    "sign": np.sign,
}


def nearest(
    reference: Any, candidate: Any, inputs: Mapping[str, Any] | None = None
) -> Relation | None:
    """The relation of a candidate's array to the reference's that fits best.

    Args:
        reference, candidate: Two arrays; None for one that is absent.
        inputs: What the block was given, by name: the output may be one of them, or lack one.

    Returns:
        None where nothing can be said.
    """
    best: Relation | None = None
    for relation in relations(reference, candidate, inputs or {}):
        if best is None or relation.distance < best.distance:
            best = relation
        if best.distance <= EXACT:
            break
    return best


def relations(reference: Any, candidate: Any, inputs: Mapping[str, Any]) -> Iterator[Relation]:
    """Every relation that is known, the likely ones first."""
    if reference is None or candidate is None:
        yield Relation("missing" if candidate is None else "present where there is none", 0.0)
        return
    r, c = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if not c.any():
        yield Relation("zero", 0.0)
        return
    if not np.isfinite(c).all():
        yield Relation("not finite", 0.0)
        return
    with np.errstate(all="ignore"):
        if c.size > 1 and np.ptp(c) == 0.0 and np.ptp(r) > 0.0:
            yield Relation(f"all {number(float(c.flat[0]))}, as at a fresh start", 0.0)
        yield from _stored(r, c)
        for name, value in inputs.items():
            yield Relation(f"{name} unchanged", relative_difference(c, value))
        if r.shape == c.shape:
            yield from _scaled(r, c)
            yield from _functions(r, c)
            yield from _single(r, c)
            yield from _partly(r, c)
            for name, value in inputs.items():
                yield from _residual(r, c, name, np.asarray(value))
        yield from _moved(r, c)


def _single(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """The same but for one element or two."""
    places = np.argwhere(r != c)
    if r.size >= 16 and 0 < len(places) <= 2:
        at = [tuple(map(int, place)) for place in places]
        shown = (
            f"element {i} is {number(float(c[i]))} instead of {number(float(r[i]))}" for i in at
        )
        yield Relation("; ".join(shown), 0.0)


def _functions(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """Each element by itself."""
    for name, function in ACTIVATIONS.items():
        yield Relation(f"{name} of it", relative_difference(c, function(r)))
    if _clipped(r, c):
        bounds = f"clipped to [{number(float(c.min()))}, {number(float(c.max()))}]"
        yield Relation(bounds, relative_difference(c, np.clip(r, c.min(), c.max())))


def _clipped(r: np.ndarray, c: np.ndarray) -> bool:
    """Whether the bounds were reached more than once, as they are by clipping."""
    return any(np.count_nonzero(c == bound) > 1 for bound in (c.min(), c.max())) and bool(
        (r == c).any()
    )


def _scaled(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """Multiplied with a number, with a number added, or both."""
    if r.size < 3:
        return
    x, y = r.ravel(), c.ravel()
    if square := float(x @ x):
        factor = _plain(float(x @ y) / square, lambda a: relative_difference(c, a * r))
        cause = "negated (the sign)" if factor == -1.0 else f"scaled: times {number(factor)}"
        yield Relation(cause, relative_difference(c, factor * r))
    shift = _plain(float((y - x).mean()), lambda b: relative_difference(c, r + b))
    yield Relation(f"plus {number(shift)}", relative_difference(c, r + shift))
    centred = x - x.mean()
    if r.size > 4 and (square := float(centred @ centred)):
        factor = float(centred @ y) / square
        shift = float(y.mean() - factor * x.mean())
        cause = f"times {number(factor)} plus {number(shift)}"
        yield Relation(cause, relative_difference(c, factor * r + shift))


def _plain(value: float, distance: Callable[[float], float]) -> float:
    """Return the number with the fewest digits that fits as well.

    Inverses of whole numbers count as plain.
    """
    best = distance(value)
    for digits in range(6):
        plain = float(f"{value:.{digits}e}")
        if abs(plain - value) <= 1e-6 * abs(value) and distance(plain) <= max(2.0 * best, EXACT):
            return plain
    return value


def _stored(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """Held in a shorter floating type, which rounding by that much gives away."""
    apart = relative_difference(r, c) if r.shape == c.shape else np.inf
    for name, eps in (("bfloat16", 2.0**-8), ("float16", 2.0**-11), ("float32", 2.0**-24)):
        if apart <= 1e3 * eps and not _is_short(r, name) and _is_short(c, name):
            yield Relation(f"computed in {name}", 0.0)


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


def _partly(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """Zero in some rows or elements, and the same in all others."""
    zero = (c == 0.0) & (r != 0.0)
    if not zero.any() or zero.all():
        return
    for axis in range(r.ndim):
        rows = np.moveaxis(zero, axis, 0).reshape(r.shape[axis], -1).all(axis=1)
        if (
            rows.any()
            and (zero <= np.expand_dims(rows, [a for a in range(r.ndim) if a != axis])).all()
        ):
            kept = np.where(np.expand_dims(rows, [a for a in range(r.ndim) if a != axis]), 0.0, r)
            cause = f"zero at {_some(np.flatnonzero(rows))} of axis {axis}"
            yield Relation(cause, relative_difference(c, kept))
            return
    if r.size > 3:
        yield Relation(
            f"zero in {zero.mean():.0%} of the elements",
            relative_difference(c, np.where(zero, 0.0, r)),
        )


def _residual(r: np.ndarray, c: np.ndarray, name: str, x: np.ndarray) -> Iterator[Relation]:
    """Yield an input that is added once too often, not at all, or scaled.

    After a final ReLU only positive elements show it.
    """
    if x.shape != r.shape or x.dtype.kind != "f":
        return
    for positive in (False, True):
        use = (r > 0) & (c > 0) if positive else np.ones(r.shape, bool)
        if (positive and (r.min() < 0 or c.min() < 0)) or np.count_nonzero(use) < 8:
            continue
        square = float(np.square(x[use]).sum())
        factor = (
            _plain(float(((c - r)[use] * x[use]).sum()) / square, lambda a: 0.0) if square else 0.0
        )

        def made(value: float, use: np.ndarray = use, positive: bool = positive) -> np.ndarray:
            y = r[use] + value * x[use]
            return np.maximum(y, 0.0) if positive else y

        factor = min(
            (factor, float(round(factor))),
            key=lambda a: relative_difference(c[use], made(a)) + 1e-13 * (a % 1 > 0),
        )
        word = "missing" if factor == -1.0 else f"scaled by {number(1.0 + factor)}"
        cause = (
            f"the residual ({name}) is {word}"
            if factor <= 0 or factor % 1
            else f"{name} added {factor:.0f} times more"
        )
        yield Relation(cause, relative_difference(c[use], made(factor)))


def _moved(r: np.ndarray, c: np.ndarray) -> Iterator[Relation]:
    """The same elements at other places."""
    if r.size != c.size or r.size < 2:
        return
    if r.ndim <= 5:
        for order in [
            order for order in permutations(range(r.ndim)) if order != tuple(range(r.ndim))
        ]:
            moved = r.transpose(order)
            if moved.shape == c.shape:
                word = "transposed" if r.ndim == 2 else f"axes permuted to {order}"
                yield Relation(word, relative_difference(c, moved))
            else:
                yield Relation(
                    f"axes permuted to {order}, then reshaped",
                    relative_difference(c, moved.reshape(c.shape)),
                )
    if r.shape != c.shape:
        yield Relation("reshaped", relative_difference(c, r.reshape(c.shape)))
        return
    for axis in [axis for axis in range(r.ndim) if r.shape[axis] > 1]:
        yield Relation(f"reversed along axis {axis}", relative_difference(c, np.flip(r, axis)))
    if r.ndim > 2:
        yield Relation(
            "reversed along all axes after the second",
            relative_difference(c, np.flip(r, tuple(range(2, r.ndim)))),
        )
    for axis in [axis for axis in range(r.ndim) if r.shape[axis] > 1]:
        if (found := order_along(r, c, axis)) is not None:
            yield Relation(
                f"axis {axis} in the order {_some(found)}",
                relative_difference(c, np.take(r, found, axis)),
            )


def order_along(r: np.ndarray, c: np.ndarray, axis: int) -> np.ndarray | None:
    """Return the order of slices along an axis that maps one array to another, else None."""
    rows = [np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (r, c)]
    keys = [row @ np.cos(np.arange(row.shape[1]) + 1.0) for row in rows]
    first, second = (np.argsort(key, kind="stable") for key in keys)
    if not np.allclose(
        keys[0][first],
        keys[1][second],
        rtol=1e-8,
        atol=1e-8 * float(np.abs(keys[0]).max(initial=0.0)),
    ):
        return None
    order = np.empty_like(first)
    order[second] = first
    return None if (order == np.arange(len(order))).all() else order


def _some(numbers: np.ndarray) -> str:
    """Numbers of a list, no more than a reader wants."""
    shown = ", ".join(str(int(value)) for value in numbers[:8])
    return f"[{shown}{', …' if len(numbers) > 8 else ''}]"
