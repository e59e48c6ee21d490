"""Formulas of the code between layers: one grammar, and the search for what gives an array.

An array is a source, a change of one, a sum of sources, a change of a sum, several of these joined,
or two put together element by element. The changes are data; the search tries them in stages, the
simplest first, and a number that is fitted must be borne out by many more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, permutations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import without
from deliralike.conformance.explain.activations import ACTIVATIONS, applied
from deliralike.conformance.explain.enumeration import other_orders, subsets
from deliralike.conformance.findings import MATCH
from deliralike.conformance.kinds import Axes, Shape, Tensors

Array = np.ndarray
Sources = Mapping[str, np.ndarray]

_ELEMENTS = 4096  # of each array, for finding the factors of a sum
_FIRST = 512  # of each array, by which it is seen that a formula does not hold
_PER_NUMBER = 8  # elements that there must be for each number that is fitted
_MOST_AXES = 5
_MOST_ELEMENTS = 16
_FEW = 8  # sources of which pairs are tried


@dataclass(frozen=True)
class Formula:
    """An array made of sources.

    Attributes:
        words: How.
        array: The result.
        terms: The factor of each source where it is a sum, or a change of one; else empty.
    """

    words: str
    array: Array
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def in_brackets(self) -> str:
        """The words, as part of others."""
        return f"({self.words})" if len(self.terms) > 1 else self.words


@dataclass(frozen=True)
class Change:
    """What may be done to one array.

    Attributes:
        words: With ``{}`` in the place of the array.
        of: The function.
        linear: Whether the change of a sum is the sum of the changes.
    """

    words: str
    of: Callable[[Array], Array]
    linear: bool = True

    def said(self, what: str) -> str:
        """The change of something, in words."""
        return self.words.replace("{}", what)

    def after(self, first: Change) -> Change:
        """This change of what another one gives."""
        both = self.linear and first.linear
        return Change(self.said(first.words), lambda x: self.of(first.of(x)), both)

    def formula(self, name: str, array: Array) -> Formula:
        """The change of a source."""
        return Formula(self.said(name), self.of(array), {name: 1.0})


@dataclass(frozen=True)
class Found:
    """The nearest formula of several, how far it is, and the next one."""

    formula: Formula | None = None
    off: float = math.inf
    next_best: float = math.inf

    @property
    def exact(self) -> Formula | None:
        """The formula, if it gives the array."""
        return self.formula if self.off <= MATCH else None


def first_exact(stages: Iterable[Iterable[Formula]], target: Array) -> Found:
    """The first formula of several stages that gives a target, else the nearest one."""
    found = Found()
    for made in chain.from_iterable(stages):
        distance = _distance(target, made.array)
        if distance < found.off:
            found = Found(made, distance, found.off)
        elif distance > max(MATCH, found.off):
            found = replace(found, next_best=min(found.next_best, distance))
        if found.off <= MATCH:
            break
    return found


def _distance(target: Array, array: Array) -> float:
    """How far an array is from a target; of large ones by some elements, unless these agree."""
    step = -(-target.size // _ELEMENTS)
    if step > 1 and array.shape == target.shape:
        few = relative_difference(target.ravel()[::step], array.ravel()[::step])
        if few > MATCH:
            return few
    return relative_difference(target, array)


def nearest(sources: Sources, target: Array) -> Found:
    """What of the sources gives a target."""
    return first_exact(formulas(sources, target), target)


def formulas(sources: Sources, target: Array) -> Iterator[Iterable[Formula]]:
    """What can be made of sources in the shape of a target, in stages."""
    yield from simple(sources, target)
    if _is_finite(target):
        floating = {name: array for name, array in sources.items() if _is_finite(array)}
        yield _changed_twice(floating, target)
        yield _changed_sums(floating, target)
        yield _joined(dict(_parts(floating)), target)
        yield _masked(sources, target)
        yield _pairs(floating, target)


def simple(sources: Sources, target: Array) -> Iterator[Iterable[Formula]]:
    """Sources as they are, changed, joined or summed."""
    alike = {name: array for name, array in sources.items() if array.shape == target.shape}
    yield (Formula(name, array, {name: 1.0}) for name, array in alike.items())
    yield _changed(sources, target)
    yield _joined(sources, target)
    made = mixed(sources, target)
    yield () if made is None else (made,)


def scaled(sources: Sources, target: Array) -> Iterator[Formula]:
    """Each source times the number that gives the target."""
    if _is_finite(target) and target.size >= _PER_NUMBER:
        for name, array in sources.items():
            if array.shape == target.shape and _is_finite(array) and array.any():
                yield _fitted({name: array}, target)


def changed(array: Array, words: str) -> Iterator[Formula]:
    """What can be made of one array in its own shape."""
    if _is_finite(array):
        for change in ACTIVATED:
            yield change.formula(words, array)
    for change in changes(array.shape, array.shape):
        yield change.formula(words, array)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())


# One source, or a sum, that is changed
# -----------------------------------------------------------------------------


def _changed(sources: Sources, target: Array) -> Iterator[Formula]:
    """Each source after one change."""
    for name, array in sources.items():
        if array.shape == target.shape and array.dtype.kind == "f":
            ways = [(change.said(name), (name,), change.of) for change in ACTIVATED]
            yield from _elementwise(ways, {name: array}, target)
        for change in changes(array.shape, target.shape):
            yield change.formula(name, array)


def _changed_twice(sources: Sources, target: Array) -> Iterator[Formula]:
    """Each source activated and then changed, or the other way round."""
    for name, array in sources.items():
        for change in changes(array.shape, target.shape):
            for one in ACTIVATED:
                yield change.after(one).formula(name, array)
            if array.size > target.size:
                inner = change.said(name)
                ways = [(one.said(inner), (name,), one.of) for one in ACTIVATED]
                yield from _elementwise(ways, {name: change.of(array)}, target)


def _changed_sums(sources: Sources, target: Array) -> Iterator[Formula]:
    """Changes of sums of sources that are linear: they are sums of changes."""
    groups: dict[Shape, Tensors] = {}
    for name, array in sources.items():
        groups.setdefault(array.shape, {})[name] = array
    for shape, alike in groups.items():
        if len(alike) < 2:
            continue
        for change in changes(shape, target.shape):
            if not change.linear:
                continue
            made = mixed({name: change.of(array) for name, array in alike.items()}, target)
            if made is not None and made.terms:
                words = change.said(made.in_brackets)
                yield Formula(words, made.array, made.terms)


# Sums
# -----------------------------------------------------------------------------


def mixed(sources: Sources, target: Array, times: Array | None = None) -> Formula | None:
    """Return a sum of sources with factors and a constant.

    Each is multiplied by the same array if one is given.
    """
    if not _is_finite(target):
        return None
    if not target.any():
        return Formula("zeros", np.zeros_like(target))
    columns = _columns(sources, target.shape)
    found = None
    for used in (columns, columns | {"1": np.ones(target.shape)}):
        if columns and target.size >= 3 * len(used):
            made = _fitted(used, target, times)
            is_enough = target.size >= _PER_NUMBER * len(made.terms)
            found = made if is_enough else None
            if is_enough and relative_difference(target, made.array) <= MATCH:
                break
    return found


def _columns(sources: Sources, shape: Shape) -> Tensors:
    """Unlike floating sources, broadcast to a shape."""
    unlike: Tensors = {}
    for name, array in sources.items():
        if array.ndim and _fits(array.shape, shape) and _is_finite(array):
            wide = np.broadcast_to(array, shape)
            if wide.any() and not any(np.array_equal(wide, other) for other in unlike.values()):
                unlike[name] = wide
    return unlike


def _fitted(columns: Sources, target: Array, times: Array | None = None) -> Formula:
    step, used = -(-target.size // _ELEMENTS), columns
    if times is not None:
        used = {name: array * times for name, array in columns.items()}
    stacked = np.stack([array.ravel()[::step] for array in used.values()], 1)
    factors, *_ = np.linalg.lstsq(stacked, target.ravel()[::step], rcond=1e-10)
    plain = np.round(factors, 6)
    factors = np.where(np.abs(factors - plain) < 1e-9, plain, factors)
    terms = {name: float(factor) for name, factor in zip(used, factors, strict=True) if factor}
    total = np.zeros(target.shape)
    for name, factor in terms.items():
        total = total + factor * used[name]
    return Formula(summed(terms), total, terms)


def summed(terms: Mapping[str, float]) -> str:
    """A sum in words: ``"a + 0.5 * b - c"``."""
    words = ""
    for name, factor in terms.items():
        size = f"{abs(factor):.6g} * {name}".removesuffix(" * 1").removeprefix("1 * ")
        words += f" - {size}" if factor < 0 else f" + {size}"
    if words.startswith(" - "):
        return f"-{words[3:]}"
    return words[3:] or "zeros"


def _masked(sources: Sources, target: Array) -> Iterator[Formula]:
    """Sums where a mask among the sources is set, or is not, and zero elsewhere."""
    for name, mask in _masks(sources, target.shape):
        others = without(sources, [name])
        for words, kept in ((name, mask), (f"not {name}", 1.0 - mask)):
            made = mixed(others, target, kept)
            if made is not None:
                yield Formula(f"{made.in_brackets} where {words}", made.array, made.terms)


def _masks(sources: Sources, to: Shape) -> Iterator[tuple[str, Array]]:
    """Sources of zeros and ones that can be broadcast to a shape, also with one axis more."""
    for name, array in sources.items():
        for shape in {array.shape, (*array.shape, 1)}:
            mask = array.reshape(shape).astype(np.float64)
            if _fits(shape, to) and np.isin(mask, (0.0, 1.0)).all() and np.ptp(mask):
                yield name, mask


def _fits(shape: Shape, target: Shape) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# Parts, and pairs
# -----------------------------------------------------------------------------


def _parts(sources: Sources) -> Iterator[tuple[str, Array]]:
    """Sources, and what they may have become before they were joined."""
    yield from sources.items()
    for name, array in sources.items():
        for change in (*ACTIVATED, *changes(array.shape, array.shape)):
            made = change.formula(name, array)
            yield made.words, made.array


def _joined(parts: Sources, target: Array) -> Iterator[Formula]:
    """Parts one after another along an axis, in the order in which they stand in the target."""
    for axis in range(target.ndim):
        names: list[str] = []
        at = 0
        while at < target.shape[axis]:
            name = _standing(parts, target, axis, at)
            if name is None:
                break
            names.append(name)
            at += parts[name].shape[axis]
        if len(names) > 1 and at == target.shape[axis]:
            joined = np.concatenate([parts[name] for name in names], axis)
            yield Formula(f"{', '.join(names)} joined in this order along axis {axis}", joined)


def _standing(parts: Sources, target: Array, axis: int, at: int) -> str | None:
    """The first part that is in the target at a position."""
    for name, array in parts.items():
        if _stands(array, target, axis, at):
            return name
    return None


def _stands(array: Array, target: Array, axis: int, at: int) -> bool:
    if array.ndim != target.ndim or array.shape[axis] == target.shape[axis]:
        return False
    part = np.take(target, range(at, min(at + array.shape[axis], target.shape[axis])), axis)
    return part.shape == array.shape and relative_difference(part, array) <= MATCH


def _pairs(sources: Sources, target: Array) -> Iterator[Formula]:
    """Two sources put together element by element, one of them or the sum activated."""
    arrays = dict(list(_columns(sources, target.shape).items())[-_FEW:])
    return _elementwise(_ways_of_two(list(arrays)), arrays, target)


def _ways_of_two(arrays: Sequence[str]) -> Iterator[_Way]:
    for names in combinations(arrays, 2):
        for words, join in _SYMMETRIC.items():
            yield words.format(*names), names, join
        for one in ACTIVATED:
            yield one.said("({} + {})".format(*names)), names, partial(_of_sum, one.of)
    for names in permutations(arrays, 2):
        first, second = names
        yield f"{first} / {second}", names, _quotient
        for one in ACTIVATED:
            activated = one.said(second)
            yield f"{first} + {activated}", names, partial(_plus, one.of)
            yield f"{first} times {activated}", names, partial(_times, one.of)


_Way = tuple[str, tuple[str, ...], Callable[..., Array]]  # in words, of which sources, how


def _elementwise(ways: Iterable[_Way], arrays: Sources, target: Array) -> Iterator[Formula]:
    """Formulas element by element: those that hold for some elements are computed in full."""
    step = -(-target.size // _FIRST)
    thin = {name: array.ravel()[::step] for name, array in arrays.items()}
    wanted = target.ravel()[::step]
    for words, names, function in ways:
        few = function(*(thin[name] for name in names))
        if step == 1:
            yield Formula(words, few.reshape(target.shape))
        elif relative_difference(wanted, few) <= MATCH:
            yield Formula(words, function(*(arrays[name] for name in names)))


def _of_sum(change: Callable[[Array], Array], x: Array, y: Array) -> Array:
    return change(x + y)


def _plus(change: Callable[[Array], Array], x: Array, y: Array) -> Array:
    return x + change(y)


def _times(change: Callable[[Array], Array], x: Array, y: Array) -> Array:
    return x * change(y)


def _quotient(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        return x / y


# Changes
# -----------------------------------------------------------------------------


def changes(shape: Shape, to: Shape) -> Iterator[Change]:
    """What makes an array of one shape of one of another, but for activations."""
    if shape == to:
        yield from _moves(shape)
    if math.prod(shape) == math.prod(to) and max(len(shape), len(to)) <= _MOST_AXES:
        yield from _orders(shape, to)
    for axes, words in _axes(shape, to):
        yield from _reductions(shape, to, axes, words)


def _moves(shape: Shape) -> Iterator[Change]:
    """Along single axes."""
    rank = len(shape)
    for axis in range(rank):
        words = f"{{}} reversed along axis {axis}"
        if rank == 4:
            words += f" ({_OF_PICTURES[axis]})"
        yield Change(words, partial(np.flip, axis=axis))
        for step in (1, -1):
            rolled = partial(np.roll, shift=step, axis=axis)
            yield Change(f"{{}} moved by {step} along axis {axis}", rolled)


def _orders(shape: Shape, to: Shape) -> Iterator[Change]:
    """Axes in another order, then reshaped; or reshaped and then in another order."""
    usual = tuple(range(len(shape)))
    if shape != to:
        yield Change(f"{{}}, reshaped to {to}", partial(_ordered, usual, to))
    for order in other_orders(len(shape)):
        words = f"{{}} transposed to the order {order} of its axes"
        if tuple(shape[axis] for axis in order) != to:
            words += f", reshaped to {to}"
        yield Change(words, partial(_ordered, order, to))
    for order in other_orders(len(to)):
        before = tuple(to[order.index(axis)] for axis in range(len(to)))
        if before != shape:
            words = f"{{}} reshaped to {before} and transposed to the order {order} of its axes"
            yield Change(words, partial(_reordered, before, order))


def _axes(shape: Shape, to: Shape) -> Iterator[tuple[Axes, str]]:
    """Axes over which an array of one shape can be reduced to another."""
    count = len(shape)
    if not 2 <= count <= _MOST_AXES:
        return
    for axes in subsets(count):
        left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        if to in (left, kept) or left == tuple(size for size in to if size != 1):
            yield axes, f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"


def _reductions(shape: Shape, to: Shape, axes: Axes, words: str) -> Iterator[Change]:
    """A number for each element of some axes, or one of them."""
    for how, (reduce, linear) in _REDUCTIONS.items():
        whole = partial(_reduced, reduce, axes, slice(None), to)
        yield Change(f"the {how} of {{}} over {words}", whole, linear)
    if len(axes) > 1 or shape[axes[0]] < 2:
        return
    size = shape[axes[0]]
    for index in (0, -1, -2, *range(1, min(size - 2, _MOST_ELEMENTS))):
        which = _NAMED.get(index, f"element {index}")
        if len(shape) == 4:
            which = which.replace("element", _KINDS.get(axes[0], "element"))
        one = partial(_taken, index, axes[0], to)
        yield Change(f"{which} of {{}} along {words}", one)
    if size < 3:
        return
    for left, part in _LEFT_OUT.items():
        for how, (reduce, linear) in _REDUCTIONS.items():
            fewer = partial(_reduced, reduce, axes, part, to)
            yield Change(f"the {how} of {{}} over {words} without {left}", fewer, linear)


# The functions of changes
# -----------------------------------------------------------------------------


def _ordered(order: Axes, to: Shape, x: Array) -> Array:
    return x.transpose(order).reshape(to)


def _reordered(before: Shape, order: Axes, x: Array) -> Array:
    return x.reshape(before).transpose(order)


def _taken(index: int, axis: int, to: Shape, x: Array) -> Array:
    return x.take(index, axis).reshape(to)


def _reduced(reduce: Callable[..., Any], axes: Axes, part: slice, to: Shape, x: Array) -> Array:
    kept = [part if axis in axes else slice(None) for axis in range(x.ndim)]
    return np.asarray(reduce(x[tuple(kept)], axis=axes)).reshape(to)


# Tables
# -----------------------------------------------------------------------------

_LABELS = {"gelu": "gelu (erf)"}  # where no class or function tells which one is meant
ACTIVATED = tuple(
    Change(f"{_LABELS.get(name, name)} of {{}}", partial(applied, name), False)
    for name in ACTIVATIONS
    if name != "identity"
)
_SYMMETRIC: dict[str, Callable[..., Array]] = {
    "the product of {} and {}": np.multiply,
    "the maximum of {} and {}": np.maximum,
    "the minimum of {} and {}": np.minimum,
}
_REDUCTIONS: dict[str, tuple[Callable[..., Any], bool]] = {
    "mean": (np.mean, True),
    "sum": (np.sum, True),
    "maximum": (np.max, False),
}
_LEFT_OUT = {"its last element": slice(None, -1), "its first element": slice(1, None)}
_NAMED = {0: "the first element", -1: "the last element", -2: "the last element but one"}
_KINDS = {2: "row", 3: "column"}
_OF_PICTURES = ("the samples", "the order of channels", "upside down", "mirrored")
