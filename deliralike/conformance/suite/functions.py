"""Checks of the functions of `nn` without windows: all primitives, and functions built on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    distinct,
    native,
    refused,
    true,
    values,
)
from deliralike.conformance.suite.rows import function_row, slope_row
from deliralike.errors import IndexRangeError

_row = partial(function_row, "functions")
_slopes = partial(slope_row, "functions")
_X = values(3, 5, gap=0.1)  # away from zero, where several functions have a corner
_Y = values(3, 5, seed=3, low=1.0)
_CUBE = distinct(2, 3, 5)
_INDEX = np.array([[2, 0], [1, 2]])

# Element by element
# -----------------------------------------------------------------------------

for _name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs"):
    _row(_name, getattr(np, _name), _Y if _name in ("log", "sqrt") else _X)
for _name in ("erf", "sigmoid", "softplus", "relu", "leaky_relu", "elu", "gelu"):
    _row(_name, getattr(formulas, _name), _X)
_row("relu6", lambda x: np.clip(x, 0.0, 6.0), _X * 5.0)
_row("silu", lambda x: x * formulas.sigmoid(x), _X)
_row("hardsigmoid", formulas.hardsigmoid, _X * 2.5)
_row("hardswish", lambda x: x * formulas.hardsigmoid(x), _X * 2.5)
_row("prelu", lambda x, w: np.where(x > 0, x, w * x), _X, values(5, seed=2))
_row("clip", np.clip, _X, -0.5, 0.7)
_row("where", np.where, np.sign(_X) > 0, _X, _Y)
_row("where between an array and a number", np.where, _X > 0, _X, 2.0)
_row("where with a broadcast condition", np.where, np.array([[True], [False], [True]]), _X, 0.0)

_slopes("derivative of relu at 0", "relu", [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0])
_slopes("derivative of relu6 at 0 and 6", "relu6", [0.0, 3.0, 6.0], [0.0, 1.0, 0.0])
_slopes("derivative of abs at 0", "abs", [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
_slopes("derivative of sigmoid at 0", "sigmoid", [0.0], [0.25])
_slopes("derivative of softplus at 0", "softplus", [0.0], [0.5])
_slopes("derivative of tanh at 0", "tanh", [0.0], [1.0])
_slopes("derivative of erf at 0", "erf", [0.0], [2.0 / np.sqrt(np.pi)])
_slopes("derivative of gelu at 0", "gelu", [0.0], [0.5])
_slopes("derivative of silu at 0", "silu", [0.0], [0.5])
_slopes("derivative of normalize at 0", lambda nn, x: nn.normalize(x, 0), [0.0], [1e12])
_slopes(
    "derivative of clip at its bounds",
    lambda nn, x: nn.clip(x, -1.0, 1.0),
    [-2.0, -1.0, 0.0, 1.0, 2.0],
    [0.0, 1.0, 1.0, 1.0, 0.0],
)
_slopes(
    "gradient of equal maxima",
    lambda nn, x: nn.max(x, 0),
    [1.0, 3.0, 3.0, 3.0, 2.0],
    [0.0, 1.0, 0.0, 0.0, 0.0],
)


def _repeated(nn: Any, x: Any) -> Any:
    index = nn.constant(np.array([0, 2, 0, 0]), like=x)
    return nn.select(x, index, 0) + 10.0 * nn.select_along(x, index, 0)


_slopes("repeated positions", _repeated, [1.0, 2.0, 3.0], [33.0, 0.0, 11.0])
_slopes("stop gradient", lambda nn, x: x * nn.stop_gradient(x * x), [1.0, 2.0], [1.0, 4.0])

# Operators, which are the same for NumPy's arrays
# -----------------------------------------------------------------------------


def _operators(*arrays: Any) -> tuple[Any, ...]:
    x, y = arrays[-2:]
    return ((x + y) * 2.0 - x / y, 1.0 / y - x * y, y**1.5, -x)


def _parts(*arrays: Any) -> tuple[Any, ...]:
    x = arrays[-1]
    return x[1], x[:, 0], x[..., 1:4], x[0, :, 2:], x[:, :, ::2]


_row("operators", _operators, _X, _Y, call=_operators)
_row("operators that broadcast a row", _operators, _X, values(5, low=1.0), call=_operators)
_row("operators that broadcast a column", _operators, values(3, 1), _Y, call=_operators)
_row("indexing", _parts, _CUBE, call=_parts)

# Reductions
# -----------------------------------------------------------------------------


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function with arguments as those of `nn`."""
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


for _name in ("sum", "mean", "max"):
    _row(_name, _reduced(getattr(np, _name)), _CUBE, 1)
    _row(f"{_name} of the last axis", _reduced(getattr(np, _name)), _CUBE, -1, True)
for _name in ("sum", "mean"):
    _row(f"{_name} of everything", _reduced(getattr(np, _name)), _CUBE)
    _row(f"{_name} of two axes", _reduced(getattr(np, _name)), _CUBE, (0, 2), True)
_row("var", _reduced(np.var), _CUBE, (0, 2))
_row(
    "var with a correction",
    lambda x, dim, keepdim, ddof: x.var(dim, ddof=ddof, keepdims=keepdim),
    _CUBE,
    1,
    True,
    1,
)
_row("argmax", np.argmax, _CUBE, 1, level="L0")
_row("argmax of equal maxima", np.argmax, np.array([[1.0, 3.0, 3.0]]), 1, level="L7")
_row("log_softmax", formulas.log_softmax, _CUBE, 1)
_row("softmax", formulas.softmax, _CUBE, -1)

# Shapes
# -----------------------------------------------------------------------------

_row("reshape", np.reshape, _CUBE, (3, -1))
_row("permute", np.transpose, _CUBE, (2, 0, 1))
_row("transpose", np.swapaxes, _CUBE, 0, 2)
_row("broadcast_to", np.broadcast_to, values(3, 1), (2, 3, 4))
_row("expand_dims", np.expand_dims, _X, -1)
_row("squeeze", np.squeeze, values(3, 1, 2), 1)
_row("flatten", lambda x, start: x.reshape(2, 15), _CUBE, 1)
_row("flip", np.flip, _CUBE, 1)
_row("roll", np.roll, _CUBE, 2, -1)
_row("chunk", lambda x, count, dim: np.split(x, [3], dim), _X, 2, -1)
_row("split", lambda x, sizes, dim: np.split(x, [1], dim), _X, [1, 4], -1)
_row("pixel_shuffle", formulas.pixel_shuffle, values(1, 4, 2, 3), 2)
_row(
    "concatenate",
    lambda x, y: np.concatenate([x, y, x], 1),
    _X,
    values(3, 2, seed=5),
    call=lambda nn, x, y: nn.concatenate([x, y, x], dim=1),
)
_row(
    "stack",
    lambda x, y: np.stack([x, y], 1),
    _X,
    _Y,
    call=lambda nn, x, y: nn.stack([x, y], dim=1),
)
_row("pad_constant", formulas.pad, _X, ((0, 1), (2, 0)), 1.5)
_row("pad_constant that crops", formulas.pad, _X, ((1, -1), (-2, 1)))
_row(
    "pad by reflection",
    lambda x, *_: np.pad(x, ((0, 0), (2, 1)), "reflect"),
    _X,
    [(2, 1)],
    "reflect",
)
_row(
    "pad by repetition",
    lambda x, *_: np.pad(x, ((0, 0), (2, 1)), "edge"),
    _X,
    [(2, 1)],
    "replicate",
)
_ALONG = np.array([[[0, 2, 2, 1, 0]], [[1, 1, 0, 2, 2]]])
_CORNER = np.array([[[2, 0], [2, 1], [0, 0], [1, 1]]])
_row("select", np.take, _CUBE, _INDEX, 1)
_row("take", np.take, _CUBE, _INDEX, 2)
_row("select_along", np.take_along_axis, _CUBE, _ALONG, 1)
_row("take_along", np.take_along_axis, _CUBE, np.array([[[4, 0], [2, 2], [1, 3]]] * 2), -1)
_row(
    "select_along in a corner",
    lambda x, index, dim: np.take_along_axis(x[:1, :, :2], index, dim),
    _CUBE,
    _CORNER,
    1,
)

# Products and norms
# -----------------------------------------------------------------------------

_NCHW, _WEIGHT, _BIAS = values(2, 4, 3, 3), values(4, seed=6), values(4, seed=7)
_row("matmul", np.matmul, _CUBE, values(5, 4))
_row("matmul that broadcasts", np.matmul, values(3, 1, 2, 4), values(2, 4, 3))
_row(
    "einsum",
    partial(np.einsum, "bij,bkj->bik"),
    _CUBE,
    values(2, 4, 5),
    call=lambda nn, x, y: nn.einsum("bij,bkj->bik", x, y),
)
_row(
    "einsum that sums and swaps",
    partial(np.einsum, "bij->ji"),
    _CUBE,
    call=lambda nn, x: nn.einsum("bij->ji", x),
)
_row("linear", formulas.linear, _CUBE, values(4, 5), values(4))
_row("embedding", formulas.embedding, _INDEX, values(4, 3))
_row("batch_norm_train", formulas.batch_norm_train, _NCHW, _WEIGHT, _BIAS)
_row(
    "batch_norm",
    formulas.batch_norm,
    _NCHW,
    values(4, seed=8),
    values(4, low=0.5),
    _WEIGHT,
    _BIAS,
    1e-3,
)
_row(
    "batch_statistics of one replica",
    formulas.moments,
    _NCHW,
    call=lambda nn, x: nn.batch_statistics(x, 18, lambda part: part),
)
_row(
    "group_norm",
    lambda x, w, b: formulas.group_norm(x, 2, w, b),
    _NCHW,
    _WEIGHT,
    _BIAS,
    call=lambda nn, x, w, b: nn.group_norm(x, 2, w, b),
)
_row(
    "layer_norm",
    formulas.layer_norm,
    _CUBE,
    values(5, seed=9),
    values(5, seed=10),
    call=lambda nn, x, w, b: nn.layer_norm(x, (5,), w, b),
)
_row("normalize", lambda x, dim: x / np.linalg.norm(x, axis=dim, keepdims=True), _CUBE, 1)

# Sequences
# -----------------------------------------------------------------------------


def _sequence(gates: int) -> list[np.ndarray]:
    """A batch of sequences, a state, and the weights of a recurrent layer."""
    rows = 2 * gates
    weights = [values(rows, 3), values(rows, 2), values(rows, seed=12), values(rows, seed=13)]
    return [values(4, 2, 3), *(values(2, 2, seed=11),) * (gates - 2), *weights]


def _add_up(nn: Any, xs: Any, w: Any) -> tuple[Any, Any]:
    return nn.scan(lambda total, x: (total * w + x, total * x), nn.zeros((2,), like=xs), xs)


def _added_up(xs: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, products = np.zeros(2), []
    for x in xs:
        products.append(total * x)
        total = total * w + x
    return total, np.stack(products)


_QUERY, _KEY = values(2, 3, 4), values(2, 5, 4)
_row("attention", formulas.attention, _QUERY, _KEY, values(2, 5, 4, seed=1), values(2, 3, 5))
_row("lstm", formulas.lstm, *_sequence(4))
_row("gru", formulas.gru, *_sequence(3))
_row("scan", _added_up, values(4, 2), values(2), call=_add_up)


# Types of results
# -----------------------------------------------------------------------------


def _compared(*arrays: Any) -> tuple[Any, ...]:
    x, y = arrays[-2:]
    return x > y, x <= y, x > 0.5


_types = partial(_row, level="L0")
_types("comparisons", _compared, _X, _Y, call=_compared)
_types("cast to flags", np.ndarray.astype, np.array([0.0, 0.5, 1.0]), "bool")
_types("cast to whole numbers", np.ndarray.astype, _X * 3.0, "int64")
_types(
    "cast like another array",
    lambda x, index: index * 1.0,
    _X,
    np.arange(3),
    call=lambda nn, x, index: nn.cast(index, x),
)
_types("constant", lambda x: _Y, _X, call=lambda nn, x: nn.constant(_Y, like=x))
_types(
    "constant of whole numbers",
    lambda x: _INDEX,
    _X,
    call=lambda nn, x: nn.constant(_INDEX, like=x),
)
_types("zeros", lambda x: np.zeros((2, 3)), _X, call=lambda nn, x: nn.zeros((2, 3), like=x))
_types("stop_gradient", np.positive, _X)

# Edges
# -----------------------------------------------------------------------------

_edge = partial(_row, level="L7")
# each number alone: beside 800, 2e-9 would not count
for _number in (-800.0, -20.0, 20.0, 800.0):
    _edge(f"sigmoid at {_number}", formulas.sigmoid, np.array([_number]))
    _edge(f"softplus at {_number}", formulas.softplus, np.array([_number]))
_edge("log_softmax of numbers far apart", formulas.log_softmax, np.array([-800.0, 20.0, 800.0]), 0)
_slopes("derivative of sigmoid far out", "sigmoid", [-800.0, 800.0], [0.0, 0.0])
_slopes("derivative of softplus far out", "softplus", [-800.0, 800.0], [0.0, 1.0])
# A mean ten thousand times the spread takes no digits from the variance, if that is computed in two
# passes, or as exactly.
_LARGE, _DOUBLE = 1e4 + values(8, 2, 3), ("float64",)
_edge(
    "batch_norm_train of large means",
    formulas.batch_norm_train,
    _LARGE,
    np.ones(2),
    np.zeros(2),
    needs=_DOUBLE,
)
_edge(
    "layer_norm of large means",
    lambda x, shape: formulas.standardised(x, (2,)),
    _LARGE,
    (3,),
    needs=_DOUBLE,
)


# What is no formula
# -----------------------------------------------------------------------------


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
