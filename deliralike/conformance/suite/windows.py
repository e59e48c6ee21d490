"""Checks of convolution, pooling and resizing: every setting at odd sizes, against NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np

from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.comparing import distinct, values
from deliralike.conformance.suite.rows import function_row, slope_row

_row = partial(function_row, "windows")
_IMAGE, _LINE, _DISTINCT = values(2, 2, 5, 6), values(2, 2, 5), distinct(2, 2, 5, 6)
_KERNEL, _BIAS = values(3, 2, 3, 2), values(3, seed=1)
_UP, _SMALL = values(2, 3, 3, 2), values(2, 2, 3, 2)
_ONE, _TWO, _NONE, _ALL = (1, 1), (2, 2), ((0, 0), (0, 0)), ((1, 1), (1, 1))
_CROP = ((-1, 1), (0, -2))

# The settings are stride, padding, dilation and groups.
for _name, _x, _weight, *_settings in (
    ("convolve", _IMAGE, _KERNEL, _ONE, _NONE, _ONE, 1),
    ("convolve with a stride", _IMAGE, _KERNEL, (2, 3), _NONE, _ONE, 1),
    ("convolve with unequal padding", _IMAGE, _KERNEL, (1, 2), ((0, 1), (2, 1)), _ONE, 1),
    ("convolve with padding that crops", _IMAGE, _KERNEL, _ONE, ((-1, -1),) * 2, _ONE, 1),
    ("convolve with padding that crops one side", _IMAGE, _KERNEL, (2, 1), _CROP, _ONE, 1),
    ("convolve with dilation", _IMAGE, _KERNEL, _ONE, ((1, 1), (0, 0)), (2, 3), 1),
    ("convolve in groups", _IMAGE, values(4, 1, 2, 2), (2, 1), _ALL, _ONE, 2),
    ("convolve of one pixel by a larger kernel", values(1, 2, 1, 1), _KERNEL, _ONE, _ALL, _ONE, 1),
    ("convolve in one dimension", values(2, 2, 7), values(3, 2, 3), (2,), ((1, 1),), (1,), 1),
    (
        "convolve in three dimensions",
        values(1, 2, 3, 4, 3),
        values(2, 2, 2, 2, 2),
        (1, 2, 1),
        ((0, 0), (1, 0), (0, 0)),
        (1, 1, 1),
        1,
    ),
):
    _row(_name, formulas.convolve, _x, _weight, *_settings)

# The settings are stride, padding, padding of the output, dilation and groups.
for _name, *_settings in (
    ("convolve_transposed", _ONE, (0, 0), (0, 0), _ONE, 1),
    ("convolve_transposed with a stride", (2, 3), (0, 0), (0, 0), _ONE, 1),
    ("convolve_transposed with padding", _TWO, (1, 0), _ONE, _ONE, 1),
    ("convolve_transposed with padding beyond the kernel", _TWO, (3, 1), _ONE, _ONE, 1),
    ("convolve_transposed with dilation", (1, 2), _ONE, (0, 0), (2, 3), 1),
):
    _row(_name, formulas.convolve_transposed, _UP, _KERNEL, *_settings)
_row(
    "convolve_transposed in groups",
    formulas.convolve_transposed,
    _SMALL,
    values(2, 3, 2, 2),
    _TWO,
    (0, 1),
    (1, 0),
    _ONE,
    2,
)

# The settings are kernel, stride, padding and dilation.
for _name, _x, *_settings in (
    ("max_windows", _DISTINCT, (2, 3), _TWO, _NONE, _ONE),
    ("max_windows with unequal padding", _DISTINCT, (2, 3), (2, 1), ((1, 0), (1, 2)), _ONE),
    ("max_windows with padding that crops", _DISTINCT, (2, 3), _ONE, _CROP, _ONE),
    ("max_windows with dilation", _DISTINCT, _TWO, _ONE, _NONE, (2, 3)),
    ("max_windows of negative numbers", _DISTINCT - 9.0, _TWO, _TWO, ((1, 1), (1, 0)), _ONE),
):
    _row(_name, formulas.max_windows, _x, *_settings)
_row("sum_windows", formulas.sum_windows, _IMAGE, (2, 3), (2, 1), ((1, 0), (1, 2)))
_row("sum_windows with padding that crops", formulas.sum_windows, _IMAGE, (2, 3), _ONE, _CROP)
slope_row(
    "windows",
    "gradient of equal maxima in a window",
    lambda nn, x: nn.max_windows(nn.reshape(x, (1, 1, 2, 3)), (2, 3), (2, 3), _NONE, _ONE),
    [1.0, 5.0, 5.0, 5.0, 2.0, 5.0],
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
)

# What is written once, and may be replaced
# -----------------------------------------------------------------------------


def _pooled(x: np.ndarray, size: int, stride: int, padding: int, **_: bool) -> np.ndarray:
    """The mean of square windows in which padding does not count."""
    sums = [formulas.avg_pool(each, size, stride, padding) for each in (x, np.ones(x.shape))]
    return sums[0] / sums[1]


def _bilinear(x: np.ndarray, size: tuple[int, int], **_: str) -> np.ndarray:
    turned = formulas.interpolate(x, size[1]).swapaxes(2, 3)
    return formulas.interpolate(turned, size[0]).swapaxes(2, 3)


_row("conv with a bias", formulas.conv, _IMAGE, _KERNEL, _BIAS, stride=2, padding=1)
_row(
    "conv with padding 'same'",
    lambda x, w, padding: formulas.convolve(x, w, _ONE, ((1, 1), (0, 1)), _ONE, 1),
    _IMAGE,
    _KERNEL,
    padding="same",
)
_row(
    "conv_transpose with a bias",
    formulas.conv_transpose,
    _UP,
    _KERNEL,
    _BIAS[:2],
    stride=2,
    padding=1,
    output_padding=1,
)
_row("max_pool", formulas.max_pool, _DISTINCT, 3, 2, 1)
_row(
    "max_pool with ceil_mode",
    lambda x, *_, **__: formulas.max_windows(x, _TWO, _TWO, ((0, 1), (0, 0)), _ONE),
    _DISTINCT,
    2,
    2,
    ceil_mode=True,
)
_row("avg_pool", formulas.avg_pool, _IMAGE, 3, 2, 1)
_row("avg_pool without counting the padding", _pooled, _IMAGE, 3, 2, 1, count_include_pad=False)
_row("adaptive_avg_pool", partial(formulas.adaptive_pool, np.mean), _IMAGE, (1, 4))
_row("adaptive_max_pool", partial(formulas.adaptive_pool, np.max), _DISTINCT, (1, 4))
_row(
    "interpolate by a factor",
    lambda x, **_: x[..., [0, 0, 1, 2, 2, 3, 4]],
    _LINE,
    scale_factor=1.5,
)
_row("interpolate, nearest", lambda x, size: x[..., [0, 0, 1, 1, 2, 3, 3, 4]], _LINE, 8)
_row("interpolate, bilinear", _bilinear, _IMAGE, (7, 4), mode="bilinear")
for _name, _size, _corners in (
    ("interpolate, linear", 8, False),
    ("interpolate, linear and smaller", 3, False),
    ("interpolate with align_corners", 8, True),
):
    _row(_name, formulas.interpolate, _LINE, _size, mode="linear", align_corners=_corners)
