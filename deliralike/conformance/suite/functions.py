"""Checks of the functions of `nn` without windows: all primitives, and functions built on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    aligned,
    distinct,
    dtype_of,
    native,
    refused,
    true,
    values,
)
from deliralike.conformance.suite.layouts import LAYOUTS
from deliralike.conformance.suite.rows import functions, slopes
from deliralike.errors import IndexRangeError

_ROWS = partial(functions, "functions", "L1")
_X = values(3, 5, gap=0.1)  # away from zero, where several functions have a corner
_Y = values(3, 5, seed=3, low=1.0)
_CUBE = distinct(2, 3, 5)
_INDEX = np.array([[2, 0], [1, 2]])

# Element by element
# -----------------------------------------------------------------------------

_ROWS(
    ("relu", formulas.relu, _X),
    ("relu6", lambda x: np.clip(x, 0.0, 6.0), _X * 5.0),
    ("sigmoid", formulas.sigmoid, _X),
    ("tanh", np.tanh, _X),
    ("silu", None, _X),
    ("softplus", formulas.softplus, _X),
    ("leaky_relu", None, _X),
    ("elu", None, _X),
    ("gelu", None, _X),
    ("gelu by tanh", None, _X, "tanh"),
    ("hardsigmoid", None, _X * 2.5),
    ("hardswish", None, _X * 2.5),
    ("softmax", None, _CUBE, -1),
    ("log_softmax", formulas.log_softmax, _CUBE, 1),
)
_ROWS(
    ("exp", np.exp, _X),
    ("log", np.log, _Y),
    ("sqrt", np.sqrt, _Y),
    ("sin", np.sin, _X),
    ("cos", np.cos, _X),
    ("abs", np.abs, _X),
    ("erf", formulas.erf, _X),
    ("atan", np.arctan, _X),
    ("log1p", np.log1p, _Y),
    ("expm1", np.expm1, _X),
    ("prelu", None, _X, values(5, seed=2)),
    ("clamp", np.clip, _X, -0.5, 0.7),
    ("where", np.where, np.sign(_X) > 0, _X, _Y),
    ("where between an array and a number", np.where, _X > 0, _X, 2.0),
)


def _repeated(nn: Any, x: Any) -> Any:
    index = nn.constant(np.array([0, 2, 0, 0]), like=x)
    return nn.select(x, index, 0) + 10.0 * nn.select_along(x, index, 0)


def _times(nn: Any, x: Any, factors: Any) -> Any:
    return x * nn.constant(factors, like=x)


slopes(
    "functions",
    ("derivative of relu at 0", "relu", [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
    ("derivative of relu6 at 0 and 6", "relu6", [0.0, 3.0, 6.0], [0.0, 1.0, 0.0]),
    (
        "relu under gradients of NaN",
        lambda nn, x: _times(nn, nn.relu(x), [np.nan, np.nan, 2.0]),
        [-1.0, 0.0, 1.0],
        [0.0, 0.0, 2.0],
    ),
    (
        "relu6 under gradients of NaN",
        lambda nn, x: _times(nn, nn.relu6(x), [np.nan, 2.0, np.nan]),
        [-1.0, 3.0, 7.0],
        [0.0, 2.0, 0.0],
    ),
    ("derivative of abs at 0", "abs", [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]),
    ("derivative of sigmoid at 0", "sigmoid", [0.0], [0.25]),
    ("derivative of sigmoid far out", "sigmoid", [-800.0, 800.0], [0.0, 0.0]),
    ("derivative of softplus far out", "softplus", [-800.0, 800.0], [0.0, 1.0]),
    (
        "derivative of normalize at 0",
        lambda nn, x: nn.normalize(x, dim=0),
        [0.0],
        [1e12],
    ),
    (
        "derivative of clamp at its bounds",
        lambda nn, x: nn.clamp(x, -1.0, 1.0),
        [-2.0, -1.0, 0.0, 1.0, 2.0],
        [0.0, 1.0, 1.0, 1.0, 0.0],
    ),
    (
        "gradient of equal maxima",
        lambda nn, x: nn.max_along(x, 0),
        [1.0, 3.0, 3.0, 3.0, 2.0],
        [0.0, 1.0, 0.0, 0.0, 0.0],
    ),
    ("repeated positions", _repeated, [1.0, 2.0, 3.0], [33.0, 0.0, 11.0]),
    (
        "stop gradient",
        lambda nn, x: x * nn.stop_gradient(x * x),
        [1.0, 2.0],
        [1.0, 4.0],
    ),
)

# Operators, which are the same for NumPy's arrays
# -----------------------------------------------------------------------------


def _operators(*arrays: Any) -> tuple[Any, ...]:
    x, y = arrays[-2:]
    return ((x + y) * 2.0 - x / y, 1.0 / y - x * y, y**1.5, -x)


def _parts(*arrays: Any) -> tuple[Any, ...]:
    x = arrays[-1]
    return x[1], x[:, 0], x[..., 1:4], x[0, :, 2:], x[:, :, ::2]


_ROWS(
    ("operators", _operators, _X, _Y),
    ("operators that broadcast a row", _operators, _X, values(5, low=1.0)),
    call=_operators,
)
_ROWS(("indexing", _parts, _CUBE), call=_parts)

# Reductions
# -----------------------------------------------------------------------------

_ROWS(
    ("sum", np.sum, _CUBE, 1),
    ("sum of everything", np.sum, _CUBE),
    (
        "sum of two axes",
        lambda x, *_: x.sum((0, 2), keepdims=True),
        _CUBE,
        (0, 2),
        True,
    ),
    ("cumsum", np.cumsum, _CUBE, 1),
    ("mean", np.mean, _CUBE, (0, 2)),
    ("max_along", lambda x, *_: x.max(-1, keepdims=True), _CUBE, -1, True),
    ("var", lambda x, *_: x.var((0, 2)), _CUBE, (0, 2), False, 0),
    (
        "var with a correction",
        lambda x, *_: x.var(1, ddof=1, keepdims=True),
        _CUBE,
        1,
        True,
        1,
    ),
)

# Shapes
# -----------------------------------------------------------------------------

_ALONG = np.array([[[0, 2, 2, 1, 0]], [[1, 1, 0, 2, 2]]])
_ROWS(
    ("reshape", np.reshape, _CUBE, (3, -1)),
    ("permute", np.transpose, _CUBE, (2, 0, 1)),
    ("broadcast_to", np.broadcast_to, values(3, 1), (2, 3, 4)),
    ("flip", np.flip, _CUBE, 1),
    ("roll", np.roll, _CUBE, 2, -1),
    ("split", lambda x, *_: np.split(x, [1], -1), _X, [1, 4], -1),
    ("concatenate", np.concatenate, [_X, values(3, 2, seed=5), _X], 1),
    ("stack", np.stack, [_X, _Y], 1),
    ("pad_constant", formulas.pad, _X, ((0, 1), (2, 0)), 1.5),
    ("pad_constant that crops", formulas.pad, _X, ((1, -1), (-2, 1))),
    ("select", np.take, _CUBE, _INDEX, 1),
    ("select_along", np.take_along_axis, _CUBE, _ALONG, 1),
    ("scatter_add", formulas.scatter_add, _CUBE, 1, _ALONG, values(2, 1, 5, seed=4)),
)

# Products and norms
# -----------------------------------------------------------------------------

_NCHW, _WEIGHT, _BIAS = values(2, 4, 3, 3), values(4, seed=6), values(4, seed=7)
_ROWS(
    ("matmul", np.matmul, _CUBE, values(5, 4)),
    ("matmul that broadcasts", np.matmul, values(3, 1, 2, 4), values(2, 4, 3)),
    ("einsum", np.einsum, "bij,bkj->bik", _CUBE, values(2, 4, 5)),
    ("batch_norm_train", None, _NCHW, _WEIGHT, _BIAS),
    (
        "batch_norm_train of one image",
        None,
        _NCHW[:1],
        _WEIGHT,
        _BIAS,
    ),
    (
        "batch_norm",
        None,
        _NCHW,
        _BIAS,
        values(4, low=0.5),
        _WEIGHT,
        _BIAS,
        1e-3,
    ),
    ("group_norm", None, _NCHW, 2, _WEIGHT, _BIAS),
    (
        "layer_norm",
        None,
        _CUBE,
        (5,),
        values(5, seed=9),
        values(5, seed=10),
    ),
    (
        "normalize",
        lambda x, p, dim: x / np.linalg.norm(x, axis=dim, keepdims=True),
        _CUBE,
        2.0,
        1,
    ),
)

# Sequences
# -----------------------------------------------------------------------------


def _sequence(gates: int, states: int = 1) -> list[np.ndarray]:
    """A batch of sequences, the states, and the weights of a recurrent layer."""
    rows = 2 * gates
    weights = [
        values(rows, 3),
        values(rows, 2),
        values(rows, seed=12),
        values(rows, seed=13),
    ]
    return [values(4, 2, 3), *(values(2, 2, seed=11),) * states, *weights]


def _add_up(nn: Any, xs: Any, w: Any) -> tuple[Any, Any]:
    return nn.scan(
        lambda total, x: (total * w + x, total * x), nn.zeros((2,), like=xs), xs
    )


def _added_up(xs: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, products = np.zeros(2), []
    for x in xs:
        products.append(total * x)
        total = total * w + x
    return total, np.stack(products)


_QUERY, _KEY = values(2, 3, 4), values(2, 5, 4)
_ROWS(
    (
        "attention",
        None,
        _QUERY,
        _KEY,
        values(2, 5, 4, seed=1),
        values(2, 3, 5),
    ),
    ("lstm", None, *_sequence(4, states=2)),
    ("gru", None, *_sequence(3)),
    ("rnn", None, *_sequence(1)),
)
_ROWS(("scan", _added_up, values(4, 2), values(2)), call=_add_up)


# Types of results
# -----------------------------------------------------------------------------


def _compared(*arrays: Any) -> tuple[Any, ...]:
    x, y = arrays[-2:]
    return x > y, x <= y, x > 0.5


_TYPES = partial(functions, "functions", "L0")
_TYPES(
    ("argmax", np.argmax, _CUBE, 1),
    ("argmax of equal maxima", np.argmax, np.array([[1.0, 3.0, 3.0]]), 1),
    ("floor", np.floor, _X * 3.0),
    ("argsort_along", partial(np.argsort, kind="stable"), _CUBE, 1),
    ("argsort_along of equal elements", np.argsort, np.array([3.0, 1.0, 3.0, 1.0]), 0),
    ("cast to flags", np.ndarray.astype, np.array([0.0, 0.5, 1.0]), "bool"),
    ("cast to whole numbers", np.ndarray.astype, _X * 3.0, "int64"),
    ("stop_gradient", np.positive, _X),
)
_TYPES(("comparisons", _compared, _X, _Y), call=_compared)
for _name, _value in (("constant", _Y), ("constant of whole numbers", _INDEX)):
    _TYPES(
        (_name, lambda x, value=_value: value, _X),
        call=lambda nn, x, value=_value: nn.constant(value, like=x),
    )
_TYPES(
    ("zeros", lambda x: np.zeros((2, 3)), _X),
    call=lambda nn, x: nn.zeros((2, 3), like=x),
)

# Edges
# -----------------------------------------------------------------------------

_EDGES = partial(functions, "functions", "L7")
# each number alone: beside 800, 2e-9 would not count
for _number in (-20.0, 800.0):
    _EDGES(
        (f"sigmoid at {_number}", formulas.sigmoid, np.array([_number])),
        (f"softplus at {_number}", formulas.softplus, np.array([_number])),
    )
_FAR = np.array([-800.0, 20.0, 800.0])
_EDGES(("log_softmax of numbers far apart", formulas.log_softmax, _FAR, 0))
# A mean ten thousand times the spread takes no digits from the variance, if that is computed in two
# passes, or as exactly.
_LARGE = 1e4 + values(8, 2, 3)
_EDGES(
    (
        "batch_norm_train of large means",
        None,
        _LARGE,
        np.ones(2),
        np.zeros(2),
    ),
    ("layer_norm of large means", None, _LARGE, (3,)),
    ("var of large means", lambda x, *_: x.var((0, 2)), _LARGE, (0, 2), False, 0),
    needs=("float64",),
)


# What is no formula
# -----------------------------------------------------------------------------


@check("functions", "L0")
def constants_of_any_layout(backend: Backend) -> None:
    """An array of the host may lie in any way, and is copied."""
    like = native(backend, _CUBE)
    for layout in LAYOUTS:
        given = layout.of(_CUBE)
        agree(
            f"constant, {layout.name}",
            backend.numpy(backend.nn.constant(given, like)),
            given,
        )
    for value in (_CUBE.astype(dtype_of(backend)), _ALONG):
        given = aligned(value)
        found = backend.nn.constant(given, like)
        given[...] = 0
        agree(
            "a constant after the array of the host has changed",
            backend.numpy(found),
            value,
        )


@check("functions", "L0")
def concrete(backend: Backend) -> None:
    """An array of the host, or None where the values are not at hand; nothing else."""
    found = backend.nn.concrete(native(backend, np.arange(4)))
    if found is not None:
        true("concrete gives None or a NumPy array", isinstance(found, np.ndarray))
        agree("concrete", found, np.arange(4))


@check("functions", "L7")
def positions_out_of_range(backend: Backend) -> None:
    """They are refused where values are at hand; nothing wraps or is clamped."""
    nn, table = backend.nn, native(backend, values(4, 3))
    for bad in (-1, 4):
        index = native(backend, np.array([bad]))
        if nn.concrete(index) is not None:
            with refused(f"position {bad} of 4 in embedding", IndexRangeError):
                nn.embedding(index, table)
            with refused(f"position {bad} of 4 in take", IndexRangeError):
                nn.take(table, index)
