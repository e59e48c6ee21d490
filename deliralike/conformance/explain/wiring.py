"""Why what a block does between its layers differs: sums, orders, shapes and activations of what is at hand there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import MATCH, Explanation

_ELEMENTS = 4096  # of each array, for finding the factors of a sum
_MOST_AXES = 5
_EXACT = 1e-12


@dataclass(frozen=True)
class Wiring:
    """An array that both sides compute from the same arrays, and differently.

    Attributes:
        sources: What is at hand, by name: the block's inputs and the outputs of its layers.
        reference, candidate: The array on each side.
        gradients: Of each source, on both sides, where these differ.
        missing: Taps that the candidate does not call, and taps that it alone calls.
    """

    sources: Mapping[str, np.ndarray]
    reference: Any
    candidate: Any
    gradients: Mapping[str, tuple[Any, Any]]
    missing: tuple[str, ...] = ()


def explain(wiring: Wiring) -> Explanation | None:
    """The nearest of what could have been done with what is at hand; None where nothing can be said."""
    mine, theirs = wiring.reference, wiring.candidate
    if relative_difference(mine, theirs) <= _EXACT:
        return _of_gradients(wiring)
    if not (_is_array(mine) and _is_array(theirs)):
        return Explanation(f"{theirs!r} instead of {mine!r}", 0.0)
    right = next((words for words, array in _made(wiring.sources, mine) if _near(array, mine)), "")
    found = [(relative_difference(theirs, array), words) for words, array in _made(wiring.sources, theirs)]
    found += [(relative_difference(theirs, array), words) for words, array in _changed(mine)]
    found.sort(key=lambda pair: pair[0])
    if not found or not math.isfinite(found[0][0]):
        return None
    match, words = found[0]
    others = [distance for distance, other in found[1:] if other != words]
    instead = f" instead of {right}" if right and right != words else ""
    return Explanation(f"{words}{instead}", match, min(others, default=None))


def _made(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What can be made of the sources in the shape of the target."""
    arrays = {name: array for name, array in sources.items() if _is_array(array)}
    for name, array in arrays.items():
        yield from ((words.format(name), made) for words, made in _of_one(array, target.shape))
    yield from _joined(arrays, target)
    if (mixed := _mixed(arrays, target)) is not None:
        yield mixed


def _of_one(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    if array.shape == shape:
        yield "{}", array
        if array.dtype.kind == "f":
            yield from ((f"{name} of {{}}", change(array)) for name, change in _ACTIVATIONS.items())
        yield from ((f"{{}} reversed along axis {axis}", np.flip(array, axis)) for axis in range(array.ndim))
    if array.size == math.prod(shape) and array.ndim <= _MOST_AXES:
        for order in permutations(range(array.ndim)):
            turned = "" if order == tuple(range(array.ndim)) else f" with its axes in the order {order}"
            if turned or array.shape != shape:
                yield f"{{}}{turned}, reshaped to {shape}", array.transpose(order).reshape(shape)
    for axes, words in _reduced(array.shape, shape):
        for name, reduce in (("mean", np.mean), ("sum", np.sum), ("maximum", np.max)):
            yield f"the {name} of {{}} over {words}", reduce(array, axis=axes).reshape(shape)
        if len(axes) == 1:
            for name, index in (("first", 0), ("last", -1)):
                yield f"the {name} element of {{}} along {words}", array.take(index, axes[0]).reshape(shape)


def _reduced(shape: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Axes over which an array of one shape can be reduced to another."""
    count = len(shape)
    for chosen in range(1, 2**count) if 2 <= count <= _MOST_AXES else ():
        axes = tuple(axis for axis in range(count) if chosen >> axis & 1)
        left = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        if left == tuple(size for size in target if size != 1) or left == target:
            yield axes, f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"


def _joined(arrays: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Sources one after another along an axis, in the order in which they stand in the target."""
    for axis in range(target.ndim):
        names, at = [], 0
        while at < target.shape[axis]:
            name = next((n for n, array in arrays.items() if _stands(array, target, axis, at)), None)
            if name is None:
                break
            names.append(name)
            at += arrays[name].shape[axis]
        if len(names) > 1 and at == target.shape[axis]:
            joined = np.concatenate([arrays[name] for name in names], axis)
            yield f"{', '.join(names)} joined along axis {axis}", joined


def _stands(array: np.ndarray, target: np.ndarray, axis: int, at: int) -> bool:
    if array.ndim != target.ndim or array.shape[axis] == target.shape[axis]:
        return False
    part = np.take(target, range(at, min(at + array.shape[axis], target.shape[axis])), axis)
    return part.shape == array.shape and _near(array, part)


def _mixed(arrays: Mapping[str, np.ndarray], target: np.ndarray) -> tuple[str, np.ndarray] | None:
    """A sum of sources with factors."""
    fitting = {n: np.broadcast_to(a, target.shape) for n, a in arrays.items()
               if a.dtype.kind == "f" and _fits(a.shape, target.shape) and np.isfinite(a).all()}  # fmt: skip
    unlike: dict[str, np.ndarray] = {}
    for name, array in fitting.items():
        if not any(np.array_equal(array, other) for other in unlike.values()):
            unlike[name] = array
    if not unlike or target.dtype.kind != "f" or not np.isfinite(target).all() or target.size <= len(unlike):
        return None
    step = -(-target.size // _ELEMENTS)
    columns = np.stack([array.ravel()[::step] for array in unlike.values()], 1)
    factors, *_ = np.linalg.lstsq(columns, target.ravel()[::step], rcond=1e-10)
    factors = np.where(np.abs(factors - np.round(factors, 6)) < 1e-9, np.round(factors, 6), factors)
    terms = {name: factor for name, factor in zip(unlike, factors, strict=True) if factor}
    words = " + ".join(name if factor == 1.0 else f"{factor:.6g} * {name}" for name, factor in terms.items())
    mixed = sum((factor * unlike[name] for name, factor in terms.items()), start=np.zeros(target.shape))
    return words or "nothing", mixed


def _changed(reference: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """What can be made of the reference's own result."""
    for name, change in _ACTIVATIONS.items() if reference.dtype.kind == "f" and np.isfinite(reference).all() else ():
        yield f"{name} applied to it once more", change(reference)
    for axis in range(reference.ndim):
        yield f"reversed along axis {axis}", np.flip(reference, axis)
        for step in (1, -1):
            yield f"moved by {step} along axis {axis}", np.roll(reference, step, axis)


def _of_gradients(wiring: Wiring) -> Explanation | None:
    """Why only gradients differ: cut off, or with a factor."""
    parts = []
    for name, (mine, theirs) in wiring.gradients.items():
        if relative_difference(mine, theirs) <= MATCH:
            continue
        size = float(np.vdot(mine, mine))
        factor = float(np.vdot(mine, theirs)) / size if size else 0.0
        words = f"no gradient through {name}" if not np.any(theirs) else f"gradient of {name} times {factor:.6g}"
        parts.append((relative_difference(theirs, factor * np.asarray(mine)), words))
    if not parts:
        return None
    return Explanation("; ".join(words for _, words in parts), max(match for match, _ in parts))


def _near(array: np.ndarray, target: np.ndarray) -> bool:
    return relative_difference(target, array) <= MATCH


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu (0.01)": partial(_leaky, slope=0.01),
    "leaky_relu (0.2)": partial(_leaky, slope=0.2),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-np.clip(x, -700, 700))),
    "tanh": np.tanh,
    "silu": lambda x: x / (1.0 + np.exp(-np.clip(x, -700, 700))),
    "negative": np.negative,
    "abs": np.abs,
}
