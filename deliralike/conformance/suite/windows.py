"""Checks of convolution, pooling and resizing: every setting at odd sizes, against NumPy loops."""

from __future__ import annotations

from functools import partial

import numpy as np

from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.cases import add, add_slopes
from deliralike.conformance.suite.comparing import distinct, values

_add = partial(add, "windows")
_IMAGE, _KERNEL = values(2, 2, 5, 6), values(3, 2, 3, 2)
_GROUPED = values(4, 1, 2, 2)
_UP = values(2, 2, 3, 2)
_NONE = ((0, 0), (0, 0))
Row = tuple[
    str, np.ndarray, np.ndarray, tuple
]  # a name, an input, a kernel, and the function's settings

_CONVOLUTIONS: list[Row] = [
    ("convolve", _IMAGE, _KERNEL, ((1, 1), _NONE, (1, 1), 1)),
    ("convolve with a stride", _IMAGE, _KERNEL, ((2, 3), _NONE, (1, 1), 1)),
    ("convolve with unequal padding", _IMAGE, _KERNEL, ((1, 2), ((0, 1), (2, 1)), (1, 1), 1)),
    ("convolve with dilation", _IMAGE, _KERNEL, ((1, 1), ((1, 1), (0, 0)), (2, 3), 1)),
    ("convolve in groups", _IMAGE, _GROUPED, ((2, 1), ((1, 1), (1, 1)), (1, 1), 2)),
    ("convolve in one dimension", values(2, 2, 7), values(3, 2, 3), ((2,), ((1, 1),), (1,), 1)),
    (
        "convolve in three dimensions",
        values(1, 2, 3, 4, 3),
        values(2, 2, 2, 2, 2),
        ((1, 2, 1), ((0, 0), (1, 0), (0, 0)), (1, 1, 1), 1),
    ),
    (
        "convolve of one pixel by a larger kernel",
        values(1, 2, 1, 1),
        _KERNEL,
        ((1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    ),
]
for _name, _x, _weight, _settings in _CONVOLUTIONS:
    _add(
        _name,
        lambda nn, x, w, s=_settings: nn.convolve(x, w, *s),
        lambda x, w, s=_settings: formulas.convolve(x, w, *s),
        _x,
        _weight,
    )

_TRANSPOSED: list[Row] = [
    ("convolve_transposed", values(2, 3, 3, 2), _KERNEL, ((1, 1), (0, 0), (0, 0), (1, 1), 1)),
    (
        "convolve_transposed with a stride",
        values(2, 3, 3, 2),
        _KERNEL,
        ((2, 3), (0, 0), (0, 0), (1, 1), 1),
    ),
    (
        "convolve_transposed with padding",
        values(2, 3, 3, 2),
        _KERNEL,
        ((2, 2), (1, 0), (1, 1), (1, 1), 1),
    ),
    (
        "convolve_transposed with dilation",
        values(2, 3, 3, 2),
        _KERNEL,
        ((1, 2), (1, 1), (0, 0), (2, 3), 1),
    ),
    ("convolve_transposed in groups", _UP, values(2, 3, 2, 2), ((2, 2), (0, 1), (1, 0), (1, 1), 2)),
]
for _name, _x, _weight, _settings in _TRANSPOSED:
    _add(
        _name,
        lambda nn, x, w, s=_settings: nn.convolve_transposed(x, w, *s),
        lambda x, w, s=_settings: formulas.convolve_transposed(x, w, *s),
        _x,
        _weight,
    )

_DISTINCT = distinct(2, 2, 5, 6)
for _name, _settings in (
    ("max_windows", ((2, 3), (2, 2), _NONE, (1, 1))),
    ("max_windows with unequal padding", ((2, 3), (2, 1), ((1, 0), (1, 2)), (1, 1))),
    ("max_windows with dilation", ((2, 2), (1, 1), _NONE, (2, 3))),
):
    _add(
        _name,
        lambda nn, x, s=_settings: nn.max_windows(x, *s),
        lambda x, s=_settings: formulas.max_windows(x, *s),
        _DISTINCT,
    )
_add(
    "max_windows of negative numbers",
    lambda nn, x: nn.max_windows(x, (2, 2), (2, 2), ((1, 1), (1, 0)), (1, 1)),
    lambda x: formulas.max_windows(x, (2, 2), (2, 2), ((1, 1), (1, 0)), (1, 1)),
    _DISTINCT - 9.0,
)
_add(
    "sum_windows",
    lambda nn, x: nn.sum_windows(x, (2, 3), (2, 1), ((1, 0), (1, 2))),
    lambda x: formulas.sum_windows(x, (2, 3), (2, 1), ((1, 0), (1, 2))),
    _IMAGE,
)
add_slopes(
    "windows",
    "gradient of equal maxima in a window",
    lambda nn, x: nn.max_windows(nn.reshape(x, (1, 1, 2, 3)), (2, 3), (2, 3), _NONE, (1, 1)),
    [1.0, 5.0, 5.0, 5.0, 2.0, 5.0],
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
)

# What is written once, and may be replaced
# -----------------------------------------------------------------------------

_BIAS = values(3, seed=1)
_add(
    "conv with a bias",
    lambda nn, x, w, b: nn.conv(x, w, b, stride=2, padding=1),
    lambda x, w, b: formulas.convolve(x, w, (2, 2), ((1, 1), (1, 1)), (1, 1), 1) + b[:, None, None],
    _IMAGE,
    _KERNEL,
    _BIAS,
)
_add(
    "conv with padding 'same'",
    lambda nn, x, w: nn.conv(x, w, padding="same"),
    lambda x, w: formulas.convolve(x, w, (1, 1), ((1, 1), (0, 1)), (1, 1), 1),
    _IMAGE,
    _KERNEL,
)
_add(
    "conv_transpose with a bias",
    lambda nn, x, w, b: nn.conv_transpose(x, w, b, stride=2, padding=1, output_padding=1),
    lambda x, w, b: (
        formulas.convolve_transposed(x, w, (2, 2), (1, 1), (1, 1), (1, 1), 1) + b[:, None, None]
    ),
    values(2, 3, 3, 2),
    _KERNEL,
    _BIAS[:2],
)
_add(
    "max_pool",
    lambda nn, x: nn.max_pool(x, 3, 2, 1),
    lambda x: formulas.max_windows(x, (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
    _DISTINCT,
)
_add(
    "max_pool with ceil_mode",
    lambda nn, x: nn.max_pool(x, 2, 2, ceil_mode=True),
    lambda x: formulas.max_windows(x, (2, 2), (2, 2), ((0, 1), (0, 0)), (1, 1)),
    _DISTINCT,
)
_add(
    "avg_pool",
    lambda nn, x: nn.avg_pool(x, 3, 2, 1),
    lambda x: formulas.sum_windows(x, (3, 3), (2, 2), ((1, 1), (1, 1))) / 9.0,
    _IMAGE,
)
_COUNTS = formulas.sum_windows(np.ones((1, 1, 5, 6)), (3, 3), (2, 2), ((1, 1), (1, 1)))
_add(
    "avg_pool without counting the padding",
    lambda nn, x: nn.avg_pool(x, 3, 2, 1, count_include_pad=False),
    lambda x: formulas.sum_windows(x, (3, 3), (2, 2), ((1, 1), (1, 1))) / _COUNTS,
    _IMAGE,
)
_add(
    "adaptive_avg_pool",
    lambda nn, x: nn.adaptive_avg_pool(x, (1, 4)),
    lambda x: np.stack([x[..., a:b].mean((2, 3)) for a, b in ((0, 2), (1, 3), (3, 5), (4, 6))], -1)[
        :, :, None
    ],
    _IMAGE,
)
_add(
    "adaptive_max_pool",
    lambda nn, x: nn.adaptive_max_pool(x, (1, 4)),
    lambda x: np.stack([x[..., a:b].max((2, 3)) for a, b in ((0, 2), (1, 3), (3, 5), (4, 6))], -1)[
        :, :, None
    ],
    _DISTINCT,
)


def _linear(x: np.ndarray, size: int, align_corners: bool) -> np.ndarray:
    """Interpolate along the last axis by NumPy.

    Positions beyond the outermost centres take their values.
    """
    old, new = x.shape[-1], np.arange(size, dtype=np.float64)
    at = new * (old - 1) / (size - 1) if align_corners else (new + 0.5) * old / size - 0.5
    return np.apply_along_axis(lambda row: np.interp(at, np.arange(old), row), -1, x)


_LINE = values(2, 2, 5)
_add(
    "interpolate by a factor",
    lambda nn, x: nn.interpolate(x, scale_factor=1.5),
    lambda x: x[..., [0, 0, 1, 2, 2, 3, 4]],
    _LINE,
)
_add(
    "interpolate, bilinear",
    lambda nn, x: nn.interpolate(x, (7, 4), mode="bilinear"),
    lambda x: _linear(_linear(x, 4, False).swapaxes(2, 3), 7, False).swapaxes(2, 3),
    _IMAGE,
)
_add(
    "interpolate, nearest",
    lambda nn, x: nn.interpolate(x, 8),
    lambda x: x[..., [0, 0, 1, 1, 2, 3, 3, 4]],
    _LINE,
)
_add(
    "interpolate, linear",
    lambda nn, x: nn.interpolate(x, 8, mode="linear"),
    lambda x: _linear(x, 8, False),
    _LINE,
)
_add(
    "interpolate, linear and smaller",
    lambda nn, x: nn.interpolate(x, 3, mode="linear"),
    lambda x: _linear(x, 3, False),
    _LINE,
)
_add(
    "interpolate with align_corners",
    lambda nn, x: nn.interpolate(x, 8, mode="linear", align_corners=True),
    lambda x: _linear(x, 8, True),
    _LINE,
)
