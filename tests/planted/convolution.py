"""Mutants of convolution, pooling and resizing: paddings, kernels, windows, positions of pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings

Change = Callable[[Any, Any], Any]  # from `nn` and an array to an array
Pads = Sequence[tuple[int, int]]


def _same(nn: Any, x: Any) -> Any:
    return x


def _flipped(*dims: int) -> Change:
    def flip(nn, x):
        for dim in dims:
            x = nn.flip(x, dim)
        return x

    return flip


# Convolution
# -----------------------------------------------------------------------------


def _convolution(
    path: str = "conv",
    x: Change = _same,
    weight: Change = _same,
    bias: Change = _same,
    y: Change = _same,
    **settings: Any,
) -> Plant:
    """A convolution with another input, kernel, bias, output or setting."""

    def forward(self, value):
        nn = self.nn
        chosen = {
            name: settings.get(name, getattr(self, name))
            for name in ("stride", "padding", "dilation", "groups")
        }
        product = nn.conv(x(nn, value), weight(nn, self.weight * 1.0), None, **chosen)
        return y(nn, product + nn.reshape(bias(nn, self.bias * 1.0), (1, -1, 1, 1)))

    return with_methods(path, forward=forward)


def _padded(pads: Pads, mode: str = "constant", value: float = 0.0) -> dict[str, Any]:
    """Padding by hand, in the place of the layer's own."""
    return {"x": lambda nn, x: nn.pad(x, pads, mode, value), "padding": 0}


def _circular(nn: Any, x: Any) -> Any:
    for dim in (2, 3):
        last = x[:, :, -1:] if dim == 2 else x[..., -1:]
        first = x[:, :, :1] if dim == 2 else x[..., :1]
        x = nn.concatenate([last, x, first], dim=dim)
    return x


def _transposed(nn: Any, w: Any) -> Any:
    """Rows and columns of each kernel exchanged."""
    return nn.permute(w, (0, 1, 3, 2))


def _next_channel(dim: int) -> Change:
    """Channels moved on by one."""
    return lambda nn, x: nn.roll(x, 1, dim)


def _reordered(order: Sequence[int], dim: int) -> Change:
    return lambda nn, x: nn.select(x, nn.constant(np.array(order), like=x), dim)


def _by_norm(nn: Any, w: Any) -> Any:
    """Kernels standardised (as in weight standardisation)."""
    mean = nn.mean(w, (1, 2, 3), keepdim=True)
    return (w - mean) / nn.sqrt(nn.var(w, (1, 2, 3), keepdim=True, correction=0) + 1e-5)


def _conv(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"convolution: {name}", "convolution", plant, ("conv",), cause)


def _grouped(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"grouped convolution: {name}", "convolution", plant, ("grouped",), cause)


_CONVOLUTION = [
    _conv(
        "SAME padding, none before",
        _convolution(**_padded([(0, 1), (0, 1)])),
        "SAME",
        "asymmetric",
        "pad",
    ),
    _conv("all padding before", _convolution(**_padded([(2, 0), (2, 0)])), "asymmetric", "pad"),
    _conv(
        "SAME padding of rows alone",
        _convolution(**_padded([(0, 1), (1, 1)])),
        "SAME",
        "asymmetric",
        "pad",
    ),
    _conv("padding reflects", _convolution(**_padded([(1, 1)] * 2, "reflect")), "reflect"),
    _conv(
        "padding repeats the edge",
        _convolution(**_padded([(1, 1)] * 2, "replicate")),
        "replicate",
        "edge",
    ),
    _conv("padding wraps around", _convolution(x=_circular, padding=0), "circular", "wrap"),
    _conv("padding of ones", _convolution(**_padded([(1, 1)] * 2, value=1.0)), "pad", "ones"),
    _conv("kernel flipped", _convolution(weight=_flipped(2, 3)), "flip"),
    _conv("rows of the kernel flipped", _convolution(weight=_flipped(2)), "flip"),
    _conv("columns of the kernel flipped", _convolution(weight=_flipped(3)), "flip"),
    _conv("kernel transposed", _convolution(weight=_transposed), "transpos"),
    _conv(
        "kernel rotated by a quarter",
        _convolution(weight=lambda nn, w: nn.flip(_transposed(nn, w), 2)),
        "rotat",
    ),
    _conv("input channels reversed", _convolution(x=_flipped(1)), "channel"),
    _conv("output channels moved on by one", _convolution(y=_next_channel(1)), "channel"),
    _conv("dilation 2 with padding 2", _convolution(dilation=2, padding=2), "dilation"),
    _conv("no bias", _convolution(bias=lambda nn, b: b * 0.0), "bias"),
    _conv("bias added twice", _convolution(bias=lambda nn, b: b * 2.0), "bias"),
    _conv("bias subtracted", _convolution(bias=lambda nn, b: -b), "bias", "sign"),
    _conv("kernels standardised", _convolution(weight=_by_norm), "standardis"),
    _conv(
        "input standardised",
        _convolution(x=lambda nn, x: x / nn.sqrt(nn.var(x, (0, 2, 3), keepdim=True, correction=0))),
        "input",
    ),
    _conv(
        "no gradient of the input", _convolution(x=lambda nn, x: nn.stop_gradient(x)), "gradient"
    ),
    _conv(
        "no gradient of the kernel",
        _convolution(weight=lambda nn, w: nn.stop_gradient(w)),
        "gradient",
    ),
    _conv(
        "no gradient of the bias", _convolution(bias=lambda nn, b: nn.stop_gradient(b)), "gradient"
    ),
    _conv(
        "output times a power of two",
        _convolution(y=lambda nn, y: y * 2.0),
        "scale",
        "factor",
        "times",
    ),
    _grouped(
        "input channels in the order of groups",
        _convolution("grouped", x=_reordered((0, 2, 1, 3), 1)),
        "group",
        "channel",
    ),
    _grouped(
        "output channels in the order of groups",
        _convolution("grouped", y=_reordered((0, 3, 1, 4, 2, 5), 1)),
        "group",
        "channel",
    ),
    _grouped(
        "groups exchanged",
        _convolution("grouped", x=_reordered((2, 3, 0, 1), 1)),
        "group",
        "channel",
    ),
    _grouped(
        "padding of the wrong axis", _convolution("grouped", **_padded([(2, 0), (0, 0)])), "pad"
    ),
]

# Transposed convolution
# -----------------------------------------------------------------------------


def _deconvolution(weight: Change = _same, bias: Change = _same, y: Change = _same) -> Plant:
    def forward(self, x):
        nn = self.nn
        product = nn.conv_transpose(
            x, weight(nn, self.weight * 1.0), None, self.stride, self.padding, self.output_padding
        )
        return y(nn, product + nn.reshape(bias(nn, self.bias * 1.0), (1, -1, 1, 1)))

    return with_methods("up", forward=forward)


def _cropped(*cuts: tuple[int, int]) -> Plant:
    """Plant a whole output, (batch, 8, 11, 13), that is cropped on other sides.

    One row and one column are cut off.
    """

    def forward(self, x):
        y = self.nn.conv_transpose(x, self.weight, self.bias, self.stride)
        return self.nn.pad(y, [(-before, -after) for before, after in cuts])

    return with_methods("up", forward=forward)


def _up(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(
        f"transposed convolution: {name}", "convolution", plant, ("up",), cause, "resizing"
    )


_TRANSPOSED = [
    _up("kernel not flipped", _deconvolution(weight=_flipped(2, 3)), "flip"),
    _up("rows of the kernel flipped", _deconvolution(weight=_flipped(2)), "flip"),
    _up("kernel transposed", _deconvolution(weight=_transposed), "transpos"),
    _up(
        "input and output channels exchanged",
        _deconvolution(weight=lambda nn, w: nn.permute(w, (1, 0, 2, 3))),
        "channel",
        "exchanged",
        "transpos",
    ),
    _up(
        "both, as a convolution's kernel",
        _deconvolution(weight=lambda nn, w: nn.permute(_flipped(2, 3)(nn, w), (1, 0, 2, 3))),
        "channel",
        "flip",
    ),
    _up("padding cut off at the end", _cropped((0, 1), (0, 1)), "pad", "crop"),
    _up("padding of rows cut off at the end", _cropped((0, 1), (1, 0)), "pad", "crop"),
    _up("no bias", _deconvolution(bias=lambda nn, b: b * 0.0), "bias"),
    _up("output channels reversed", _deconvolution(y=_flipped(1)), "channel"),
]

# Pooling
# -----------------------------------------------------------------------------


def _max_pool(pads: Pads, value: float = -np.inf) -> Plant:
    """Maxima over windows of an input that was padded by hand."""

    def forward(self, x):
        padded = self.nn.pad(x, pads, "constant", value)
        return self.nn.max_windows(padded, (3, 3), (2, 2), ((0, 0), (0, 0)), (1, 1))

    return with_methods("pool", forward=forward)


def _averaged(self, x):
    return self.nn.avg_pool(x, *self.settings[:3])


def _strided(self, x):
    """Every second element, no maximum."""
    return x[:, :, ::2, ::2]


def _smallest(self, x):
    return -self.nn.max_pool(-x, *self.settings[:3])


def _summed(self, x):
    return self.nn.sum_windows(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


def _shifted_average(self, x):
    """The windows of SAME padding: none before."""
    return self.nn.sum_windows(x, (3, 3), (2, 2), ((0, 2), (0, 2))) * (1.0 / 9.0)


def _full_divisor(self, x):
    """A window that hangs over the end is divided by its full size."""
    height, width = x.shape[2] % 2, x.shape[3] % 2
    return self.nn.sum_windows(x, (2, 2), (2, 2), ((0, height), (0, width))) * 0.25


def _pool(
    name: str, plant: Plant, *cause: str, place: str = "pool", fixture: str = "convolutional"
) -> Mistake:
    return Mistake(f"pooling: {name}", "pooling", plant, (place,), cause, fixture)


def _reduced(reduce: Callable[[Any, Any], Any]) -> Plant:
    return with_methods("", pooled=lambda self, x: reduce(self.nn, x))


_POOLING = [
    _pool("maximum padded with zeros", _max_pool([(1, 1), (1, 1)], 0.0), "zero", "pad"),
    _pool(
        "maximum of windows that start at the first row",
        _max_pool([(0, 1), (1, 1)]),
        "ceil",
        "cover",
        "window",
        "pad",
    ),
    _pool(
        "average in the place of the maximum", with_methods("pool", forward=_averaged), "average"
    ),
    _pool("every second element", with_methods("pool", forward=_strided), "strid", "kernel_size=1"),
    _pool("minimum", with_methods("pool", forward=_smallest), "minim"),
    _pool(
        "ceil rule of the maximum",
        with_settings("max", ceil_mode=True),
        "ceil",
        place="max",
        fixture="pooling",
    ),
    _pool(
        "average excludes padding",
        with_settings("average", count_include_pad=False),
        "count_include_pad",
        "padding",
        place="average",
        fixture="pooling",
    ),
    _pool(
        "ceil rule of the average",
        with_settings(
            "average", ceil_mode=True, padding=0, settings=((3, 3), (2, 2), (0, 0), (1, 1))
        ),
        "ceil",
        "pad",
        place="average",
        fixture="pooling",
    ),
    _pool(
        "sum in the place of the average",
        with_methods("average", forward=_summed),
        "sum",
        place="average",
        fixture="pooling",
    ),
    _pool(
        "average of windows that start at the first element",
        with_methods("average", forward=_shifted_average),
        "pad",
        "window",
        "SAME",
        place="average",
        fixture="pooling",
    ),
    _pool(
        "floor rule of the average",
        with_settings("ceil", ceil_mode=False),
        "ceil",
        "floor",
        place="ceil",
        fixture="pooling",
    ),
    _pool(
        "full divisor of a clipped window",
        with_methods("ceil", forward=_full_divisor),
        "divisor",
        "divided",
        "whole windows",
        place="ceil",
        fixture="pooling",
    ),
    _pool(
        "sum over the picture",
        _reduced(lambda nn, x: nn.sum(x, (2, 3))),
        "sum",
        place="mean",
        fixture="pooling",
    ),
    _pool(
        "maximum over the picture",
        _reduced(lambda nn, x: nn.max_along(nn.max_along(x, 3), 2)),
        "max",
        place="mean",
        fixture="pooling",
    ),
    _pool(
        "last row of the picture alone",
        _reduced(lambda nn, x: nn.mean(x[:, :, -1:], (2, 3))),
        "row",
        place="mean",
        fixture="pooling",
    ),
]

# Resizing
# -----------------------------------------------------------------------------


def _resampled(matrix: Callable[[int, int], np.ndarray]) -> Callable[[Any, Any], Any]:
    """Resizing by an (out, in) matrix for each axis."""

    def forward(self, x):
        for dim, size in enumerate(self.size, start=2):
            x = self.nn.resample(x, matrix(x.shape[dim], size), dim)
        return x

    return forward


def _between(position: np.ndarray, size: int) -> np.ndarray:
    """Linear interpolation at positions."""
    position = np.clip(position, 0.0, size - 1.0)
    return np.maximum(0.0, 1.0 - np.abs(position[:, None] - np.arange(size)))


def _corner_of_origin(size: int, out: int) -> np.ndarray:
    """``i * in / out``, without half pixels: TensorFlow's of old."""
    return _between(np.arange(out) * (size / out), size)


def _antialiased(size: int, out: int) -> np.ndarray:
    """Triangles as wide as the step."""
    step = max(1.0, size / out)
    centre = (np.arange(out) + 0.5) * (size / out) - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(centre[:, None] - np.arange(size)) / step)
    return weights / weights.sum(1, keepdims=True)


def _area(size: int, out: int) -> np.ndarray:
    """The mean of the area that each element covers."""
    edges, cells = np.linspace(0.0, size, out + 1), np.arange(size)
    covered = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    covered = np.maximum(covered, 0.0)
    return covered / covered.sum(1, keepdims=True)


def _nearest(
    index: Callable[[np.ndarray, int, int], np.ndarray],
) -> Callable[[int, int], np.ndarray]:
    return lambda size, out: np.eye(size)[
        np.clip(index(np.arange(out), size, out), 0, size - 1).astype(int)
    ]


_EXACT = _nearest(lambda i, size, out: np.floor((i + 0.5) * size / out))
_ROUNDED = _nearest(lambda i, size, out: np.round(i * size / out))
_CORNERS = _nearest(lambda i, size, out: np.floor(i * (size - 1) / (out - 1) + 0.5))


def _by_matrix(path: str, matrix: Callable[[int, int], np.ndarray]) -> Plant:
    return with_methods(path, forward=_resampled(matrix))


def _depth_first(self, x):
    """Channels in the order (r, r, c): depth to space."""
    batch, channels, height, width = x.shape
    r = self.upscale_factor
    split = self.nn.reshape(x, (batch, r, r, channels // (r * r), height, width))
    return self.nn.reshape(
        self.nn.permute(split, (0, 3, 4, 1, 5, 2)), (batch, -1, height * r, width * r)
    )


def _shuffled_sideways(self, x):
    """Rows and columns within each square exchanged."""
    batch, channels, height, width = x.shape
    r = self.upscale_factor
    split = self.nn.reshape(x, (batch, channels // (r * r), r, r, height, width))
    return self.nn.reshape(
        self.nn.permute(split, (0, 1, 4, 3, 5, 2)), (batch, -1, height * r, width * r)
    )


def _resize(name: str, path: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"resizing: {name}", "resizing", plant, (path,), cause, "resizing")


_RESIZING = [
    _resize(
        "corners aligned", "smooth", with_settings("smooth", align_corners=True), "align_corners"
    ),
    _resize("nearest for linear", "smooth", with_settings("smooth", mode="nearest"), "nearest"),
    _resize(
        "linear without half pixels",
        "smooth",
        _by_matrix("smooth", _corner_of_origin),
        "half",
        "asymmetric",
        "pixel",
    ),
    _resize(
        "rows and columns flipped",
        "smooth",
        _by_matrix("smooth", lambda n, m: _between((np.arange(m)[::-1] + 0.5) * n / m - 0.5, n)),
        "flip",
        "revers",
    ),
    _resize(
        "corners aligned when shrinking",
        "small",
        with_settings("small", align_corners=True),
        "align_corners",
    ),
    _resize("antialiased when shrinking", "small", _by_matrix("small", _antialiased), "antialias"),
    _resize("mean over areas when shrinking", "small", _by_matrix("small", _area), "area"),
    _resize("nearest when shrinking", "small", with_settings("small", mode="nearest"), "nearest"),
    _resize("linear for nearest", "coarse", with_settings("coarse", mode="linear"), "linear"),
    _resize(
        "nearest of pixel centres",
        "coarse",
        _by_matrix("coarse", _EXACT),
        "exact",
        "centre",
        "half",
    ),
    _resize("nearest rounded", "coarse", _by_matrix("coarse", _ROUNDED), "round"),
    _resize("nearest with corners aligned", "coarse", _by_matrix("coarse", _CORNERS), "corner"),
    _resize(
        "depth to space",
        "shuffle",
        with_methods("shuffle", forward=_depth_first),
        "depth",
        "DCR",
        "order",
        "channel",
    ),
    _resize(
        "rows and columns of the shuffle exchanged",
        "shuffle",
        with_methods("shuffle", forward=_shuffled_sideways),
        "rows",
        "exchanged",
        "transpos",
        "order",
    ),
    _resize(
        "repeated in the place of shuffled",
        "shuffle",
        with_methods(
            "shuffle", forward=lambda self, x: self.nn.interpolate(x[:, :2], scale_factor=2)
        ),
        "repeat",
        "nearest",
    ),
]

MISTAKES = [*_CONVOLUTION, *_TRANSPOSED, *_POOLING, *_RESIZING]
