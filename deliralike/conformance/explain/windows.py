"""Conventions of convolution, pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import instead
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads

Known = Iterator[
    tuple
]  # a cause, a function of `nn` and the arguments, and where to look for a number if it has one


def padded(nn: Any, x: Any, pads: Pads, mode: str = "zeros") -> Any:
    """The input with padding on the axes after the second, by a rule."""
    if mode == "circular":
        for axis, (before, after) in enumerate(pads, start=2):
            index = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
            x = nn.select(x, nn.constant(index, like=x), axis)
        return x
    return nn.pad(x, pads, "constant" if mode == "zeros" else mode)


def same_pads(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    lower: bool = False,
) -> Pads:
    """Return TensorFlow's SAME padding: the least that gives ``ceil(size / stride)`` windows.

    An odd element goes after, or before if `lower`.
    """
    pads = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        less, more = total // 2, total - total // 2
        pads.append((more, less) if lower else (less, more))
    return tuple(pads)


def flipped(nn: Any, weight: Any, axes: Sequence[int]) -> Any:
    """The kernels reversed along some axes."""
    for axis in axes:
        weight = nn.flip(weight, axis)
    return weight


def shuffled(nn: Any, x: Any, groups: int, axis: int = 1) -> Any:
    """Channels regrouped from ``(groups, n)`` to ``(n, groups)`` order."""
    order = np.arange(x.shape[axis]).reshape(groups, -1).T.ravel()
    return nn.select(x, nn.constant(order, like=x), axis)


def convolution(b: Bound) -> Known:
    """Yield paddings, kernels, groups, dilations and strides of other frameworks or mistakes."""
    size, kernel = b["x"].shape[2:], b["weight"].shape[2:]
    n = len(kernel)
    stride, dilation = (geometry.per_axis(b[name], n, name) for name in ("stride", "dilation"))
    pads = geometry.conv_padding(b["padding"], kernel, stride, dilation)

    def with_pads(nn: Any, b: Bound, pads: Pads, mode: str = "zeros", **changes: Any) -> Any:
        return nn.conv(**{**b, "x": padded(nn, b["x"], pads, mode), "padding": 0, **changes})

    def with_weight(nn: Any, b: Bound, change: Callable[[Any, Any], Any]) -> Any:
        return nn.conv(**{**b, "weight": change(nn, b["weight"])})

    for lower in (False, True):
        word = "before" if lower else "after"
        same = same_pads(size, kernel, stride, dilation, lower)
        yield (
            f"asymmetric SAME padding {same} (odd element {word}) instead of {pads}",
            partial(with_pads, pads=same),
        )
    yield "kernel flipped", partial(with_weight, change=partial(flipped_all, n=n))
    if n == 2 and kernel[0] == kernel[1]:
        for axis in (2, 3):
            turned = (
                f"kernel rotated by a quarter turn (transposed, then flipped along axis {axis})"
            )
            yield turned, partial(with_weight, change=partial(_turned, axis=axis))
    for axis in range(2, n + 2) if n > 1 else ():
        yield (
            f"kernel flipped along axis {axis}",
            partial(with_weight, change=partial(flipped, axes=(axis,))),
        )
    if n == 2 and kernel[0] == kernel[1]:
        yield (
            "kernel transposed (height and width exchanged)",
            partial(with_weight, change=_swapped(2, 3)),
        )
    if b["weight"].shape[0] == b["weight"].shape[1]:
        yield (
            "kernel with input and output channels exchanged",
            partial(with_weight, change=_swapped(0, 1)),
        )
    for shift in (1, -1, 2, -2):
        moved = tuple((before - shift, after + shift) for before, after in pads)
        yield (
            f"windows shifted by {shift} (padding {moved} instead of {pads})",
            partial(with_pads, pads=moved),
        )
    for axis, shift in product(range(n), (1, -1)) if n > 1 else ():
        moved = tuple(
            (a - shift * (i == axis), z + shift * (i == axis)) for i, (a, z) in enumerate(pads)
        )
        yield (
            f"windows shifted along axis {axis + 2} (padding {moved} instead of {pads})",
            partial(with_pads, pads=moved),
        )
    for mode in ("reflect", "replicate", "circular"):
        if any(map(any, pads)):
            yield f"{mode} padding instead of zeros", partial(with_pads, pads=pads, mode=mode)
    for other in {1, 2, 3, *dilation} - {dilation[0]}:
        reach = [(other - d) * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        wider = tuple((a + r // 2, z + r - r // 2) for (a, z), r in zip(pads, reach, strict=True))
        cause = instead("dilation", other, dilation[0])
        yield cause, partial(with_pads, pads=wider, dilation=other)
        yield cause, partial(with_pads, pads=pads, dilation=other)
    for other in (1, 2, 3, 4):
        if (other,) * n != stride:
            yield instead("stride", other, stride[0]), partial(with_pads, pads=pads, stride=other)
    for other in range(4):
        if ((other, other),) * n != pads:
            around = ((other, other),) * n
            yield instead("padding", other, b["padding"]), partial(with_pads, pads=around)
    yield "no padding", partial(with_pads, pads=((0, 0),) * n)
    for value, word in ((1.0, "ones"), (-1.0, "minus one")):
        yield f"padding of {word} instead of zeros", partial(_filled, pads=pads, value=value)
    yield (
        "padding of {} instead of zeros",
        lambda nn, b, value: _filled(nn, b, pads, value),
        (0.5, -0.5),
    )
    yield from _groups_of(b)
    if (groups := b["groups"]) > 1:
        yield (
            "input channels dealt to the groups in turn",
            lambda nn, b: nn.conv(**{**b, "x": shuffled(nn, b["x"], b["x"].shape[1] // groups)}),
        )
        yield (
            "output channels in group-minor order",
            lambda nn, b: shuffled(nn, nn.conv(**b), groups),
        )
        yield (
            "output channels of groups interleaved the other way",
            lambda nn, b: shuffled(nn, nn.conv(**b), b["weight"].shape[0] // groups),
        )
    for other in [
        g for g in range(1, b["x"].shape[1] + 1) if g != groups and b["x"].shape[1] % g == 0
    ]:
        if b["weight"].shape[0] % other == 0 and b["x"].shape[1] // other <= b["weight"].shape[1]:
            yield f"groups={other} instead of {groups}", partial(_regrouped, groups=other)


def _filled(nn: Any, b: Bound, pads: Pads, value: float) -> Any:
    return nn.conv(**{**b, "x": nn.pad(b["x"], pads, "constant", value), "padding": 0})


def _groups_of(b: Bound) -> Known:
    """Groups that take each other's channels or kernels."""
    groups, out = b["groups"], b["weight"].shape[0]
    for order in permutations(range(groups)) if 1 < groups <= 4 else ():
        channels = np.concatenate([np.split(np.arange(b["x"].shape[1]), groups)[g] for g in order])
        if order != tuple(range(groups)):
            yield (
                f"groups of input channels in the order {order}",
                partial(_reindexed, name="x", axis=1, index=channels),
            )
    for group in range(groups) if groups > 1 else ():
        rows = np.tile(np.split(np.arange(out), groups)[group], groups)
        yield (
            f"kernels of group {group} for all groups",
            partial(_reindexed, name="weight", axis=0, index=rows),
        )


def _reindexed(nn: Any, b: Bound, name: str, axis: int, index: np.ndarray) -> Any:
    return nn.conv(**{**b, name: nn.select(b[name], nn.constant(index, like=b[name]), axis)})


def flipped_all(nn: Any, weight: Any, n: int) -> Any:
    """The kernels reversed along all their axes."""
    return flipped(nn, weight, range(2, n + 2))


def _turned(nn: Any, weight: Any, axis: int) -> Any:
    return nn.flip(nn.transpose(weight, 2, 3), axis)


def _swapped(first: int, second: int) -> Callable[[Any, Any], Any]:
    return lambda nn, weight: nn.transpose(weight, first, second)


def _regrouped(nn: Any, b: Bound, groups: int) -> Any:
    """Convolution in other groups, with the first input channels of each kernel."""
    share = b["x"].shape[1] // groups
    return nn.conv(**{**b, "weight": b["weight"][:, :share], "groups": groups})


def transposed_convolution(b: Bound) -> Known:
    """Kernels not flipped, outputs cut elsewhere."""
    n = len(b["weight"].shape) - 2
    padding, extra, stride = (
        geometry.per_axis(b[name], n, name) for name in ("padding", "output_padding", "stride")
    )

    def with_weight(nn: Any, b: Bound, change: Callable[[Any, Any], Any]) -> Any:
        return nn.conv_transpose(**{**b, "weight": change(nn, b["weight"])})

    def cut(nn: Any, b: Bound, shifts: Sequence[int]) -> Any:
        whole = nn.conv_transpose(**{**b, "padding": 0, "bias": None})
        y = nn.pad(
            whole, [(-p + shift, -p - shift) for p, shift in zip(padding, shifts, strict=True)]
        )
        return y if b["bias"] is None else y + nn.reshape(b["bias"], (1, -1) + (1,) * n)

    def resized(nn: Any, b: Bound, mode: str, flip: bool) -> Any:
        weight = nn.transpose(b["weight"], 0, 1)
        x = nn.interpolate(b["x"], size=size, mode=mode)
        weight = flipped_all(nn, weight, n) if flip else weight
        kernel = b["weight"].shape[2:]
        x = nn.pad(x, [((k - 1) // 2, k // 2) for k in kernel])
        return nn.conv(x, weight, b["bias"])

    size = tuple(
        map(
            geometry.conv_transposed_size,
            b["x"].shape[2:],
            b["weight"].shape[2:],
            stride,
            padding,
            geometry.per_axis(b["dilation"], n, "dilation"),
        )
    )
    size = tuple(least + more for least, more in zip(size, extra, strict=True))
    yield "transposed kernel not flipped", partial(with_weight, change=partial(flipped_all, n=n))
    for axis in range(2, n + 2) if n > 1 else ():
        yield (
            f"transposed kernel flipped along axis {axis}",
            partial(with_weight, change=partial(flipped, axes=(axis,))),
        )
    if b["weight"].shape[0] == b["weight"].shape[1]:
        yield (
            "transposed kernel with input and output channels exchanged",
            partial(with_weight, change=_swapped(0, 1)),
        )
        yield (
            "transposed kernel not flipped, input and output channels exchanged",
            partial(with_weight, change=lambda nn, w: flipped_all(nn, nn.transpose(w, 0, 1), n)),
        )
    if n == 2:
        yield (
            "transposed kernel with height and width exchanged",
            partial(with_weight, change=_swapped(2, 3)),
        )
    for shifts in product((0, 1, -1, 2, -2), repeat=n):
        if any(shifts):
            yield (
                f"output of the transposed convolution cropped {shifts} elements off (padding on "
                "the other side)",
                partial(cut, shifts=shifts),
            )
    for mode, flip in product(("nearest", "linear"), (False, True)) if b["groups"] == 1 else ():
        word = ", kernel flipped" if flip else ""
        yield (
            f"resized ({mode}) and convolved instead{word}",
            partial(resized, mode=mode, flip=flip),
        )
    for other in (0, 1, 2):
        if (other,) * n != extra:
            yield (
                instead("output_padding", other, extra[0]),
                lambda nn, b, e=other: nn.conv_transpose(**{**b, "output_padding": e}),
            )
        if (other,) * n != padding:
            yield (
                instead("padding", other, padding[0]),
                lambda nn, b, p=other: nn.conv_transpose(**{**b, "padding": p}),
            )
    for other in (1, 2, 3):
        if (other,) * n != stride:
            yield (
                instead("stride", other, stride[0]),
                lambda nn, b, s=other: nn.conv_transpose(**{**b, "stride": s, "output_padding": 0}),
            )


def _pooling(b: Bound) -> tuple[tuple[int, ...], ...]:
    n = len(b["x"].shape) - 2
    return geometry.pool_settings(
        n, b["kernel_size"], b["stride"], b["padding"], b.get("dilation", 1)
    )


def _pool_pads(b: Bound, ceil_mode: bool | None = None) -> Pads:
    ceil = b["ceil_mode"] if ceil_mode is None else ceil_mode
    settings = _pooling(b)
    return tuple(map(geometry.pool_pads, b["x"].shape[2:], *settings, [ceil] * len(settings[0])))


def _cover_all(b: Bound) -> Pads:
    """Chainer's rule: every element is in some window, one that starts in the padding too."""
    pads = []
    for size, k, s, p, d in zip(b["x"].shape[2:], *_pooling(b), strict=True):
        reach = d * (k - 1) + 1
        count = (size + 2 * p - reach + s - 1) // s + 1
        pads.append((p, max(p, (count - 1) * s + reach - size - p)))
    return tuple(pads)


def _other_pads(b: Bound) -> Iterator[tuple[str, Pads]]:
    """Where windows may lie instead."""
    kernel, stride, _, dilation = _pooling(b)
    pads, size = _pool_pads(b), b["x"].shape[2:]
    other = not b["ceil_mode"]
    yield (
        f"ceil_mode={other} instead of {not other} (the rule for the last window)",
        _pool_pads(b, other),
    )
    yield "cover_all: the last window may start in the padding (ceil rule)", _cover_all(b)
    for lower in (False, True):
        same = same_pads(size, kernel, stride, dilation, lower)
        yield f"asymmetric SAME padding {same} instead of {pads}", same
    for shift in (1, -1):
        moved = tuple((a - shift, z + shift) for a, z in pads)
        yield f"windows shifted by {shift} (padding {moved} instead of {pads})", moved
    unpadded = _cover_all({**b, "padding": 0})
    yield "cover_all without padding (windows shifted)", unpadded


def max_pool(b: Bound) -> Known:
    """Padding, rounding and window rules of the maximum."""
    kernel, stride, padding, dilation = _pooling(b)
    pads = _pool_pads(b)

    def windows(
        nn: Any,
        b: Bound,
        pads: Pads,
        kernel: Any = kernel,
        stride: Any = stride,
        dilation: Any = dilation,
    ) -> Any:
        crop = tuple((min(a, 0), min(z, 0)) for a, z in pads)
        x = nn.pad(b["x"], crop) if any(map(any, crop)) else b["x"]
        return nn.max_windows(
            x, kernel, stride, tuple((max(a, 0), max(z, 0)) for a, z in pads), dilation
        )

    def filled(nn: Any, b: Bound, mode: str = "zeros", pads: Pads = pads) -> Any:
        x = padded(nn, b["x"], pads, mode)
        return nn.max_windows(x, kernel, stride, ((0, 0),) * len(kernel), dilation)

    yield "max-pool padded with zeros instead of minus infinity", filled
    for cause, other in _other_pads(b):
        yield cause, partial(windows, pads=other)
        yield f"{cause}, padded with zeros", partial(filled, pads=other)
    for mode in ("reflect", "replicate", "circular"):
        yield f"{mode} padding of the maximum", partial(filled, mode=mode)
    yield (
        "average instead of maximum",
        lambda nn, b: nn.avg_pool(b["x"], kernel, stride, padding, b["ceil_mode"], False),
    )
    yield (
        "average instead of maximum (padding counted)",
        lambda nn, b: nn.avg_pool(b["x"], kernel, stride, padding, b["ceil_mode"], True),
    )
    yield "minimum instead of maximum", lambda nn, b: -windows(nn, {**b, "x": -b["x"]}, pads)
    for count in range(1, 6):
        if count != kernel[0]:
            wider = tuple(
                (a + (count - k) // 2, z + (count - k) - (count - k) // 2)
                for (a, z), k in zip(pads, kernel, strict=True)
            )
            yield (
                instead("kernel_size", count, kernel[0]),
                partial(windows, pads=wider, kernel=(count,) * len(kernel)),
            )
            yield (
                instead("kernel_size", count, kernel[0]),
                partial(windows, pads=pads, kernel=(count,) * len(kernel)),
            )
        if count != stride[0]:
            yield (
                instead("stride", count, stride[0]),
                partial(windows, pads=pads, stride=(count,) * len(kernel)),
            )
        if count != dilation[0]:
            yield (
                instead("dilation", count, dilation[0]),
                partial(windows, pads=pads, dilation=(count,) * len(kernel)),
            )
    yield "no padding", partial(windows, pads=((0, 0),) * len(kernel))
    yield from _other_maxima(b, pads, windows)
    yield (
        "mean of average and maximum pooling",
        lambda nn, b: (
            0.5 * (nn.avg_pool(b["x"], kernel, stride, padding, b["ceil_mode"]) + nn.max_pool(**b))
        ),
    )


def _other_maxima(b: Bound, pads: Pads, windows: Callable[..., Any]) -> Known:
    """What else a window may give than its largest element."""
    kernel, stride, _, _ = _pooling(b)

    def largest(nn: Any, b: Bound) -> Any:
        high, low = windows(nn, b, pads), -windows(nn, {**b, "x": -b["x"]}, pads)
        return nn.where(high + low > 0, high, low)

    def smooth(nn: Any, b: Bound) -> Any:
        return nn.log(nn.sum_windows(nn.exp(b["x"]), kernel, stride, pads))

    def mean_gradient(nn: Any, b: Bound) -> Any:
        high = windows(nn, b, pads)
        average = nn.sum_windows(b["x"], kernel, stride, pads) * (1.0 / np.prod(kernel))
        return nn.stop_gradient(high) + average - nn.stop_gradient(average)

    def every(nn: Any, b: Bound, offset: int) -> Any:
        x = b["x"]
        for axis, step in enumerate(stride, start=2):
            x = nn.select(x, nn.constant(np.arange(offset, x.shape[axis], step), like=x), axis)
        return x

    yield "absolutely largest element instead of the maximum", largest
    yield "smooth maximum: logarithm of the sum of exponentials", smooth
    yield (
        "smooth maximum: logarithm of the mean of exponentials",
        lambda nn, b: smooth(nn, b) - math.log(np.prod(kernel)),
    )
    yield "gradient of the average instead of the maximum's", mean_gradient
    for offset in (0, 1):
        yield (
            f"one element of each window (strided from {offset}) instead of the maximum",
            partial(every, offset=offset),
        )


def avg_pool(b: Bound) -> Known:
    """Divisors, rounding and window rules of the average."""
    kernel, stride, padding, _ = _pooling(b)
    ones, pads = (1,) * len(kernel), _pool_pads(b)

    def included(
        nn: Any,
        b: Bound,
        pads: Pads,
        kernel: Any = kernel,
        stride: Any = stride,
        share: bool = True,
    ) -> Any:
        x = nn.pad(b["x"], pads)
        return nn.sum_windows(x, kernel, stride, ((0, 0),) * len(kernel)) * (
            1.0 / np.prod(kernel) if share else 1.0
        )

    def excluded(nn: Any, b: Bound, pads: Pads) -> Any:
        counted = nn.sum_windows(
            nn.pad(b["x"] * 0.0 + 1.0, pads), kernel, stride, ((0, 0),) * len(kernel)
        )
        return included(nn, b, pads, share=False) / counted

    flag = b["count_include_pad"]
    words = ("excluding", "including")
    yield (
        f"average {words[not flag]} padding instead of {words[flag]} it",
        lambda nn, b: nn.avg_pool(**{**b, "count_include_pad": not flag}),
    )
    yield (
        "average over whole windows, what hangs over the end included",
        partial(included, pads=pads),
    )
    for cause, other in _other_pads(b):
        yield f"{cause}, padding included", partial(included, pads=other)
        yield f"{cause}, padding excluded", partial(excluded, pads=other)
    yield (
        "maximum instead of average",
        lambda nn, b: nn.max_pool(b["x"], kernel, stride, padding, 1, b["ceil_mode"]),
    )
    yield "sum instead of average", partial(included, pads=pads, share=False)
    for count in range(1, 6):
        if count != kernel[0]:
            wider = tuple(
                (a + (count - k) // 2, z + (count - k) - (count - k) // 2)
                for (a, z), k in zip(pads, kernel, strict=True)
            )
            yield (
                instead("kernel_size", count, kernel[0]),
                partial(included, pads=wider, kernel=(count,) * len(ones)),
            )
            yield (
                instead("kernel_size", count, kernel[0]),
                partial(included, pads=pads, kernel=(count,) * len(ones)),
            )
        if count != stride[0]:
            yield (
                instead("stride", count, stride[0]),
                partial(included, pads=pads, stride=(count,) * len(ones)),
            )
    yield "no padding", partial(included, pads=((0, 0),) * len(ones))
    for mode in ("reflect", "replicate", "circular"):
        yield (
            f"{mode} padding of the average",
            lambda nn, b, mode=mode: nn.avg_pool(padded(nn, b["x"], pads, mode), kernel, stride, 0),
        )


def adaptive(b: Bound, average: bool) -> Known:
    """Windows of adaptive pooling."""
    size = b["x"].shape[2:]
    out = geometry.per_axis(b["output_size"], len(size), "output_size")
    stride = tuple(max(1, s // o) for s, o in zip(size, out, strict=True))
    kernel = tuple(s - (o - 1) * t for s, o, t in zip(size, out, stride, strict=True))
    words = ("maximum instead of average", "average instead of maximum")
    yield (
        words[not average],
        lambda nn, b: (nn.adaptive_max_pool if average else nn.adaptive_avg_pool)(**b),
    )
    fixed = "windows of one size instead of adaptive ones"
    yield fixed, lambda nn, b: (nn.avg_pool if average else nn.max_pool)(b["x"], kernel, stride)
    yield (
        "windows of one size, none of them overlapping",
        lambda nn, b: (nn.avg_pool if average else nn.max_pool)(b["x"], stride, stride),
    )
    yield (
        "linear interpolation instead of pooling",
        lambda nn, b: nn.interpolate(b["x"], size=out, mode="linear"),
    )
    yield (
        "nearest neighbours instead of pooling",
        lambda nn, b: nn.interpolate(b["x"], size=out, mode="nearest"),
    )
    yield (
        "sum instead of average",
        lambda nn, b: nn.adaptive_avg_pool(**b) * float(np.prod(size) / np.prod(out)),
    )
    yield (
        "sum and maximum of the windows together",
        lambda nn, b: nn.adaptive_avg_pool(**b) + nn.adaptive_max_pool(**b),
    )
    yield (
        "mean of average and maximum",
        lambda nn, b: 0.5 * (nn.adaptive_avg_pool(**b) + nn.adaptive_max_pool(**b)),
    )


def adaptive_avg_pool(b: Bound) -> Known:
    """Those of the average."""
    return adaptive(b, average=True)


def adaptive_max_pool(b: Bound) -> Known:
    """Those of the maximum."""
    return adaptive(b, average=False)


# Resizing: every convention is one matrix for each axis
# -----------------------------------------------------------------------------


def _nearest(
    size: int, out: int, scale: float | None, how: str, rounding: Any, shift: float
) -> np.ndarray:
    index = rounding(_positions(size, out, how, scale) + shift).astype(int)
    return np.eye(size)[np.clip(index, 0, size - 1)]


def _area(size: int, out: int) -> np.ndarray:
    """What each element of the output covers of the input, parts of elements too."""
    edges = np.arange(out + 1) * size / out
    low, high = edges[:-1, None], edges[1:, None]
    left = np.arange(size)[None, :]
    shared = np.clip(np.minimum(high, left + 1) - np.maximum(low, left), 0.0, None)
    return shared / shared.sum(axis=1, keepdims=True)


def _positions(size: int, out: int, how: str, scale: float | None) -> np.ndarray:
    """Where each output element lies in the input."""
    index, step = np.arange(out, dtype=np.float64), size / out if scale is None else 1.0 / scale
    if how == "corners":
        return index * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (index + 0.5) * step - 0.5 if how == "half" else index * step


def _linear(
    size: int, out: int, how: str, scale: float | None, antialias: bool = False
) -> np.ndarray:
    centre, step = _positions(size, out, how, scale), size / out if scale is None else 1.0 / scale
    width = max(step, 1.0) if antialias else 1.0
    if not antialias:
        centre = np.clip(centre, 0, size - 1)
    weight = np.maximum(0.0, 1.0 - np.abs(np.arange(size)[None, :] - centre[:, None]) / width)
    return weight / weight.sum(axis=1, keepdims=True)


def _cubic(size: int, out: int, how: str, scale: float | None, a: float) -> np.ndarray:
    centre = _positions(size, out, how, scale)
    first = np.floor(centre).astype(int)
    matrix = np.zeros((out, size))
    for offset in range(-1, 3):
        d = np.abs(centre - (first + offset))
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        np.add.at(
            matrix,
            (np.arange(out), np.clip(first + offset, 0, size - 1)),
            np.where(d <= 1, near, far),
        )
    return matrix


_RESIZINGS: dict[str, Callable[..., np.ndarray]] = {
    "nearest neighbours (floor)": lambda n, o, s: _nearest(n, o, s, "plain", np.floor, 1e-9),
    "linear, align_corners=False": lambda n, o, s: _linear(n, o, "half", s),
    "linear, align_corners=True": lambda n, o, s: _linear(n, o, "corners", s),
    "nearest-exact (half-pixel centres)": lambda n, o, s: _nearest(
        n, o, s, "half", np.floor, 0.5 + 1e-9
    ),
    "linear with antialiasing": lambda n, o, s: _linear(n, o, "half", s, antialias=True),
    "nearest neighbours, align_corners": lambda n, o, s: _nearest(n, o, s, "corners", np.rint, 0.0),
    "nearest neighbours, align_corners, rounding down": lambda n, o, s: _nearest(
        n, o, s, "corners", np.floor, 1e-9
    ),
    "nearest neighbours, half-pixel ties down": lambda n, o, s: _nearest(
        n, o, s, "half", np.ceil, -0.5
    ),
    "nearest neighbours, rounded": lambda n, o, s: _nearest(n, o, s, "plain", np.floor, 0.5),
    "nearest neighbours, rounded up": lambda n, o, s: _nearest(n, o, s, "plain", np.ceil, -1e-9),
    "linear without half-pixel centres (asymmetric)": lambda n, o, s: _linear(n, o, "plain", s),
    "bicubic (a=-0.75)": lambda n, o, s: _cubic(n, o, "half", s, -0.75),
    "bicubic (a=-0.5)": lambda n, o, s: _cubic(n, o, "half", s, -0.5),
    "bicubic (a=-0.75), align_corners": lambda n, o, s: _cubic(n, o, "corners", s, -0.75),
    "bicubic (a=-0.5), align_corners": lambda n, o, s: _cubic(n, o, "corners", s, -0.5),
    "tiled: the input over and over": lambda n, o, s: np.eye(n)[np.arange(o) % n],
    "area by whole steps": lambda n, o, s: _area(n, o),
    "area (adaptive averages)": lambda n, o, s: geometry.adaptive_matrix(n, o),
}


def interpolate(b: Bound) -> Known:
    """Positions and kernels of resizing, those of a given size and those of a given factor."""
    size = b["x"].shape[2:]
    n = len(size)
    factors = b["scale_factor"]
    if factors is None:
        out = geometry.per_axis(b["size"], n, "size")
        scales: tuple[float | None, ...] = (None,) * n
    else:
        factors = (factors,) * n if isinstance(factors, int | float) else tuple(factors)
        out, scales = tuple(map(geometry.resized, size, factors)), factors
    linear = b["mode"] != "nearest"
    usual = (
        f"linear, align_corners={b['align_corners']}" if linear else "nearest neighbours (floor)"
    )

    def resized(nn: Any, b: Bound, matrix: Callable[..., np.ndarray], by_size: bool = False) -> Any:
        x = b["x"]
        for axis, (old, new, scale) in enumerate(zip(size, out, scales, strict=True), start=2):
            x = nn.resample(x, matrix(old, new, None if by_size else scale), axis)
        return x

    for name, matrix in _RESIZINGS.items():
        if name != usual:
            yield f"{name} instead of {usual}", partial(resized, matrix=matrix)
        if factors is not None:
            yield (
                f"{name}, positions by the sizes instead of the factor",
                partial(resized, matrix=matrix, by_size=True),
            )
