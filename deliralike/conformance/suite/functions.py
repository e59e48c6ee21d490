"""Checks of the functions of `nn` without windows: all primitives, and functions built on them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.cases import add, add_slopes
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    distinct,
    dtype_of,
    equal,
    gradients,
    native,
    true,
    values,
)
from deliralike.errors import IndexRangeError

_add = partial(add, "functions")
_slopes = partial(add_slopes, "functions")
_X = values(3, 5, gap=0.1)  # away from zero, where several functions have a corner
_POSITIVE = values(3, 5, low=0.5)
_CUBE = distinct(2, 3, 5)
_INDEX = np.array([[2, 0], [1, 2]])

# Element by element
# -----------------------------------------------------------------------------

_add("exp", lambda nn, x: nn.exp(x), np.exp, _X)
_add("log", lambda nn, x: nn.log(x), np.log, _POSITIVE)
_add("sqrt", lambda nn, x: nn.sqrt(x), np.sqrt, _POSITIVE)
_add("sin", lambda nn, x: nn.sin(x), np.sin, _X)
_add("cos", lambda nn, x: nn.cos(x), np.cos, _X)
_add("tanh", lambda nn, x: nn.tanh(x), np.tanh, _X)
_add("erf", lambda nn, x: nn.erf(x), formulas.erf, _X)
_add("sigmoid", lambda nn, x: nn.sigmoid(x), formulas.sigmoid, _X)
_add("softplus", lambda nn, x: nn.softplus(x), formulas.softplus, _X)
_add("relu", lambda nn, x: nn.relu(x), lambda x: np.maximum(x, 0.0), _X)
_add("abs", lambda nn, x: nn.abs(x), np.abs, _X)
_add("clip", lambda nn, x: nn.clip(x, -0.5, 0.7), lambda x: np.clip(x, -0.5, 0.7), _X)
_add(
    "where",
    lambda nn, c, x, y: nn.where(c > 0, x, y),
    lambda c, x, y: np.where(c > 0, x, y),
    np.sign(_X).astype(np.int64),
    _X,
    values(3, 5, seed=1),
)
_add(
    "where between an array and a number",
    lambda nn, x: nn.where(x > 0.0, x, 2.0),
    lambda x: np.where(x > 0, x, 2.0),
    _X,
)
_add(
    "where with a broadcast condition",
    lambda nn, c, x: nn.where(c > 0, x, 0.0),
    lambda c, x: np.where(c > 0, x, 0.0),
    np.array([[1], [0], [1]]),
    _X,
)
_add("relu6", lambda nn, x: nn.relu6(x), lambda x: np.clip(x, 0.0, 6.0), _X * 5.0)
_add("leaky_relu", lambda nn, x: nn.leaky_relu(x), lambda x: np.where(x > 0, x, 0.01 * x), _X)
_add(
    "prelu",
    lambda nn, x, w: nn.prelu(x, w),
    lambda x, w: np.where(x > 0, x, w * x),
    _X,
    values(5, seed=2),
)
_add(
    "elu",
    lambda nn, x: nn.elu(x),
    lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0),
    _X,
)
_add("silu", lambda nn, x: nn.silu(x), lambda x: x * formulas.sigmoid(x), _X)
_add(
    "gelu", lambda nn, x: nn.gelu(x), lambda x: 0.5 * x * (1.0 + formulas.erf(x / np.sqrt(2.0))), _X
)
_add(
    "hardsigmoid",
    lambda nn, x: nn.hardsigmoid(x),
    lambda x: np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    _X * 2.5,
)
_add(
    "hardswish",
    lambda nn, x: nn.hardswish(x),
    lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    _X * 2.5,
)

for _name, _slope in {
    "sigmoid": 0.25,
    "softplus": 0.5,
    "tanh": 1.0,
    "erf": 2.0 / np.sqrt(np.pi),
    "gelu": 0.5,
    "silu": 0.5,
}.items():
    _slopes(
        f"derivative of {_name} at 0",
        lambda nn, x, name=_name: getattr(nn, name)(x),
        [0.0],
        [_slope],
    )
_slopes("derivative of relu at 0", lambda nn, x: nn.relu(x), [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0])
_slopes(
    "derivative of relu6 at 0 and 6", lambda nn, x: nn.relu6(x), [0.0, 3.0, 6.0], [0.0, 1.0, 0.0]
)
_slopes("derivative of abs at 0", lambda nn, x: nn.abs(x), [-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
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
_slopes("derivative of normalize at 0", lambda nn, x: nn.normalize(x, 0), [0.0], [1e12])

# Operators
# -----------------------------------------------------------------------------

_Y = values(3, 5, seed=3, low=1.0)
_add(
    "operators",
    lambda nn, x, y: ((x + y) * 2.0 - x / y, 1.0 / y - x * y, y**1.5, -x),
    lambda x, y: ((x + y) * 2.0 - x / y, 1.0 / y - x * y, y**1.5, -x),
    _X,
    _Y,
)
_add(
    "operators that broadcast",
    lambda nn, x, row, column: (x * row + column, x - row, x / column),
    lambda x, row, column: (x * row + column, x - row, x / column),
    _X,
    values(5, seed=4),
    values(3, 1, low=1.0),
)
_add(
    "indexing",
    lambda nn, x: (x[1], x[:, 0], x[..., 1:4], x[0, :, 2:], x[:, :, ::2]),
    lambda x: (x[1], x[:, 0], x[..., 1:4], x[0, :, 2:], x[:, :, ::2]),
    _CUBE,
)

# Reductions
# -----------------------------------------------------------------------------

_add(
    "sum",
    lambda nn, x: (nn.sum(x), nn.sum(x, 1), nn.sum(x, (0, 2), keepdim=True), nn.sum(x, -1)),
    lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdims=True), x.sum(-1)),
    _CUBE,
)
_add(
    "mean",
    lambda nn, x: (nn.mean(x), nn.mean(x, 1), nn.mean(x, (0, 2), keepdim=True)),
    lambda x: (x.mean(), x.mean(1), x.mean((0, 2), keepdims=True)),
    _CUBE,
)
_add(
    "max",
    lambda nn, x: (nn.max(x, 1), nn.max(x, -1, keepdim=True)),
    lambda x: (x.max(1), x.max(-1, keepdims=True)),
    _CUBE,
)
_add("log_softmax", lambda nn, x: nn.log_softmax(x, 1), lambda x: formulas.log_softmax(x, 1), _CUBE)
_add("softmax", lambda nn, x: nn.softmax(x, -1), lambda x: formulas.softmax(x, -1), _CUBE)
_add(
    "var",
    lambda nn, x: (nn.var(x, (0, 2)), nn.var(x, 1, keepdim=True, correction=1)),
    lambda x: (x.var((0, 2)), x.var(1, keepdims=True, ddof=1)),
    _CUBE,
)
_add("argmax", lambda nn, x: nn.argmax(x, 1), lambda x: x.argmax(1), _CUBE, differentiable=False)

# Shapes
# -----------------------------------------------------------------------------

_add("reshape", lambda nn, x: nn.reshape(x, (3, -1)), lambda x: x.reshape(3, -1), _CUBE)
_add("permute", lambda nn, x: nn.permute(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), _CUBE)
_add(
    "broadcast_to",
    lambda nn, x: nn.broadcast_to(x, (2, 3, 4)),
    lambda x: np.broadcast_to(x, (2, 3, 4)),
    values(3, 1),
)
_add(
    "concatenate",
    lambda nn, x, y: nn.concatenate([x, y, x], dim=1),
    lambda x, y: np.concatenate([x, y, x], 1),
    _X,
    values(3, 2, seed=5),
)
_add("stack", lambda nn, x, y: nn.stack([x, y], dim=1), lambda x, y: np.stack([x, y], 1), _X, _Y)
_add(
    "split",
    lambda nn, x: tuple(nn.split(x, [1, 4], dim=-1)),
    lambda x: tuple(np.split(x, [1], -1)),
    _X,
)
_add("chunk", lambda nn, x: tuple(nn.chunk(x, 2, -1)), lambda x: tuple(np.split(x, [3], -1)), _X)
_add("transpose", lambda nn, x: nn.transpose(x, 0, 2), lambda x: x.swapaxes(0, 2), _CUBE)
_add(
    "expand_dims and squeeze",
    lambda nn, x: (nn.expand_dims(x, -1), nn.squeeze(nn.expand_dims(x, 1), 1)),
    lambda x: (x[..., None], x),
    _X,
)
_add("flatten", lambda nn, x: nn.flatten(x, 1), lambda x: x.reshape(2, 15), _CUBE)
_add(
    "pad_constant",
    lambda nn, x: nn.pad_constant(x, ((0, 1), (2, 0)), 1.5),
    lambda x: np.pad(x, ((0, 1), (2, 0)), constant_values=1.5),
    _X,
)
_add(
    "pad_constant that crops",
    lambda nn, x: nn.pad_constant(x, ((1, -1), (-2, 1))),
    lambda x: np.pad(x[:-1, 2:], ((1, 0), (0, 1))),
    _X,
)
_add(
    "pad by reflection",
    lambda nn, x: nn.pad(x, [(2, 1)], "reflect"),
    lambda x: np.pad(x, ((0, 0), (2, 1)), "reflect"),
    _X,
)
_add(
    "pad by repetition",
    lambda nn, x: nn.pad(x, [(2, 1)], "replicate"),
    lambda x: np.pad(x, ((0, 0), (2, 1)), "edge"),
    _X,
)
_add("flip", lambda nn, x: nn.flip(x, 1), lambda x: x[:, ::-1], _CUBE)
_add("roll", lambda nn, x: nn.roll(x, 2, -1), lambda x: np.roll(x, 2, -1), _CUBE)
_add("select", lambda nn, x, i: nn.select(x, i, 1), lambda x, i: x[:, i], _CUBE, _INDEX)
_add(
    "select_along",
    lambda nn, x, i: nn.select_along(x, i, 1),
    lambda x, i: np.take_along_axis(x, i, 1),
    _CUBE,
    np.array([[[0, 2, 2, 1, 0]], [[1, 1, 0, 2, 2]]]),
)
_add(
    "select_along in a corner",
    lambda nn, x, i: nn.select_along(x, i, 1),
    lambda x, i: np.take_along_axis(x[:1, :, :2], i, 1),
    _CUBE,
    np.array([[[2, 0], [2, 1], [0, 0], [1, 1]]]),
)
_add("take", lambda nn, x, i: nn.take(x, i, 2), lambda x, i: x[:, :, i], _CUBE, _INDEX)
_add(
    "take_along",
    lambda nn, x, i: nn.take_along(x, i, -1),
    lambda x, i: np.take_along_axis(x, i, -1),
    _CUBE,
    np.array([[[4, 0], [2, 2], [1, 3]]] * 2),
)
_add(
    "pixel_shuffle",
    lambda nn, x: nn.pixel_shuffle(x, 2),
    lambda x: np.stack(
        [np.stack([x[:, 0], x[:, 1]], -1), np.stack([x[:, 2], x[:, 3]], -1)], 2
    ).reshape(1, 1, 4, 6),
    values(1, 4, 2, 3),
)

# Products
# -----------------------------------------------------------------------------

_add("matmul", lambda nn, x, y: nn.matmul(x, y), lambda x, y: x @ y, _CUBE, values(5, 4))
_add(
    "matmul that broadcasts",
    lambda nn, x, y: nn.matmul(x, y),
    lambda x, y: x @ y,
    values(3, 1, 2, 4),
    values(2, 4, 3),
)
_add(
    "einsum",
    lambda nn, x, y: nn.einsum("bij,bkj->bik", x, y),
    lambda x, y: x @ y.transpose(0, 2, 1),
    _CUBE,
    values(2, 4, 5),
)
_add(
    "einsum that sums and swaps", lambda nn, x: nn.einsum("bij->ji", x), lambda x: x.sum(0).T, _CUBE
)
_add(
    "linear",
    lambda nn, x, w, b: nn.linear(x, w, b),
    lambda x, w, b: x @ w.T + b,
    _CUBE,
    values(4, 5),
    values(4),
)
_add("embedding", lambda nn, i, w: nn.embedding(i, w), lambda i, w: w[i], _INDEX, values(4, 3))

# Normalisation
# -----------------------------------------------------------------------------

_NCHW, _WEIGHT, _BIAS = values(2, 4, 3, 3), values(4, seed=6), values(4, seed=7)
_add(
    "batch_norm_train",
    lambda nn, x, w, b: nn.batch_norm_train(x, w, b),
    lambda x, w, b: (formulas.batch_norm(x, w, b), x.mean((0, 2, 3)), x.var((0, 2, 3))),
    _NCHW,
    _WEIGHT,
    _BIAS,
)
_add(
    "batch_norm",
    lambda nn, x, m, v, w, b: nn.batch_norm(x, m, v, w, b, 1e-3),
    lambda x, m, v, w, b: formulas.channelwise(
        formulas.channelwise(x, 1.0 / np.sqrt(v + 1e-3), -m / np.sqrt(v + 1e-3)), w, b
    ),
    _NCHW,
    values(4, seed=8),
    values(4, low=0.5),
    _WEIGHT,
    _BIAS,
)
_add(
    "batch_statistics of one replica",
    lambda nn, x: nn.batch_statistics(x, 18, lambda part: part),
    lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))),
    _NCHW,
)
_add(
    "group_norm",
    lambda nn, x, w, b: nn.group_norm(x, 2, w, b),
    lambda x, w, b: formulas.group_norm(x, 2, w, b),
    _NCHW,
    _WEIGHT,
    _BIAS,
)
_add(
    "layer_norm",
    lambda nn, x, w, b: nn.layer_norm(x, (5,), w, b),
    lambda x, w, b: formulas.standardised(x, (2,)) * w + b,
    _CUBE,
    values(5, seed=9),
    values(5, seed=10),
)
_add(
    "normalize",
    lambda nn, x: nn.normalize(x, 1),
    lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
    _CUBE,
)

# Sequences
# -----------------------------------------------------------------------------

_SEQUENCE, _STATE = values(4, 2, 3), values(2, 2, seed=11)
_LSTM = (values(8, 3), values(8, 2), values(8, seed=12), values(8, seed=13))
_GRU = (values(6, 3), values(6, 2), values(6, seed=14), values(6, seed=15))
_add(
    "attention",
    lambda nn, q, k, v, b: nn.attention(q, k, v, b)[0],
    formulas.attention,
    values(2, 3, 4),
    values(2, 5, 4),
    values(2, 5, 4, seed=1),
    values(2, 3, 5),
)
_add(
    "lstm",
    lambda nn, *a: nn.lstm(*a),
    formulas.lstm,
    _SEQUENCE,
    _STATE,
    values(2, 2, seed=16),
    *_LSTM,
)
_add("gru", lambda nn, *a: nn.gru(*a), formulas.gru, _SEQUENCE, _STATE, *_GRU)


def _add_up(nn: Any, xs: Any, w: Any) -> tuple[Any, Any]:
    return nn.scan(lambda total, x: (total * w + x, total * x), nn.zeros((2,), like=xs), xs)


def _added_up(xs: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total, products = np.zeros(2), []
    for x in xs:
        products.append(total * x)
        total = total * w + x
    return total, np.stack(products)


_add("scan", _add_up, _added_up, values(4, 2), values(2))


# What is no formula
# -----------------------------------------------------------------------------


@check("functions", "L1")
def stop_gradient(backend: Backend) -> None:
    """The values pass, the gradient does not."""
    x = values(3)
    agree("stop_gradient: output", backend.numpy(backend.nn.stop_gradient(native(backend, x))), x)
    found = gradients(backend, lambda nn, at: nn.sum(at * nn.stop_gradient(at * at)), x).inputs[0]
    agree("gradient of sum(x * stop_gradient(x * x))", found, x * x)


@check("functions", "L0")
def types_of_results(backend: Backend) -> None:
    """Comparisons give flags, argmax whole numbers; casts and constants follow the request."""
    nn, dtype = backend.nn, dtype_of(backend)
    x, index = native(backend, _X), native(backend, np.arange(3))

    def kind(array: Any) -> str:
        return backend.numpy(array).dtype.kind

    equal("the kind of type of x > 0", kind(x > 0.0), "b")
    equal("the kind of type of argmax(x)", kind(nn.argmax(x, 1)), "i")
    equal(
        "the type of cast(x, 'float32')", str(backend.numpy(nn.cast(x, "float32")).dtype), "float32"
    )
    equal("the kind of type of cast(x, 'int64')", kind(nn.cast(x, "int64")), "i")
    equal("the kind of type of cast(x, 'bool')", kind(nn.cast(x, "bool")), "b")
    equal("the type of cast(index, x)", str(backend.numpy(nn.cast(index, x)).dtype), dtype)
    equal(
        "the type of constant(float64, like=x)",
        str(backend.numpy(nn.constant(np.ones(2), like=x)).dtype),
        dtype,
    )
    equal(
        "the kind of type of constant(int64, like=x)", kind(nn.constant(np.arange(2), like=x)), "i"
    )
    agree("constant(array, like=x)", backend.numpy(nn.constant(_Y, like=x)), _Y)
    agree("zeros((2, 3), like=x)", backend.numpy(nn.zeros((2, 3), like=x)), np.zeros((2, 3)))
    equal("the type of zeros like x", str(backend.numpy(nn.zeros((2,), like=x)).dtype), dtype)
    for call in (
        nn.exp,
        nn.relu,
        nn.sum,
        nn.sigmoid,
        lambda at: at * 2.0,
        lambda at: nn.where(at > 0.0, at, 0.0),
    ):
        equal("the type of a function of x", str(backend.numpy(call(x)).dtype), dtype)


@check("functions", "L0")
def concrete(backend: Backend) -> None:
    """An array of the host, or None where the values are not at hand; nothing else."""
    found = backend.nn.concrete(native(backend, np.arange(4)))
    true("concrete gives None or a NumPy array", found is None or isinstance(found, np.ndarray))
    if found is not None:
        agree("concrete", found, np.arange(4))


@check("functions", "L7")
def far_tails(backend: Backend) -> None:
    """Far values neither overflow nor are rounded away in sigmoid, softplus, log and others."""
    nn, far = backend.nn, np.array([-800.0, -20.0, 20.0, 800.0])
    for name, call, wanted in (
        ("sigmoid", nn.sigmoid, [0.0, 2.0611536181902037e-09, 0.9999999979388463, 1.0]),
        ("softplus", nn.softplus, [0.0, 2.061153620314381e-09, 20.000000002061153, 800.0]),
        ("log_softmax", lambda x: nn.log_softmax(x, 0), [-1600.0, -820.0, -780.0, 0.0]),
    ):
        found = backend.numpy(call(native(backend, far)))
        for x, y, value in zip(
            far, found, wanted, strict=True
        ):  # each alone: beside 800, 2e-9 would not count
            agree(f"{name} at {x}", y, np.array(value))
    for name in ("sigmoid", "softplus"):
        slopes = gradients(
            backend, lambda nn, at, name=name: nn.sum(getattr(nn, name)(at)), far
        ).inputs[0]
        true(f"the gradient of {name} at {far} is finite", np.isfinite(slopes).all())


@check("functions", "L7")
def first_of_equal_maxima(backend: Backend) -> None:
    """`argmax` gives the first."""
    found = backend.nn.argmax(native(backend, np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])), 1)
    agree("argmax of equal values", backend.numpy(found), np.array([1, 0]))


@check("functions", "L7")
def repeated_positions(backend: Backend) -> None:
    """The gradients of an element that is selected several times are added."""
    index = np.array([0, 2, 0, 0])
    found = gradients(
        backend, lambda nn, x, i: nn.sum(nn.select(x, i, 0)), values(3), index
    ).inputs[0]
    agree("gradient of select with repeated positions", found, np.array([3.0, 0.0, 1.0]))
    along = gradients(
        backend, lambda nn, x, i: nn.sum(nn.select_along(x, i, 0)), values(3), index
    ).inputs[0]
    agree("gradient of select_along with repeated positions", along, np.array([3.0, 0.0, 1.0]))


@check("functions", "L7")
def large_means(backend: Backend) -> None:
    """A mean ten thousand times the spread takes no digits from the variance.

    So it is computed in two passes, or as exactly.
    """
    if dtype_of(backend) != "float64":
        return
    x = 1e4 + values(8, 2, 3)
    _, _, var = backend.nn.batch_norm_train(
        native(backend, x), native(backend, np.ones(2)), native(backend, np.zeros(2))
    )
    agree("batch_norm_train at a mean of 10000: variance", backend.numpy(var), x.var((0, 2)), 1e-10)
    y = backend.nn.layer_norm(native(backend, x), (3,))
    agree("layer_norm at a mean of 10000", backend.numpy(y), formulas.standardised(x, (2,)), 1e-10)


@check("functions", "L7")
def positions_out_of_range(backend: Backend) -> None:
    """They are refused where values are at hand; nothing wraps or is clamped."""
    if backend.nn.concrete(native(backend, np.arange(2))) is None:
        return
    for bad in (-1, 4):
        for call in (
            lambda i: backend.nn.embedding(i, native(backend, values(4, 3))),
            lambda i: backend.nn.take(native(backend, values(4, 3)), i),
        ):
            try:
                call(native(backend, np.array([bad])))
            except IndexRangeError:
                continue
            true(f"position {bad} of 4 is refused", False)
