"""Formulas of the code between layers: arrays of a wanted shape, made from those available."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain import chains
from deliralike.conformance.findings import MATCH

_ELEMENTS = 4096  # of each array, for finding the factors of a sum
_MOST_AXES = 5
_MOST_ELEMENTS = 16
_FEW = 8  # sources of which pairs are tried with every activation
_PER_FACTOR = (
    3  # elements that there must be for each factor of a sum, so that none fits by accident
)


_Way = tuple[str, tuple[str, ...], Callable[..., np.ndarray]]  # in words, of which sources, how


@dataclass(frozen=True)
class Formula:
    """An array made of sources.

    Attributes:
        words: How.
        array: The result.
        terms: The factor of each source where it is a sum; empty where it is another formula.
    """

    words: str
    array: np.ndarray
    terms: Mapping[str, float] = field(default_factory=dict)


def simple(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[list[Formula]]:
    """Yield sources as they are, changed, joined or summed in the shape of a target.

    They come in stages, the simplest first.
    """
    yield [
        Formula(name, array, {name: 1.0})
        for name, array in sources.items()
        if array.shape == target.shape
    ]
    yield [made for name, array in sources.items() for made in _of_one(name, array, target.shape)]
    yield [made for made in (*_joined(sources, target), mixed(sources, target)) if made is not None]


def scaled(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """Yield each source as it is, or times the number that gives the target."""
    for name, array in sources.items():
        if array.shape != target.shape or array.dtype.kind != "f":
            continue
        if np.isfinite(array).all() and np.isfinite(target).all() and array.any():
            yield _fitted({name: array}, target, None)


def formulas(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[list[Formula]]:
    """The same, and what is made of sums and of two sources."""
    yield from simple(sources, target)
    yield [Formula(words, array) for words, array in chains.formulas(sources, target)]
    yield list(_joined({**sources, **chains.resized(sources, target)}, target))
    if target.dtype.kind == "f" and np.isfinite(target).all():
        yield list(_masked(sources, target))
        yield list(_reduced_sums(sources, target))
        yield list(_activated(sources, target))
        yield list(_of_two(sources, target))


@dataclass(frozen=True)
class Found:
    """The simplest formula that gives a target, else the nearest.

    It comes with its distance and that of the next one.
    """

    formula: Formula | None = None
    off: float = math.inf
    next_best: float = math.inf

    def or_else(self, stages: Iterable[Iterable[Formula]], target: np.ndarray) -> Found:
        """The first exact formula of several stages, where this one is not exact."""
        found = self
        for stage in stages:
            if found.off <= MATCH:
                break
            tried = [(_distance(target, made.array), made) for made in stage]
            tried += [] if found.formula is None else [(found.off, found.formula)]
            if not tried:
                continue
            off, best = min(
                tried, key=lambda pair: pair[0] if pair[0] > MATCH else 0.0
            )  # the first of the exact ones
            others = [distance for distance, _ in tried if distance > max(MATCH, off)]
            found = Found(best, off, min([*others, found.next_best]))
        return found


def _distance(target: np.ndarray, array: np.ndarray) -> float:
    """How far an array is from a target; of large ones by some elements, unless these agree."""
    step = -(-target.size // _ELEMENTS)
    if step > 1 and array.shape == target.shape:
        few = relative_difference(target.ravel()[::step], array.ravel()[::step])
        if few > MATCH:
            return few
    return relative_difference(target, array)


def nearest(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Found:
    """What of the sources gives a target."""
    return Found().or_else(formulas(sources, target), target)


def changed(array: np.ndarray) -> Iterator[Formula]:
    """What can be made of an array itself."""
    if array.dtype.kind == "f" and np.isfinite(array).all():
        yield from (
            Formula(f"{name} applied to it once more", change(array))
            for name, change in ACTIVATIONS.items()
        )
    for axis in range(array.ndim):
        kind = _AXES.get(axis, "") if array.ndim == 4 else ""
        yield Formula(f"flipped (reversed along axis {axis}{kind})", np.flip(array, axis))
        for step in (1, -1):
            yield Formula(f"moved by {step} along axis {axis}", np.roll(array, step, axis))
    for first, second in combinations(range(array.ndim), 2):
        yield Formula(
            f"transposed (axes {first} and {second} exchanged)", np.swapaxes(array, first, second)
        )


def mixed(
    sources: Mapping[str, np.ndarray], target: np.ndarray, times: np.ndarray | None = None
) -> Formula | None:
    """Return a sum of sources with factors and a constant.

    Each is multiplied by the same array if one is given.
    """
    if target.dtype.kind != "f" or not np.isfinite(target).all():
        return None
    if not target.any():
        return Formula("zeros", np.zeros_like(target))
    columns = _columns(sources, target.shape)
    if not columns or target.size < _PER_FACTOR * (len(columns) + 1):
        return None
    for constant in (False, True):
        if constant:
            columns = {**columns, "1": np.ones(target.shape)}
        made = _fitted(columns, target, times)
        if relative_difference(target, made.array) <= MATCH:
            return made
    return made


def summed(terms: Mapping[str, float]) -> str:
    """A sum in words: ``"a + 0.5 * b - c"``."""
    words = ""
    for name, factor in terms.items():
        size = (
            name
            if abs(factor) == 1.0 and name != "1"
            else f"{abs(factor):.6g} * {name}".removesuffix(" * 1")
        )
        sign = "-" if factor < 0 else "+"
        words += f" {sign} {size}" if words else (size if sign == "+" else f"-{size}")
    return words or "zeros"


def _columns(sources: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Unlike floating sources, broadcast to a shape."""
    unlike: dict[str, np.ndarray] = {}
    for name, array in sources.items():
        if (
            array.dtype.kind == "f"
            and array.ndim
            and _fits(array.shape, shape)
            and np.isfinite(array).all()
        ):
            wide = np.broadcast_to(array, shape)
            if not any(np.array_equal(wide, other) for other in unlike.values()) and wide.any():
                unlike[name] = wide
    return unlike


def _fitted(
    columns: Mapping[str, np.ndarray], target: np.ndarray, times: np.ndarray | None
) -> Formula:
    step = -(-target.size // _ELEMENTS)
    used = {name: array if times is None else array * times for name, array in columns.items()}
    stacked = np.stack([array.ravel()[::step] for array in used.values()], 1)
    factors, *_ = np.linalg.lstsq(stacked, target.ravel()[::step], rcond=1e-10)
    factors = np.where(np.abs(factors - np.round(factors, 6)) < 1e-9, np.round(factors, 6), factors)
    terms = {name: float(factor) for name, factor in zip(used, factors, strict=True) if factor}
    total = sum(
        (factor * used[name] for name, factor in terms.items()), start=np.zeros(target.shape)
    )
    return Formula(summed(terms), total, terms)


def _of_one(name: str, array: np.ndarray, shape: tuple[int, ...]) -> Iterator[Formula]:
    if array.shape == shape:
        if array.dtype.kind == "f":
            yield from (
                Formula(f"{how} of {name}", change(array)) for how, change in ACTIVATIONS.items()
            )
        yield from (
            Formula(f"{name} flipped (reversed along axis {axis})", np.flip(array, axis))
            for axis in range(array.ndim)
        )
    if array.size == math.prod(shape) and array.ndim <= _MOST_AXES:
        for order in permutations(range(array.ndim)):
            turned = (
                ""
                if order == tuple(range(array.ndim))
                else f" transposed to the order {order} of its axes"
            )
            if turned or array.shape != shape:
                flat = array.transpose(order).reshape(shape)
                kept = tuple(array.shape[axis] for axis in order) == shape
                yield Formula(f"{name}{turned}{'' if kept else f', reshaped to {shape}'}", flat)
                for axis in () if turned else range(len(shape)):
                    yield Formula(
                        f"{name} reshaped to {shape} and reversed along axis {axis}",
                        np.flip(flat, axis),
                    )
    for axes, words in _reductions(array.shape, shape):
        for how, reduce in _REDUCTIONS.items():
            yield Formula(f"the {how} of {name} over {words}", reduce(array, axes).reshape(shape))
        for how, index in _elements(array.shape, axes):
            part = array.take(index, axes[0]).reshape(shape)
            yield Formula(f"{how} of {name} along {words}", part)


def _reductions(
    shape: tuple[int, ...], target: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Axes over which an array of one shape can be reduced to another."""
    count = len(shape)
    for chosen in range(1, 2**count) if 2 <= count <= _MOST_AXES else ():
        axes = tuple(axis for axis in range(count) if chosen >> axis & 1)
        left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        if target in (left, kept) or left == tuple(size for size in target if size != 1):
            yield axes, f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"


def _elements(shape: tuple[int, ...], axes: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Which one of an axis can be taken, in words."""
    kind = {2: "row", 3: "column"}.get(axes[0], "element") if len(shape) == 4 else "element"
    named = {0: f"the first {kind}", -1: f"the last {kind}", -2: f"the last {kind} but one"}
    if len(axes) == 1 and shape[axes[0]] > 1:
        yield from ((words, index) for index, words in named.items())
        yield from (
            (f"{kind} {index}", index)
            for index in range(1, min(shape[axes[0]] - 2, _MOST_ELEMENTS))
        )


def _joined(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """Sources one after another along an axis, in the order in which they stand in the target."""
    for axis in range(target.ndim):
        names: list[str] = []
        at = 0
        while at < target.shape[axis]:
            name = next(
                (n for n, array in sources.items() if _stands(array, target, axis, at)), None
            )
            if name is None:
                break
            names.append(name)
            at += sources[name].shape[axis]
        if len(names) > 1 and at == target.shape[axis]:
            joined = np.concatenate([sources[name] for name in names], axis)
            yield Formula(f"{', '.join(names)} joined in this order along axis {axis}", joined)


def _stands(array: np.ndarray, target: np.ndarray, axis: int, at: int) -> bool:
    if array.ndim != target.ndim or array.shape[axis] == target.shape[axis]:
        return False
    part = np.take(target, range(at, min(at + array.shape[axis], target.shape[axis])), axis)
    return part.shape == array.shape and relative_difference(part, array) <= MATCH


def _of_two(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """Products, quotients and extrema of two sources."""
    arrays = _columns(sources, target.shape)
    ways: list[_Way] = []
    for first, second in combinations(arrays, 2):
        ways += [
            (f"the {how} of {first} and {second}", (first, second), join)
            for how, join in _PAIRS.items()
        ]
        for pair in ((first, second), (second, first)):
            ways.append((f"{pair[0]} / {pair[1]}", pair, _quotient))
            ways.append(
                (f"{pair[0]} times the sigmoid of {pair[1]}", pair, lambda x, y: x * _sigmoid(y))
            )
    return _tried(ways, arrays, target)


def _tried(
    ways: Iterable[_Way], arrays: Mapping[str, np.ndarray], target: np.ndarray
) -> Iterator[Formula]:
    """Yield formulas element by element.

    Of large arrays, only formulas that hold for some of the elements are computed in full.
    """
    step = -(-target.size // _ELEMENTS)
    thin, wanted = (
        {name: array.ravel()[::step] for name, array in arrays.items()},
        target.ravel()[::step],
    )
    for words, names, function in ways:
        if (
            step == 1
            or relative_difference(wanted, function(*(thin[name] for name in names))) <= MATCH
        ):
            yield Formula(words, function(*(arrays[name] for name in names)))


def _masked(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """Sums where a mask among the sources is set, or is not, and zero elsewhere."""
    for name, array in sources.items():
        for shape in {array.shape, (*array.shape, 1)}:
            mask = array.reshape(shape).astype(np.float64)
            if not (
                _fits(shape, target.shape) and np.isin(mask, (0.0, 1.0)).all() and np.ptp(mask)
            ):
                continue
            for words, wanted in (("", mask), ("not ", 1.0 - mask)):
                made = mixed({n: a for n, a in sources.items() if n != name}, target, wanted)
                if made is not None:
                    several = f"({made.words})" if len(made.terms) > 1 else made.words
                    yield Formula(f"{several} where {words}{name}", made.array, made.terms)


def _reduced_sums(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """A sum of sources of which one element, the mean or the sum along an axis is taken."""
    shapes = {
        array.shape
        for array in sources.values()
        if array.dtype.kind == "f" and array.size > target.size
    }
    for shape in sorted(shapes):
        alike = {name: array for name, array in sources.items() if array.shape == shape}
        for axes, words in _reductions(shape, target.shape):
            ways: dict[str, Callable[[np.ndarray], np.ndarray]] = {
                f"the {how} over {words} of": partial(_over, reduce=_REDUCTIONS[how], axes=axes)
                for how in ("mean", "sum")
            }
            ways |= {
                f"{how} along {words} of": partial(np.take, indices=index, axis=axes[0])
                for how, index in _elements(shape, axes)
            }
            for how, reduce in ways.items():
                made = mixed({n: reduce(a).reshape(target.shape) for n, a in alike.items()}, target)
                if made is not None:
                    yield Formula(f"{how} {made.words}", made.array)


def _over(
    array: np.ndarray, reduce: Callable[..., np.ndarray], axes: tuple[int, ...]
) -> np.ndarray:
    return reduce(array, axes)


def _activated(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Formula]:
    """Sums of which one term is activated, or the whole."""
    arrays = dict(list(_columns(sources, target.shape).items())[-_FEW:])
    ways: list[_Way] = []
    for how, change in ACTIVATIONS.items():
        ways += [
            (f"{other} + {how} of {name}", (other, name), partial(_plus, change=change))
            for other, name in permutations(arrays, 2)
        ]
        ways += [
            (f"{how} of ({first} + {second})", (first, second), partial(_of_sum, change=change))
            for first, second in combinations(arrays, 2)
        ]
    return _tried(ways, arrays, target)


def _plus(x: np.ndarray, y: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return x + change(y)


def _of_sum(x: np.ndarray, y: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return change(x + y)


def _quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x / y


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -700, 700)))


_AXES = {0: ", the samples", 1: ", the order of channels", 2: ", upside down", 3: ", mirrored"}
_PAIRS: dict[str, Callable[..., np.ndarray]] = {
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sum": np.sum, "maximum": np.max}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu (0.01)": partial(_leaky, slope=0.01),
    "leaky_relu (0.1)": partial(_leaky, slope=0.1),
    "leaky_relu (0.2)": partial(_leaky, slope=0.2),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * _sigmoid(x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "abs": np.abs,
}
