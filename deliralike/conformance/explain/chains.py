"""Operations of native networks between layers: chains of activations, pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from deliralike.conformance.explain.activations import ACTIVATIONS, applied
from deliralike.conformance.explain.windows import RESIZINGS

Change = Callable[[np.ndarray], np.ndarray]
Made = tuple[str, np.ndarray]

_LARGEST = 2**20  # elements; larger arrays are not pooled in every way
_WINDOWS = [
    (size, stride, padding)
    for size, stride, padding in product((2, 3, 4), (1, 2, 3, 4), (0, 1))
    if padding <= size // 2
]


def formulas(sources: Mapping[str, np.ndarray], target: np.ndarray) -> Iterator[Made]:
    """Yield each source after an activation, resized to the shape of a target.

    A slope is also tried where the target shows one.
    """
    for name, array in sources.items():
        if array.dtype.kind != "f" or target.dtype.kind != "f" or not np.isfinite(target).all():
            continue
        for end in _flattened(array.shape, target.shape):
            pictures = formulas({name: array}, target.reshape(*array.shape[:2], *end))
            yield from (
                (f"{words}, flattened", made.reshape(target.shape)) for words, made in pictures
            )
        if array.shape == target.shape:
            for activation in ACTIVATIONS:
                yield f"{activation} of {name}", applied(activation, array)
            yield from _with_slope("", name, array, target, lambda x: x, True)
        changes = (*_reductions(array.shape, target.shape), *_resizings(array, target.shape))
        for words, resize, is_linear in changes:
            yield f"{words} of {name}", resize(array)
            for activation in ACTIVATIONS:
                yield f"{words} of {activation} of {name}", resize(applied(activation, array))
            yield from _with_slope(f"{words} of ", name, array, target, resize, is_linear)


def resized(sources: Mapping[str, np.ndarray], target: np.ndarray) -> dict[str, np.ndarray]:
    """Return the sources as pictures of a target's size, by what was done to them.

    These may be joined with others.
    """
    found = {}
    for name, array in sources.items():
        for words, resize, _ in _resizings(array, (*array.shape[:2], *target.shape[2:])):
            found[f"{words} of {name}"] = resize(array)
    return found


def _with_slope(
    words: str, name: str, array: np.ndarray, target: np.ndarray, resize: Change, is_linear: bool
) -> Iterator[Made]:
    """Yield leaky ReLUs with a fitted slope.

    Pooling by the maximum is not linear, but keeps the order of numbers, as a leaky ReLU does.
    """
    above = resize(np.maximum(array, 0.0))
    below = resize(np.minimum(array, 0.0)) if is_linear else np.minimum(resize(array), 0.0)
    size = float(np.vdot(below, below))
    slope = float(np.vdot(target - above, below)) / size if size else 0.0
    if np.isfinite(slope) and abs(slope) > 1e-9:
        yield f"{words}leaky_relu (slope {slope:.6g}) of {name}", above + round(slope, 12) * below


def _flattened(shape: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sizes of pictures that may have been flattened to a target."""
    if len(shape) != 4 or len(target) != 2 or shape[0] != target[0]:
        return []
    sizes = {size for windows in _WINDOWS for size in _sizes(shape[2:], *windows)}
    return sorted(
        size for size in sizes if shape[1] * math.prod(size) == target[1] and min(size) > 0
    )


def _reductions(shape: tuple[int, ...], to: tuple[int, ...]) -> Iterator[tuple[str, Change, bool]]:
    """Means and maxima over positions, or over tokens."""
    several = (axes for axes in ((2, 3), (1,), (2,)) if len(axes) + len(to) == len(shape))
    for axes in several:
        if tuple(size for axis, size in enumerate(shape) if axis not in axes) == to:
            yield f"the mean over axes {axes}", partial(_over, np.mean, axes), True
            yield f"the maximum over axes {axes}", partial(_over, np.max, axes), False


def _over(reduce: Callable[..., Any], axes: tuple[int, ...], array: np.ndarray) -> np.ndarray:
    return np.asarray(reduce(array, axis=axes))


def _resizings(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[str, Change, bool]]:
    """Yield name, function and linearity of each change of pictures from one size to another."""
    fits = (
        array.ndim == len(shape) == 4 and array.shape[:2] == shape[:2] and array.dtype.kind == "f"
    )
    if not fits or array.shape == shape or array.size > _LARGEST:
        return
    start, end = array.shape[2:], shape[2:]
    if all(after <= before for before, after in zip(start, end, strict=True)):
        yield from _poolings(start, end)
    for words, weights in _INTERPOLATIONS.items():
        rows, columns = (weights(*pair, None) for pair in zip(start, end, strict=True))
        yield words, partial(_interpolated, rows, columns), True


def _poolings(start: tuple[int, ...], end: tuple[int, ...]) -> Iterator[tuple[str, Change, bool]]:
    for size, stride, padding in _WINDOWS:
        floor, ceil = _sizes(start, size, stride, padding)
        rule = (
            ""
            if floor == ceil
            else ", incomplete windows dropped"
            if floor == end
            else ", incomplete windows kept"
        )
        if end not in (floor, ceil):
            continue
        numbers = (
            f"of {size} by {size}, stride {stride}{f', padding {padding}' if padding else ''}{rule}"
        )
        take = partial(_pooled, size, stride, padding, end)
        yield f"max pooling {numbers}", partial(take, np.max, -np.inf), False
        yield f"mean pooling {numbers}", partial(take, _mean, np.nan), True
        if padding or floor != ceil:
            yield f"mean pooling {numbers}, padding counted", partial(take, np.mean, 0.0), True


def _sizes(
    start: tuple[int, ...], size: int, stride: int, padding: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many windows there are along each axis without and with the incomplete ones."""
    steps = [(n + 2 * padding - size) / stride for n in start]
    return tuple(math.floor(n) + 1 for n in steps), tuple(math.ceil(n) + 1 for n in steps)


def _pooled(
    size: int,
    stride: int,
    padding: int,
    end: tuple[int, ...],
    reduce: Callable[..., Any],
    value: float,
    array: np.ndarray,
) -> np.ndarray:
    """The windows of pictures, each reduced to one number; `value` stands around the pictures."""
    after = [
        (count - 1) * stride + size - padding - n
        for count, n in zip(end, array.shape[2:], strict=True)
    ]
    wide = np.pad(
        array, ((0, 0), (0, 0), *((padding, max(0, more)) for more in after)), constant_values=value
    )
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[
        :, :, ::stride, ::stride
    ]
    return np.asarray(reduce(windows[:, :, : end[0], : end[1]], axis=(-2, -1)))


def _mean(windows: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """The mean of what lies inside of the pictures."""
    return np.nansum(windows, axis) / np.maximum(1, np.isfinite(windows).sum(axis))


def _interpolated(rows: np.ndarray, columns: np.ndarray, array: np.ndarray) -> np.ndarray:
    return np.einsum("ih,nchw,jw->ncij", rows, array, columns)


# What native networks resize by, and the words for it.
_INTERPOLATIONS = {
    "bilinear resizing with align_corners=False": RESIZINGS["linear, align_corners=False"],
    "bilinear resizing with align_corners=True": RESIZINGS["linear, align_corners=True"],
    "nearest resizing": RESIZINGS["nearest neighbours (floor)"],
    "nearest resizing from the centres (nearest-exact)": RESIZINGS[
        "nearest-exact (half-pixel centres)"
    ],
}
