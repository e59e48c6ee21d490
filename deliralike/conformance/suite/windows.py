"""Checks of convolution, pooling and resizing: every setting at odd sizes, against NumPy."""

from __future__ import annotations

from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.comparing import distinct, values
from deliralike.conformance.suite.rows import functions, slopes

_IMAGE, _LINE, _DISTINCT = values(2, 2, 5, 6), values(2, 2, 5), distinct(2, 2, 5, 6)
_KERNEL = values(3, 2, 3, 2)
_ONE, _TWO, _NONE, _ALL = (1, 1), (2, 2), ((0, 0), (0, 0)), ((1, 1), (1, 1))
_UNEQUAL, _CROP = ((1, 0), (1, 2)), ((-1, 1), (0, -2))

for _name, _function, _table in (
    # The settings are stride, padding, dilation and groups.
    (
        "convolve",
        formulas.convolve,
        (
            ("", _IMAGE, _KERNEL, _ONE, _NONE, _ONE, 1),
            (" with a stride", _IMAGE, _KERNEL, (2, 3), _NONE, _ONE, 1),
            (" with unequal padding", _IMAGE, _KERNEL, (1, 2), _UNEQUAL, _ONE, 1),
            (" with padding that crops", _IMAGE, _KERNEL, (2, 1), _CROP, _ONE, 1),
            (" with dilation", _IMAGE, _KERNEL, _ONE, ((1, 1), (0, 0)), (2, 3), 1),
            (" in groups", _IMAGE, values(4, 1, 2, 2), (2, 1), _ALL, _ONE, 2),
        ),
    ),
    # The settings are stride, padding, padding of the output, dilation and groups.
    (
        "convolve_transposed",
        formulas.convolve_transposed,
        (
            ("", values(2, 3, 3, 2), _KERNEL, _ONE, (0, 0), (0, 0), _ONE, 1),
            (" with padding", values(2, 3, 3, 2), _KERNEL, _TWO, (1, 0), _ONE, _ONE, 1),
            (
                " with padding beyond the kernel",
                values(2, 3, 3, 2),
                _KERNEL,
                _TWO,
                (3, 1),
                _ONE,
                _ONE,
                1,
            ),
            (
                " with dilation",
                values(2, 3, 3, 2),
                _KERNEL,
                (1, 2),
                _ONE,
                (0, 0),
                (2, 3),
                1,
            ),
            (
                " in groups",
                values(2, 2, 3, 2),
                values(2, 3, 2, 2),
                _TWO,
                (0, 1),
                (1, 0),
                _ONE,
                2,
            ),
        ),
    ),
    # The settings are kernel, stride, padding and dilation.
    (
        "max_windows",
        formulas.max_windows,
        (
            ("", _DISTINCT, (2, 3), _TWO, _NONE, _ONE),
            (" with padding that crops", _DISTINCT, (2, 3), _ONE, _CROP, _ONE),
            (" with dilation", _DISTINCT, _TWO, _ONE, _NONE, (2, 3)),
            (
                " of negative numbers",
                _DISTINCT - 9.0,
                _TWO,
                _TWO,
                ((1, 1), (1, 0)),
                _ONE,
            ),
        ),
    ),
    (
        "sum_windows",
        formulas.sum_windows,
        (
            ("", _IMAGE, (2, 3), (2, 1), _UNEQUAL),
            (" with padding that crops", _IMAGE, (2, 3), _ONE, _CROP),
        ),
    ),
    # What is written once, and may be replaced.
    (
        "interpolate",
        None,
        (
            (", linear", _LINE, 8, None, "linear", False),
            (" with align_corners", _LINE, 8, None, "linear", True),
        ),
    ),
):
    functions(
        "windows", "L1", *((_name + _how, _function, *_row) for _how, *_row in _table)
    )


functions(
    "windows",
    "L1",
    ("avg_pool", None, _IMAGE, 3, 2, 1),
    (
        "conv with padding 'same'",
        None,
        _IMAGE,
        _KERNEL,
        None,
        1,
        "same",
    ),
    (
        "max_pool with ceil_mode",
        None,
        _DISTINCT,
        2,
        2,
        0,
        1,
        True,
    ),
    ("avg_pool without counting the padding", None, _IMAGE, 3, 2, 1, False, False),
    (
        "interpolate, nearest",
        lambda x, size: x[..., [0, 0, 1, 1, 2, 3, 3, 4]],
        _LINE,
        8,
    ),
)
slopes(
    "windows",
    (
        "gradient of equal maxima in a window",
        lambda nn, x: nn.max_windows(
            nn.reshape(x, (1, 1, 2, 3)), (2, 3), (2, 3), _NONE, _ONE
        ),
        [1.0, 5.0, 5.0, 5.0, 2.0, 5.0],
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ),
    (
        "maxima of minus infinity beside padding",
        lambda nn, x: nn.max_pool2d(
            nn.reshape(x, (1, 1, 1, 2)), (1, 2), (1, 2), (0, 1)
        ),
        [float("-inf"), float("-inf")],
        [1.0, 1.0],
    ),
    (
        "maxima under gradients of NaN",
        lambda nn, x: (
            nn.max_windows(nn.reshape(x, (1, 1, 1, 4)), (1, 2), (1, 2), _NONE, _ONE)
            * nn.constant([float("nan"), 2.0], like=x)
        ),
        [1.0, 5.0, 3.0, 2.0],
        [0.0, float("nan"), 2.0, 0.0],
    ),
)
