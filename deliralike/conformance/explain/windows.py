"""Conventions of convolution, pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
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


def _before(formula: Formula, nn: Any, given: Arguments, how: tuple[Any, ...]) -> Any:
    """A formula of what is padded by a rule, without padding of its own."""
    return formula(nn, {**given, "x": _padded(nn, given["x"], *how), **_BARE})


def _counted(formula: Formula, nn: Any, given: Arguments, pads: Pads) -> Any:
    """An average of the elements that there are, without those of the padding."""
    ones = {**given, "x": given["x"] * 0.0 + 1.0}
    share = _before(formula, nn, ones, (pads,))
    return _before(formula, nn, given, (pads,)) / share


_BARE = {"padding": 0, "ceil_mode": False}


def _same(given: Arguments, window: Sequence[Sequence[int]]) -> Pads:
    """TensorFlow's SAME padding: the least that gives ``ceil(size / stride)`` windows.

    An odd element goes after.
    """
    pads = []
    for n, k, s, d in zip(given["x"].shape[2:], *window, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        pads.append((total // 2, total - total // 2))
    return tuple(pads)


def _paddings(given: Arguments, pads: Pads, window: Sequence[Sequence[int]]) -> dict[str, Pads]:
    """Other padding by its words."""
    same = _same(given, window)
    found = {f"asymmetric SAME {same}": same}
    found |= {str(other): ((other, other),) * len(pads) for other in range(4)}
    found |= {f"{moved} (windows shifted)": moved for moved in _moved(pads)}
    found |= {f"asymmetric SAME, odd element before {_swapped(same)}": _swapped(same)}
    return {words: other for words, other in found.items() if other != pads}


def _swapped(pads: Pads) -> Pads:
    return tuple((after, before) for before, after in pads)


def _moved(pads: Pads) -> Iterator[Pads]:
    """Padding with an element moved from one side to the other, along all axes or along one."""
    every = tuple(range(len(pads)))
    for axes, by in product([every, *((axis,) for axis in every)], (1, -1)):
        yield tuple(
            (before - by * (i in axes), after + by * (i in axes))
            for i, (before, after) in enumerate(pads)
        )


# Convolution
# -----------------------------------------------------------------------------


def convolution(given: Arguments) -> list[Convention]:
    """Paddings, kernels, groups, dilations and strides of other frameworks or mistakes."""
    weight = given["weight"]
    n, kernel = weight.ndim - 2, weight.shape[2:]
    stride, dilation = (geometry.per_axis(given[name], n, name) for name in ("stride", "dilation"))
    pads = geometry.conv_padding(given["padding"], kernel, stride, dilation)
    others = _paddings(given, pads, (kernel, stride, dilation))
    wider = tuple(before + (k - 1) // 2 for (before, _), k in zip(pads, kernel, strict=True))
    modes = {f"{mode} padding": (pads, mode) for mode in _MODES if any(map(any, pads))}
    values: dict[Any, Any] = {value: (pads, "constant", value) for value in (1.0, -1.0)}
    found = [
        Convention("padding", {words: (other,) for words, other in others.items()}, _before, pads),
        array("kernel", "weight", _kernels(weight.shape)),
        Convention("padding mode", modes, _before, "zeros"),
        setting("stride", (1, 2, 3, 4), usual=stride[0]),
        rules("dilation", {2: {"dilation": 2, "padding": wider}}, usual=dilation[0]),
        setting("dilation", (1, 2, 3), usual=dilation[0]),
        Convention("padding value", values, _before, 0.0),
    ]
    return found + _groups(given)


def _groups(given: Arguments) -> list[Convention]:
    """Groups of channels."""
    groups, channels, out = given["groups"], given["x"].shape[1], given["weight"].shape[0]

    def regrouped(formula: Formula, nn: Any, given: Arguments, count: int) -> Any:
        """Convolution in other groups, with the first input channels of each kernel."""
        weight = given["weight"][:, : channels // count]
        return formula(nn, {**given, "weight": weight, "groups": count})

    counts = [count for count in range(1, channels + 1) if channels % count == out % count == 0]
    able = [count for count in counts if channels // count <= given["weight"].shape[1]]
    order = np.arange(channels).reshape(-1, groups).T.ravel()
    dealt = {"dealt to the groups in turn": _picked(order)} if groups > 1 else {}
    return [Convention("groups", able, regrouped, groups), array("input channels", "x", dealt)]


def _picked(order: np.ndarray) -> Change:
    return lambda nn, x: nn.select(x, nn.constant(order, like=x), 1)


def _kernels(shape: tuple[int, ...]) -> dict[str, Change]:
    """The kernels reversed or with their axes exchanged."""
    spatial = tuple(range(2, len(shape)))
    found: dict[str, Change] = {"flipped": partial(_flipped, axes=spatial)}
    if len(spatial) == 2 and shape[2] == shape[3]:
        found["transposed (height and width exchanged)"] = partial(_exchanged, 2, 3)
        words = "rotated by a quarter turn (transposed, then flipped along axis {})"
        turned = {words.format(axis): partial(_exchanged, 2, 3, (axis,)) for axis in spatial}
        found |= turned
    if len(spatial) > 1:
        found |= {f"flipped along axis {axis}": partial(_flipped, axes=(axis,)) for axis in spatial}
    if shape[0] == shape[1]:
        words = "with input and output channels exchanged"
        found[words] = partial(_exchanged, 0, 1)
        found[f"flipped, {words}"] = partial(_exchanged, 0, 1, spatial)
    return found


def _flipped(nn: Any, weight: Any, axes: Sequence[int]) -> Any:
    for axis in axes:
        weight = nn.flip(weight, axis)
    return weight


def _exchanged(first: int, second: int, axes: Any, *rest: Any) -> Any:
    """Two axes exchanged, and the kernels then reversed along others, if any are given."""
    nn, weight = (axes, *rest) if len(rest) == 1 else rest
    return _flipped(nn, nn.transpose(weight, first, second), axes if len(rest) == 2 else ())


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

    kernels = _kernels(given["weight"].shape).items()
    shifts = [some for some in product((0, 1, -1), repeat=n) if any(some)]
    cropped = {f"{some} elements off (padding on the other side)": some for some in shifts}
    return [
        array(
            "transposed kernel",
            "weight",
            {words.replace("flipped", "not flipped", 1): change for words, change in kernels},
        ),
        Convention("output of the transposed convolution cropped", cropped, cut),
        setting("output_padding", (0, 1, 2), usual=extra[0]),
        setting("padding", (0, 1, 2), usual=padding[0]),
        setting("stride", (1, 2, 3), usual=stride[0]),
    ]


# Pooling
# -----------------------------------------------------------------------------


def _pool_paddings(given: Arguments) -> tuple[Pads, dict[str, Pads]]:
    """The padding of a pooling with what the rule for its last window adds, and others."""
    size = given["x"].shape[2:]
    settings = geometry.pool_settings(
        len(size), given["kernel_size"], given["stride"], given["padding"], given.get("dilation", 1)
    )
    kernel, stride, padding, dilation = settings
    rules_ = {
        ceil: tuple(map(geometry.pool_pads, size, *settings, [ceil] * len(size)))
        for ceil in (True, False)
    }
    usual, other = given["ceil_mode"], not given["ceil_mode"]
    window = (kernel, stride, dilation)
    found = {f"ceil_mode={other} (the rule for the last window)": rules_[other]}
    covered = tuple(map(_cover, size, kernel, stride, padding, dilation))
    found["cover_all: the last window may start in the padding (ceil rule)"] = covered
    found |= _paddings(given, rules_[usual], window)
    bare = map(_cover, size, kernel, stride, (0,) * len(size), dilation)
    return rules_[usual], {**found, "cover_all without padding (ceil rule)": tuple(bare)}


def _cover(n: int, k: int, s: int, p: int, d: int) -> tuple[int, int]:
    """Chainer's rule for one axis: every element is in some window."""
    reach = d * (k - 1) + 1
    count = (n + 2 * p - reach + s - 1) // s + 1
    return p, max(p, (count - 1) * s + reach - n - p)


def pooling(name: str, given: Arguments) -> list[Convention]:
    """Padding, rounding, divisors and window rules; `name` is that of the function."""
    is_average = name == "avg_pool"
    pads, others = _pool_paddings(given)
    empty = 0.0 if is_average else -np.inf
    wide = {words: (other, "constant", empty) for words, other in others.items()}
    ceil = given["ceil_mode"]
    of_average = {"average": (ceil, True), "average (padding excluded)": (ceil, False)}

    def exchanged(formula: Formula, nn: Any, given: Arguments, rest: tuple[Any, ...]) -> Any:
        function = nn.max_pool if is_average else nn.avg_pool
        own = (given[one] for one in ("kernel_size", "stride", "padding"))
        return function(given["x"], *own, *rest)

    def least(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
        return -formula(nn, {**given, "x": -given["x"]})

    ways = {"maximum": (1, ceil)} if is_average else of_average
    usual = "average" if is_average else "maximum"
    found = [
        Convention("padding", wide, _before, pads),
        Convention("pooling", ways, exchanged, usual),
        setting("kernel_size", range(1, 6)),
        setting("stride", range(1, 6)),
        rules("pooling", {"of one element alone (strided)": {"kernel_size": 1, "padding": 0}}),
    ]
    if is_average:
        return [*_averages(given, pads, others), *found]
    zeros = {f"{words}, padded with zeros": (other,) for words, other in others.items()}
    modes = {f"{mode} padding": (pads, mode) for mode in _MODES}
    return [
        Convention("max-pool padded with", {"zeros": (pads,)}, _before, "minus infinity"),
        *found,
        Convention("pooling", {"minimum": None}, least, "maximum"),
        Convention("padding", zeros, _before, pads),
        Convention("padding mode", modes, _before),
    ]


def _averages(given: Arguments, pads: Pads, others: Mapping[str, Pads]) -> list[Convention]:
    """What a sum of windows is divided by."""
    flag, words = given["count_include_pad"], ("excluding padding", "including padding")
    size = np.prod(geometry.per_axis(given["kernel_size"], len(pads), "kernel_size"))

    def total(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
        return _before(formula, nn, given, (pads,)) * float(size)

    usual = f"{words[flag]} (count_include_pad)"
    return [
        rules("average", {words[not flag]: {"count_include_pad": not flag}}, usual=usual),
        Convention("divisor", {"one (sum instead of average)": None}, total),
        Convention("divisor", {"the whole windows that hang over the end": (pads,)}, _before),
        Convention(
            "padding", {f"{words}, excluded": other for words, other in others.items()}, _counted
        ),
    ]


def adaptive(name: str, given: Arguments) -> list[Convention]:
    """Windows of adaptive pooling; `name` is that of the function."""
    size = given["x"].shape[2:]
    out = geometry.per_axis(given["output_size"], len(size), "output_size")
    stride = tuple(max(1, s // o) for s, o in zip(size, out, strict=True))
    kernel = tuple(s - (o - 1) * t for s, o, t in zip(size, out, stride, strict=True))
    is_average = name == "adaptive_avg_pool"
    other, fixed = ("max", "avg") if is_average else ("avg", "max")
    words = {"max": "maximum", "avg": "average"}

    def called(function: str, *settings: Any) -> Formula:
        return lambda nn, given: getattr(nn, function)(given["x"], *settings)

    def total(nn: Any, given: Arguments) -> Any:
        return nn.adaptive_avg_pool(given["x"], out) * float(np.prod(size) / np.prod(out))

    ways = {
        words[other]: called(f"adaptive_{other}_pool", out),
        "sum": total,
        "windows of one size": called(f"{fixed}_pool", kernel, stride),
        "linear interpolation": called("interpolate", out, None, "linear"),
        "nearest neighbours": called("interpolate", out),
    }
    return [instead("pooling", ways, usual=words[fixed])]


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
        out = tuple(geometry.resized(*pair) for pair in zip(size, scales, strict=True))  # type: ignore[arg-type]
    corners = f"linear, align_corners={given['align_corners']}"
    usual = _FLOOR if given["mode"] == "nearest" else corners

    def resized(formula: Formula, nn: Any, given: Arguments, value: Any) -> Any:
        matrix, by = value
        x = given["x"]
        for axis, (old, new, scale) in enumerate(zip(size, out, by, strict=True), start=2):
            x = nn.resample(x, matrix(old, new, scale), axis)
        return x

    ways = {words: (matrix, tuple(scales)) for words, matrix in RESIZINGS.items()}
    return [Convention("resizing", ways, resized, usual)]
