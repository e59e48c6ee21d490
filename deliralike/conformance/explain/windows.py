"""Conventions of convolution, pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    array,
    changing,
    instead,
    rules,
    setting,
    values,
)
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads

_MODES = ("reflect", "replicate", "circular")


# Padding by itself, before windows that have none
# -----------------------------------------------------------------------------


def _padded(nn: Any, x: Any, pads: Pads, mode: str = "constant", value: float = 0.0) -> Any:
    """The input with padding on the axes after the second, by a rule."""
    if mode != "circular":
        return nn.pad(x, pads, mode, value)
    for axis, (before, after) in enumerate(pads, start=2):
        index = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
        x = nn.select(x, nn.constant(index, like=x), axis)
    return x


def _before(nn: Any, given: Arguments, how: tuple[Any, ...]) -> Arguments:
    """What is padded by a rule, and no padding of the formula's own."""
    return {"x": _padded(nn, given["x"], *how), "padding": 0, "ceil_mode": False}


_PADDED = changing(_before)


def _paddings(given: Arguments, pads: Pads, window: Sequence[Sequence[int]]) -> dict[str, Pads]:
    """Other padding by its words; SAME is TensorFlow's."""
    same = tuple(map(_same, given["x"].shape[2:], *window))
    found = {f"asymmetric SAME {same}": same}
    for other in range(4):
        found[str(other)] = ((other, other),) * len(pads)
    for by in (-1, 1):
        moved = tuple((first + by, last - by) for first, last in pads)
        found[f"{moved} (windows shifted)"] = moved
    return {words: other for words, other in found.items() if other != pads}


def _same(n: int, k: int, s: int, d: int) -> tuple[int, int]:
    """The least padding that gives ``ceil(size / stride)`` windows; an odd element goes after."""
    total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
    return total // 2, total - total // 2


# Convolution
# -----------------------------------------------------------------------------


def convolution(given: Arguments) -> list[Convention]:
    """Paddings, kernels, dilations, strides and orders of channels."""
    weight = given["weight"]
    n, kernel = weight.ndim - 2, weight.shape[2:]
    stride, dilation = (geometry.per_axis(given[name], n, name) for name in ("stride", "dilation"))
    pads = geometry.conv_padding(given["padding"], kernel, stride, dilation)
    others = _paddings(given, pads, (kernel, stride, dilation))
    wider = tuple(before + (k - 1) // 2 for (before, _), k in zip(pads, kernel, strict=True))
    padded = {words: (other,) for words, other in others.items()}
    modes = {}
    if np.any(pads):
        modes = {f"{mode} padding": (pads, mode) for mode in _MODES}
    return [
        Convention("padding", padded, _PADDED, pads, joins="windows"),
        array("kernel", "weight", {"flipped": changes.flipped(*range(2, weight.ndim))}),
        Convention("padding mode", modes, _PADDED, "zeros"),
        setting("stride", (1, 2, 3, 4), usual=stride[0], joins="windows"),
        rules("dilation", {2: {"dilation": 2, "padding": wider}}, usual=dilation[0]),
        setting("dilation", (1, 2, 3), usual=dilation[0], joins="windows"),
    ]


def transposed_convolution(given: Arguments) -> list[Convention]:
    """Kernels not flipped, outputs cut elsewhere."""
    n = given["weight"].ndim - 2
    padding = geometry.per_axis(given["padding"], n, "padding")

    def cut(formula: Formula, nn: Any, given: Arguments, shift: int) -> Any:
        whole = formula(nn, {**given, "padding": 0, "bias": None})
        y = nn.pad(whole, [(shift - p, -p - shift) for p in padding])
        bias = given.get("bias")
        return y if bias is None else y + nn.reshape(bias, (1, -1) + (1,) * n)

    shifts = {f"{(by,) * n} elements off (padding on the other side)": by for by in (1, -1)}
    found = [
        array("transposed kernel", "weight", {"not flipped": changes.flipped(*range(2, n + 2))}),
        Convention("output of the transposed convolution cropped", shifts, cut),
    ]
    for name in ("output_padding", "padding", "stride"):
        usual = geometry.per_axis(given[name], n, name)[0]
        found.append(setting(name, (0, 1, 2, 3)[name == "stride" :], usual=usual))
    return found


# Pooling
# -----------------------------------------------------------------------------


def _pool_paddings(given: Arguments) -> tuple[Pads, dict[str, Pads]]:
    """The padding of a pooling with what the rule for its last window adds, and others."""
    size, ceil = given["x"].shape[2:], given["ceil_mode"]
    kernel, stride, padding = (given[name] for name in ("kernel_size", "stride", "padding"))
    dilation = given.get("dilation", 1)
    settings = geometry.pool_settings(len(size), kernel, stride, padding, dilation)
    kernel, stride, _, dilation = settings

    def pads(ceil: bool) -> Pads:
        return tuple(map(geometry.pool_pads, size, *settings, [ceil] * len(size)))

    usual, cover = pads(ceil), tuple(map(_cover, size, *settings))
    found = {
        f"ceil_mode={not ceil} (the rule for the last window)": pads(not ceil),
        "cover_all: the last window may start in the padding (ceil rule)": cover,
    }
    return usual, found | _paddings(given, usual, (kernel, stride, dilation))


def _cover(n: int, k: int, s: int, p: int, d: int) -> tuple[int, int]:
    """Chainer's rule for one axis: every element is in some window."""
    reach = d * (k - 1) + 1
    count = (n + 2 * p - reach + s - 1) // s + 1
    return p, max(p, (count - 1) * s + reach - n - p)


def pooling(name: str, given: Arguments) -> list[Convention]:
    """Padding, rounding, divisors and window rules; `name` is that of the function."""
    pads, others = _pool_paddings(given)
    is_average = name == "avg_pool"
    empty = 0.0 if is_average else -np.inf
    wide = {words: (other, "constant", empty) for words, other in others.items()}
    own = [
        Convention("padding", wide, _PADDED, pads),
        setting("kernel_size", range(1, 6)),
        setting("stride", range(1, 6)),
    ]
    zeros = Convention("max-pool padded with", {"zeros": (pads,)}, _PADDED, "minus infinity")
    if not is_average:
        average = {"average": _other_pool("avg_pool", given["ceil_mode"], True)}
        average["average (padding excluded)"] = _other_pool("avg_pool", given["ceil_mode"], False)
        return [zeros, instead("pooling", average, usual="maximum"), *own]
    flag, words = given["count_include_pad"], ("excluding padding", "including padding")
    usual = f"{words[flag]} (count_include_pad)"
    return [
        values("count_include_pad", {words[not flag]: not flag}, "average", usual=usual),
        Convention("divisor", {"the whole windows that hang over the end": (pads,)}, _PADDED),
        instead("pooling", {"maximum": _other_pool("max_pool")}, usual="average"),
        *own,
    ]


def _other_pool(function: str, *settings: Any) -> Formula:
    """A pooling with the same windows, and settings of its own."""

    def pooled(nn: Any, given: Arguments) -> Any:
        windows = (given[one] for one in ("x", "kernel_size", "stride", "padding"))
        return getattr(nn, function)(*windows, *settings)

    return pooled


def adaptive(name: str, given: Arguments) -> list[Convention]:
    """The other pooling, or sums; `name` is that of the function."""
    count = float(np.prod(given["x"].shape[2:]) / np.prod(given["output_size"] or 1))
    other = {"adaptive_avg_pool": "adaptive_max_pool"}.get(name, "adaptive_avg_pool")
    usual, words = ("average", "maximum")[:: 1 if other == "adaptive_max_pool" else -1]
    ways: dict[str, Formula] = {
        words: lambda nn, given: getattr(nn, other)(given["x"], given["output_size"]),
        "sum": lambda nn, given: nn.adaptive_avg_pool(given["x"], given["output_size"]) * count,
    }
    return [instead("pooling", ways, usual=usual)]


# Resizing: every convention is one matrix for each axis
# -----------------------------------------------------------------------------


def _positions(size: int, out: int, how: str, step: float) -> np.ndarray:
    """Where each output element lies in the input; it covers `step` of that."""
    index = np.arange(out, dtype=np.float64)
    if how == "corners":
        return index * ((size - 1) / max(out - 1, 1))
    return (index + 0.5) * step - 0.5 if how == "half" else index * step


def _nearest(size: int, out: int, step: float, how: str, shift: float) -> np.ndarray:
    index = np.floor(_positions(size, out, how, step) + shift).astype(int)
    return np.eye(size)[np.clip(index, 0, size - 1)]


def _linear(size: int, out: int, step: float, how: str, wide: bool = False) -> np.ndarray:
    """Linear interpolation; `wide` averages over what an output element covers (antialiasing)."""
    centre, width = _positions(size, out, how, step), max(step, 1.0)
    if not wide:
        centre, width = np.clip(centre, 0, size - 1), 1.0
    weight = np.maximum(0.0, 1.0 - np.abs(np.arange(size)[None, :] - centre[:, None]) / width)
    return weight / weight.sum(axis=1, keepdims=True)


_FLOOR = "nearest neighbours (floor)"
# Each a function of two sizes, and of how much of the input an output element covers.
RESIZINGS: Mapping[str, Callable[[int, int, float], np.ndarray]] = {
    _FLOOR: partial(_nearest, how="plain", shift=1e-9),
    "linear, align_corners=False": partial(_linear, how="half"),
    "linear, align_corners=True": partial(_linear, how="corners"),
    "nearest-exact (half-pixel centres)": partial(_nearest, how="half", shift=0.5 + 1e-9),
    "linear with antialiasing": partial(_linear, how="half", wide=True),
    "linear without half-pixel centres (asymmetric)": partial(_linear, how="plain"),
}


def interpolate(given: Arguments) -> list[Convention]:
    """Positions and kernels of resizing, those of a given size and those of a given factor."""
    size, factors = given["x"].shape[2:], given["scale_factor"]
    if factors is None:
        out = geometry.per_axis(given["size"], len(size), "size")
        steps = tuple(old / new for old, new in zip(size, out, strict=True))
    else:
        scales = np.broadcast_to(factors, len(size)).tolist()
        out, steps = tuple(map(geometry.resized, size, scales)), tuple(1.0 / one for one in scales)
    usual = _FLOOR
    if given["mode"] != "nearest":
        usual = f"linear, align_corners={bool(given['align_corners'])}"

    def resized(formula: Formula, nn: Any, given: Arguments, matrix: Any) -> Any:
        x = given["x"]
        for axis, way in enumerate(map(matrix, size, out, steps), start=2):
            x = nn.resample(x, way, axis)
        return x

    return [Convention("resizing", RESIZINGS, resized, usual)]
