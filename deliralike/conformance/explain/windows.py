"""Conventions of convolution, pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    array,
    instead,
    rules,
    setting,
)
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads

Change = Callable[[Any, Any], Any]
_MODES = ("reflect", "replicate", "circular")


# Where windows lie
# -----------------------------------------------------------------------------


def _padded(nn: Any, x: Any, pads: Pads, mode: str = "constant", value: float = 0.0) -> Any:
    """The input with padding on the axes after the second, by a rule."""
    if mode != "circular":
        return nn.pad(x, pads, mode, value)
    for axis, (before, after) in enumerate(pads, start=2):
        index = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
        x = nn.select(x, nn.constant(index, like=x), axis)
    return x


def _same(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Pads:
    """TensorFlow's SAME padding: the least that gives ``ceil(size / stride)`` windows.

    An odd element goes after.
    """
    pads = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


def _moved(pads: Pads) -> Iterator[tuple[str, Pads]]:
    """Padding with elements moved from one side to the other, along all axes or along one."""
    count = len(pads)
    along = {"": range(count)} | {f" along axis {i + 2}": (i,) for i in range(count) if count > 1}
    for words, axes in along.items():
        for shift in (1, -1):
            shifts = [shift * (i in axes) for i in range(count)]
            pairs = zip(pads, shifts, strict=True)
            moved = tuple((before - by, after + by) for (before, after), by in pairs)
            yield f"windows shifted{words}: {moved}", moved


def _paddings(given: Arguments, pads: Pads, window: Sequence[Sequence[int]]) -> dict[str, Pads]:
    """Other padding by its words."""
    n = len(pads)
    same = _same(given["x"].shape[2:], *window)
    swapped = tuple((after, before) for before, after in same)
    found = {
        f"asymmetric SAME {same}": same,
        f"asymmetric SAME, odd element before {swapped}": swapped,
    }
    found |= {"0 (no padding)": ((0, 0),) * n}
    found |= {str(other): ((other, other),) * n for other in (1, 2, 3)}
    found |= dict(_moved(pads))
    return {words: other for words, other in found.items() if other != pads}


# Convolution
# -----------------------------------------------------------------------------


def convolution(given: Arguments) -> list[Convention]:
    """Paddings, kernels, groups, dilations and strides of other frameworks or mistakes."""
    weight = given["weight"]
    n, kernel = weight.ndim - 2, weight.shape[2:]
    stride, dilation = (geometry.per_axis(given[name], n, name) for name in ("stride", "dilation"))
    pads = geometry.conv_padding(given["padding"], kernel, stride, dilation)

    def padded(formula: Formula, nn: Any, given: Arguments, value: tuple[Pads, str, float]) -> Any:
        return formula(nn, {**given, "x": _padded(nn, given["x"], *value), "padding": 0})

    def dilated(other: int) -> dict[str, Any]:
        reach = [(other - d) * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        wider = [before + by // 2 for (before, _), by in zip(pads, reach, strict=True)]
        return {"dilation": other, "padding": tuple(wider)}

    paddings = _paddings(given, pads, (kernel, stride, dilation))
    zeros = {words: (other, "constant", 0.0) for words, other in paddings.items()}
    modes = {mode: (pads, mode, 0.0) for mode in _MODES} if any(map(any, pads)) else {}
    values = {str(value): (pads, "constant", value) for value in (1.0, -1.0)}
    wider = {other: dilated(other) for other in (1, 2, 3)}
    found = [
        Convention("padding", zeros, padded, str(pads)),
        array("kernel", "weight", _kernels(weight.shape)),
        Convention(
            "padding mode", {f"{mode} padding": how for mode, how in modes.items()}, padded, "zeros"
        ),
        setting("stride", (1, 2, 3, 4), usual=stride[0]),
        rules("dilation", wider, usual=dilation[0]),
        setting("dilation", (1, 2, 3), usual=dilation[0]),
        Convention("padding value", values, padded, "0"),
    ]
    return found + _grouped(given)


def _kernels(shape: tuple[int, ...], places: tuple[int, int] = (0, 1)) -> dict[str, Change]:
    """The kernels reversed or with their axes exchanged."""
    spatial = tuple(range(2, len(shape)))
    found = {"flipped": partial(_flipped, axes=spatial)}
    if len(spatial) == 2 and shape[2] == shape[3]:
        found["transposed (height and width exchanged)"] = _exchanged(2, 3)
        for axis in spatial:
            words = f"rotated by a quarter turn (transposed, then flipped along axis {axis})"
            found[words] = partial(_turned, axis=axis)
    if len(spatial) > 1:
        found |= {f"flipped along axis {axis}": partial(_flipped, axes=(axis,)) for axis in spatial}
    if shape[0] == shape[1]:
        found["with input and output channels exchanged"] = _exchanged(0, 1)
        found["flipped, with input and output channels exchanged"] = lambda nn, weight: _flipped(
            nn, nn.transpose(weight, 0, 1), spatial
        )
    return found


def _flipped(nn: Any, weight: Any, axes: Sequence[int]) -> Any:
    for axis in axes:
        weight = nn.flip(weight, axis)
    return weight


def _turned(nn: Any, weight: Any, axis: int) -> Any:
    return nn.flip(nn.transpose(weight, 2, 3), axis)


def _exchanged(first: int, second: int) -> Change:
    return lambda nn, weight: nn.transpose(weight, first, second)


def _grouped(given: Arguments) -> list[Convention]:
    """Groups of channels."""
    groups, channels, out = given["groups"], given["x"].shape[1], given["weight"].shape[0]
    width = given["weight"].shape[1]

    def regrouped(formula: Formula, nn: Any, given: Arguments, count: int) -> Any:
        """Convolution in other groups, with the first input channels of each kernel."""
        weight = given["weight"][:, : channels // count]
        return formula(nn, {**given, "weight": weight, "groups": count})

    counts = [count for count in range(1, channels + 1) if channels % count == 0]
    able = [count for count in counts if out % count == 0 and channels // count <= width]
    found = [Convention("groups", able, regrouped, groups)]
    if groups > 1:
        dealt = {"dealt to the groups in turn": _shuffled(channels, channels // groups)}
        minor = {
            "in group-minor order": _shuffled(out, groups),
            "in the order of groups": _shuffled(out, out // groups),
        }
        orders = (
            {
                f"in the order {order}": _blocks(channels, order)
                for order in permutations(range(groups))
            }
            if groups <= 4
            else {}
        )
        found += [
            array("input channels", "x", dealt),
            Convention("output channels", minor, _after),
            array("groups of input channels", "x", orders),
        ]
    return found


def _after(formula: Formula, nn: Any, given: Arguments, change: Change) -> Any:
    return change(nn, formula(nn, given))


def _picked(order: np.ndarray) -> Change:
    return lambda nn, x: nn.select(x, nn.constant(order, like=x), 1)


def _shuffled(count: int, groups: int) -> Change:
    """Channels regrouped from ``(groups, n)`` to ``(n, groups)`` order."""
    return _picked(np.arange(count).reshape(groups, -1).T.ravel())


def _blocks(count: int, order: Sequence[int]) -> Change:
    parts = np.split(np.arange(count), len(order))
    return _picked(np.concatenate([parts[i] for i in order]))


def transposed_convolution(given: Arguments) -> list[Convention]:
    """Kernels not flipped, outputs cut elsewhere."""
    n = given["weight"].ndim - 2
    names = ("padding", "output_padding", "stride")
    padding, extra, stride = (geometry.per_axis(given[name], n, name) for name in names)

    def cut(formula: Formula, nn: Any, given: Arguments, shifts: Sequence[int]) -> Any:
        whole = formula(nn, {**given, "padding": 0, "bias": None})
        pairs = zip(padding, shifts, strict=True)
        y = nn.pad(whole, [(-p + by, -p - by) for p, by in pairs])
        bias = given.get("bias")
        return y if bias is None else y + nn.reshape(bias, (1, -1) + (1,) * n)

    kernels = _kernels(given["weight"].shape)
    kernels = {words.replace("flipped", "not flipped", 1): how for words, how in kernels.items()}
    shifts = [some for some in product((0, 1, -1), repeat=n) if any(some)]
    cropped = {f"{some} elements off (padding on the other side)": some for some in shifts}
    strided = {other: {"stride": other, "output_padding": 0} for other in (1, 2, 3)}
    return [
        array("transposed kernel", "weight", kernels),
        Convention("output of the transposed convolution cropped", cropped, cut),
        setting("output_padding", (0, 1, 2), usual=extra[0]),
        setting("padding", (0, 1, 2), usual=padding[0]),
        rules("stride", strided, usual=stride[0]),
    ]


# Pooling
# -----------------------------------------------------------------------------


def _pool(given: Arguments) -> tuple[Any, ...]:
    """The kernel, stride and dilation per axis, and the padding with what the ceil rule adds."""
    n = len(given["x"].shape) - 2
    dilation = given.get("dilation", 1)
    settings = geometry.pool_settings(
        n, given["kernel_size"], given["stride"], given["padding"], dilation
    )
    return settings[0], settings[1], settings[3], _pool_pads(given, given["ceil_mode"])


def _pool_pads(given: Arguments, ceil_mode: bool) -> Pads:
    n = len(given["x"].shape) - 2
    settings = geometry.pool_settings(
        n, given["kernel_size"], given["stride"], given["padding"], given.get("dilation", 1)
    )
    return tuple(map(geometry.pool_pads, given["x"].shape[2:], *settings, [ceil_mode] * n))


def _cover_all(given: Arguments, padding: Sequence[int]) -> Pads:
    """Chainer's rule: every element is in some window, one that starts in the padding too."""
    kernel, stride, dilation, _ = _pool(given)
    pads = []
    for n, k, s, p, d in zip(given["x"].shape[2:], kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = (n + 2 * p - reach + s - 1) // s + 1
        pads.append((p, max(p, (count - 1) * s + reach - n - p)))
    return tuple(pads)


def _pool_paddings(given: Arguments) -> dict[str, Pads]:
    kernel, stride, dilation, pads = _pool(given)
    n = len(kernel)
    padding = geometry.per_axis(given["padding"], n, "padding")
    other = not given["ceil_mode"]
    found = {
        f"ceil_mode={other} (the rule for the last window)": _pool_pads(given, other),
        "cover_all: the last window may start in the padding (ceil rule)": _cover_all(
            given, padding
        ),
    }
    found |= _paddings(given, pads, (kernel, stride, dilation))
    found["cover_all without padding (ceil rule)"] = _cover_all(given, (0,) * n)
    return {words: other for words, other in found.items() if other != pads}


def _maximum(nn: Any, given: Arguments) -> Any:
    """The maximum of windows by their own numbers; negative padding crops."""
    crop = tuple((min(before, 0), min(after, 0)) for before, after in given["pads"])
    wide = tuple((max(before, 0), max(after, 0)) for before, after in given["pads"])
    x = nn.pad(given["x"], crop) if any(map(any, crop)) else given["x"]
    return nn.max_windows(x, given["kernel"], given["step"], wide, given["dilated"])


def _mean(nn: Any, given: Arguments) -> Any:
    """The mean of windows, divided by the size of the kernel or by how many elements they hold."""
    none = ((0, 0),) * len(given["kernel"])
    total = nn.sum_windows(nn.pad(given["x"], given["pads"]), given["kernel"], given["step"], none)
    if given["divisor"] == "counted":
        ones = nn.pad(given["x"] * 0.0 + 1.0, given["pads"])
        return total / nn.sum_windows(ones, given["kernel"], given["step"], none)
    return total * (1.0 / math.prod(given["kernel"]) if given["divisor"] == "kernel" else 1.0)


def _windows(given: Arguments) -> dict[str, Any]:
    kernel, stride, dilation, pads = _pool(given)
    return {"kernel": kernel, "step": stride, "dilated": dilation, "pads": pads}


def _sizes(given: Arguments, pads: Pads) -> list[Convention]:
    """Other kernels, about the same centre or not, and other strides."""
    kernel, stride, _, _ = _pool(given)
    n = len(kernel)

    def centred(count: int) -> dict[str, Any]:
        more = [count - k for k in kernel]
        pairs = zip(pads, more, strict=True)
        wider = tuple((before + by // 2, after + by - by // 2) for (before, after), by in pairs)
        return {"kernel": (count,) * n, "pads": wider}

    counts = range(1, 6)
    return [
        rules("kernel_size", {c: {"kernel": (c,) * n} for c in counts}, usual=kernel[0]),
        rules("kernel_size", {c: centred(c) for c in counts}, usual=kernel[0]),
        rules("stride", {c: {"step": (c,) * n} for c in counts}, usual=stride[0]),
    ]


def _with_windows(own: Formula, window: Formula, usual: Arguments) -> Formula:
    """The block's own function, or the windows by themselves where a convention changes them."""

    def formula(nn: Any, given: Arguments) -> Any:
        changed = any(name in given for name in (*usual, "pads"))
        return window(nn, {**usual, **given}) if changed else own(nn, given)

    return formula


def max_pool(own: Formula, given: Arguments) -> tuple[Formula, list[Convention]]:
    """Padding, rounding and window rules of the maximum."""
    usual = _windows(given)
    pads = usual["pads"]

    def filled(formula: Formula, nn: Any, given: Arguments, value: tuple[Pads, str]) -> Any:
        none = ((0, 0),) * len(pads)
        return formula(nn, {**given, "x": _padded(nn, given["x"], *value), "pads": none})

    def average(counted: bool) -> Formula:
        names = ("x", "kernel_size", "stride", "padding", "ceil_mode")
        return lambda nn, given: nn.avg_pool(*(given[name] for name in names), counted)

    def least(nn: Any, given: Arguments) -> Any:
        return -own(nn, {**given, "x": -given["x"]})

    paddings = _pool_paddings(given)
    zeros = {
        f"{words}, padded with zeros": (other, "constant") for words, other in paddings.items()
    }
    modes = {f"{mode} padding": (pads, mode) for mode in _MODES}
    averages = {"average": average(False), "average (padding counted)": average(True)}
    found = [
        Convention("max-pool padded with", {"zeros": (pads, "constant")}, filled, "minus infinity"),
        rules(
            "padding",
            {words: {"pads": other} for words, other in paddings.items()},
            usual=str(pads),
        ),
        instead("pooling", {**averages, "minimum": least}, usual="maximum"),
        *_sizes(given, pads),
        Convention("padding", zeros, filled, str(pads)),
        Convention("padding mode", modes, filled),
    ]
    return _with_windows(own, _maximum, usual), found


def avg_pool(own: Formula, given: Arguments) -> tuple[Formula, list[Convention]]:
    """Divisors, rounding and window rules of the average."""
    flag, words = given["count_include_pad"], ("excluding padding", "including padding")
    usual = {**_windows(given), "divisor": "kernel"}

    def maximum(nn: Any, given: Arguments) -> Any:
        names = ("x", "kernel_size", "stride", "padding")
        return nn.max_pool(*(given[name] for name in names), 1, given["ceil_mode"])

    paddings = _pool_paddings(given)
    ways = {words: {"pads": other} for words, other in paddings.items()}
    counted = {
        f"{words}, padding excluded": {"pads": other, "divisor": "counted"}
        for words, other in paddings.items()
    }
    divisors = {"is one (sum instead of average)": {"divisor": "one"}}
    whole = {"counts whole windows, what hangs over the end included": {"divisor": "kernel"}}
    found = [
        rules(
            "average",
            {words[not flag]: {"count_include_pad": not flag}},
            usual=f"{words[flag]} (count_include_pad)",
        ),
        rules("padding", ways, usual=str(usual["pads"])),
        rules("padding", counted, usual=str(usual["pads"])),
        rules("divisor", divisors | whole),
        instead("pooling", {"maximum": maximum}, usual="average"),
        *_sizes(given, usual["pads"]),
    ]
    return _with_windows(own, _mean, usual), found


def adaptive(name: str, given: Arguments) -> list[Convention]:
    """Windows of adaptive pooling; `name` is that of the function."""
    size = given["x"].shape[2:]
    out = geometry.per_axis(given["output_size"], len(size), "output_size")
    stride = tuple(max(1, s // o) for s, o in zip(size, out, strict=True))
    kernel = tuple(s - (o - 1) * t for s, o, t in zip(size, out, stride, strict=True))
    is_average = "avg" in name
    other, fixed = (
        ("adaptive_max_pool", "avg_pool") if is_average else ("adaptive_avg_pool", "max_pool")
    )

    def called(function: str, *settings: Any) -> Formula:
        return lambda nn, given: getattr(nn, function)(given["x"], *settings)

    def total(nn: Any, given: Arguments) -> Any:
        return nn.adaptive_avg_pool(given["x"], out) * (math.prod(size) / math.prod(out))

    words = ("maximum", "average") if is_average else ("average", "maximum")
    ways = {words[0]: called(other, out), "sum": total}
    windows = {
        "of one size instead of adaptive ones": called(fixed, kernel, stride),
        "of one size, none of them overlapping": called(fixed, stride, stride),
    }
    resized = {
        f"{mode} interpolation": lambda nn, given, mode=mode: nn.interpolate(
            given["x"], size=out, mode=mode
        )
        for mode in ("linear", "nearest")
    }
    return [
        instead("pooling", ways, usual=words[1]),
        instead("windows", windows),
        instead("pooling", resized, usual=words[1]),
    ]


# Resizing: every convention is one matrix for each axis
# -----------------------------------------------------------------------------


def _positions(size: int, out: int, how: str, scale: float | None) -> np.ndarray:
    """Where each output element lies in the input."""
    index, step = np.arange(out, dtype=np.float64), size / out if scale is None else 1.0 / scale
    if how == "corners":
        return index * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (index + 0.5) * step - 0.5 if how == "half" else index * step


def _nearest(
    size: int, out: int, scale: float | None, how: str, rounding: Any, shift: float
) -> np.ndarray:
    index = rounding(_positions(size, out, how, scale) + shift).astype(int)
    return np.eye(size)[np.clip(index, 0, size - 1)]


def _linear(size: int, out: int, scale: float | None, how: str, wide: bool = False) -> np.ndarray:
    """Linear interpolation; `wide` averages over what an output element covers (antialiasing)."""
    centre, step = _positions(size, out, how, scale), size / out if scale is None else 1.0 / scale
    width = max(step, 1.0) if wide else 1.0
    centre = centre if wide else np.clip(centre, 0, size - 1)
    weight = np.maximum(0.0, 1.0 - np.abs(np.arange(size)[None, :] - centre[:, None]) / width)
    return weight / weight.sum(axis=1, keepdims=True)


def _cubic(size: int, out: int, scale: float | None, how: str, a: float) -> np.ndarray:
    centre = _positions(size, out, how, scale)
    first = np.floor(centre).astype(int)
    matrix = np.zeros((out, size))
    for offset in range(-1, 3):
        d = np.abs(centre - (first + offset))
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        place = (np.arange(out), np.clip(first + offset, 0, size - 1))
        np.add.at(matrix, place, np.where(d <= 1, near, far))
    return matrix


def _area(size: int, out: int, scale: float | None) -> np.ndarray:
    """Means over what an output element covers, parts of elements too."""
    edges = np.arange(out + 1) * size / out
    low, high = edges[:-1, None], edges[1:, None]
    left = np.arange(size)[None, :]
    shared = np.clip(np.minimum(high, left + 1) - np.maximum(low, left), 0.0, None)
    return shared / shared.sum(axis=1, keepdims=True)


_FLOOR = "nearest neighbours (floor)"
# Each a function of two sizes and the factor between them, if that was given.
RESIZINGS: Mapping[str, Callable[[int, int, float | None], np.ndarray]] = {
    _FLOOR: partial(_nearest, how="plain", rounding=np.floor, shift=1e-9),
    "linear, align_corners=False": partial(_linear, how="half"),
    "linear, align_corners=True": partial(_linear, how="corners"),
    "nearest-exact (half-pixel centres)": partial(
        _nearest, how="half", rounding=np.floor, shift=0.5 + 1e-9
    ),
    "linear with antialiasing": partial(_linear, how="half", wide=True),
    "linear without half-pixel centres (asymmetric)": partial(_linear, how="plain"),
    "nearest neighbours, align_corners": partial(
        _nearest, how="corners", rounding=np.rint, shift=0.0
    ),
    "nearest neighbours, rounded": partial(_nearest, how="plain", rounding=np.floor, shift=0.5),
    "bicubic (a=-0.75)": partial(_cubic, how="half", a=-0.75),
    "bicubic (a=-0.5)": partial(_cubic, how="half", a=-0.5),
    "bicubic (a=-0.75), align_corners": partial(_cubic, how="corners", a=-0.75),
    "area by whole steps": _area,
    "area (adaptive averages)": lambda n, o, s: geometry.adaptive_matrix(n, o),
}


def interpolate(given: Arguments) -> list[Convention]:
    """Positions and kernels of resizing, those of a given size and those of a given factor."""
    size, factors = given["x"].shape[2:], given["scale_factor"]
    n = len(size)
    scales: Iterable[float | None] = (None,) * n
    if factors is None:
        out = geometry.per_axis(given["size"], n, "size")
    else:
        scales = (factors,) * n if isinstance(factors, int | float) else tuple(factors)
        out = tuple(map(geometry.resized, size, scales))
    corners = f"linear, align_corners={given['align_corners']}"
    usual = _FLOOR if given["mode"] == "nearest" else corners

    def resized(formula: Formula, nn: Any, given: Arguments, value: Any) -> Any:
        matrix, by = value
        x = given["x"]
        for axis, (old, new, scale) in enumerate(zip(size, out, by, strict=True), start=2):
            x = nn.resample(x, matrix(old, new, scale), axis)
        return x

    ways = {words: (matrix, tuple(scales)) for words, matrix in RESIZINGS.items()}
    found = [Convention("resizing", ways, resized, usual)]
    if factors is not None:
        sizes = {
            f"{words}, positions by the sizes instead of the factor": (matrix, (None,) * n)
            for words, matrix in RESIZINGS.items()
        }
        found.append(Convention("resizing", sizes, resized, usual))
    return found
