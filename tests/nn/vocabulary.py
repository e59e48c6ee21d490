"""The table of PyTorch's names: what is compared with PyTorch of each, or why there is none.

A row is a call that is made on both sides with the same arguments; `ABSENT` has the reasons. The
test goes over all rows, and ``python -m tests.nn.vocabulary`` measures them all and writes the page
of the docs.
"""

import math
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deliralike import backends
from tests.nn.agreement import TOGETHER, FunctionCase, LayerCase, clamped, deviations, flat

F = torch.nn.functional


@dataclass
class Row:
    """A function called as PyTorch's of the same name, with the same arguments.

    Attributes:
        name: Of the function, on both sides.
        args, kwargs: The arguments; arrays in them, also in lists, are the inputs.
        theirs: What makes PyTorch's results, where it is not the function of that name.
        note: How the two differ.
        like: Whether ours takes the type and device of an array besides.
        through: A function of the last axis that the first argument goes through on both sides.
    """

    name: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    theirs: Any = None
    note: str = ""
    like: bool = False
    through: str = ""

    @property
    def inputs(self):
        parts = [part for part in _parts((self.args, self.kwargs)) if isinstance(part, np.ndarray)]
        return [*parts, X] if self.like else parts

    @property
    def fixed(self):
        return [isinstance(x, Fixed) for x in self.inputs]

    def case(self):
        theirs = self.theirs or getattr(F if hasattr(F, self.name) else torch, self.name)

        def ours(nn, *arrays):
            arrays = [
                nn.stop_gradient(x) if is_fixed else x
                for x, is_fixed in zip(arrays, self.fixed, strict=True)
            ]
            args, kwargs = _filled((self.args, self.kwargs), iter(arrays))
            if self.through:
                args = (getattr(nn, self.through)(args[0], -1), *args[1:])
            more = {"like": arrays[-1]} if self.like else {}
            outputs = flat(getattr(nn, self.name)(*args, **kwargs, **more))
            return [y if "float" in str(y.dtype) else nn.cast(y, "float64") for y in outputs]

        def reference(*tensors):
            tensors = [
                x.detach() if is_fixed else x
                for x, is_fixed in zip(tensors, self.fixed, strict=True)
            ]
            args, kwargs = _filled((self.args, self.kwargs), iter(tensors))
            if self.through:
                args = (getattr(F, self.through)(args[0], -1), *args[1:])
            return [y.double() for y in flat(theirs(*args, **kwargs))]

        return FunctionCase(ours, reference, [np.array(x) for x in self.inputs])


def _parts(nest):
    if isinstance(nest, dict):
        nest = list(nest.values())
    if not isinstance(nest, list | tuple):
        return [nest]
    return [part for value in nest for part in _parts(value)]


def _filled(nest, arrays):
    """The nest with its arrays replaced by others, in order."""
    if isinstance(nest, np.ndarray):
        return next(arrays)
    if isinstance(nest, dict):
        return {key: _filled(value, arrays) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(_filled(value, arrays) for value in nest)
    return nest


class Fixed(np.ndarray):
    """An array that PyTorch does not differentiate with respect to."""


def fixed(array):
    return array.view(Fixed)


def call(name, *args, **kwargs):
    return Row(name, args, kwargs)


# Arrays: away from kinks (X), with ties and at kinks (TIES), positive (P), in the unit interval (U)
# -----------------------------------------------------------------------------

_rng = np.random.default_rng(0)


def normal(*shape):
    return _rng.normal(size=shape)


X, Y, Z = normal(3, 5), normal(3, 5), normal(3, 5)
CUBE = normal(2, 3, 5)
P, U = _rng.uniform(0.5, 3.0, (3, 5)), _rng.uniform(0.05, 0.95, (3, 5))
TIES = np.array([[1.0, 3.0, 3.0, -2.0], [0.0, 0.0, -1.0, -1.0], [2.0, 2.0, 2.0, 2.0]])
KINKS = np.array([-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 25.0])
ZEROS = np.zeros((2, 3))
WITH_ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0], [1.0, -2.0, 5.0]])
FLAGS = X > 0
INDEX = np.array([2, 0, 2, 1])
ALONG = np.array([[0, 2, 2, 1, 0], [1, 1, 0, 2, 2]])
SQUARE = normal(4, 4)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7])
SOME_NAN = np.where(X > 1.0, np.nan, X)
NOT_FINITE = np.array([1.0, np.nan, np.inf, -np.inf, 0.0])


AT_BOUNDS = "derivative 1 at the bounds, where PyTorch has 0 since 2.14"


def unary(*names, x=X):
    return [call(name, x) for name in names]


TENSORS = [
    # arithmetic
    *unary("neg", "square", "reciprocal", "exp", "expm1", "exp2", "erf", "erfc"),
    *unary("sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan", "sigmoid"),
    *unary("log", "log1p", "log2", "log10", "sqrt", "rsqrt", x=P),
    *unary("asin", "acos", "atanh", "logit", x=U),
    call("acosh", P + 1.0),
    call("logit", KINKS / 8.0, 0.2),
    *unary("abs", "sign", "relu", x=KINKS),
    *unary("floor", "ceil", "trunc", "frac", "round", x=HALVES),
    call("round", X, decimals=1),
    call("add", X, Y), call("add", X, Y, alpha=2), call("add", X, 1.5),
    call("sub", X, Y), call("sub", X, Y, alpha=2),
    call("mul", X, Y), call("div", X, P),
    call("div", X, P, rounding_mode="floor"), call("div", X, P, rounding_mode="trunc"),
    call("pow", P, 1.7), call("pow", X, 2), call("pow", X, 0), call("pow", P, X),
    call("pow", np.array([0.0, 2.0, 0.0]), np.array([0.0, 0.0, 2.0])),
    call("remainder", X * 5.0, P), call("fmod", X * 5.0, P),
    call("lerp", X, Y, 0.3), call("lerp", X, Y, U),
    call("addcmul", X, Y, P, value=0.5), call("addcdiv", X, Y, P, value=0.5),
    call("xlogy", X, P), call("logaddexp", X, Y), call("hypot", X, Y), call("atan2", X, Y),
    call("atan2", np.array([1.0, -1.0, 0.5, -0.5]), np.array([0.0, 0.0, -2.0, -2.0])),
    # other names
    *unary("absolute", "negative", "arctan", "arcsinh"), *unary("arcsin", "arccos", "arctanh", x=U),
    call("arccosh", P + 1.0), call("fix", HALVES), call("clone", X), call("arctan2", X, Y),
    call("subtract", X, Y, alpha=2), call("multiply", X, Y), call("divide", X, P),
    call("true_divide", X, P), call("floor_divide", fixed(X * 5.0), fixed(P)),
    *[
        call(name, TIES, TIES[0])
        for name in ("greater", "greater_equal", "less", "less_equal", "not_equal")
    ],
    # bounds and masks
    Row("clamp", (KINKS, -1.0, 3.0), theirs=clamped, note=AT_BOUNDS),
    Row("clamp", (TIES, TIES - 1.0, TIES), theirs=clamped),
    call("clamp", X, Y - 1.0, Y + 1.0), call("clamp", X, min=0.1), call("clamp", X, max=0.1),
    Row("clip", (KINKS, -1.0, 3.0), theirs=clamped, note=AT_BOUNDS),
    call("maximum", X, Y), call("maximum", TIES, TIES[:, ::-1].copy()), call("maximum", X, Y[0]),
    call("minimum", X, Y), call("minimum", TIES, TIES[:, ::-1].copy()),
    call("masked_fill", X, FLAGS, -1.5), call("masked_fill", X, FLAGS[0], 7),
    call("where", FLAGS, X, Y), call("where", FLAGS, X, 0.0),
    call("nan_to_num", NOT_FINITE), call("nan_to_num", NOT_FINITE, 1.0, 2.0, 3.0),
    # comparisons and truth values
    *[call(name, TIES, TIES[:, ::-1].copy()) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    *unary("isnan", "isinf", "isfinite", x=NOT_FINITE),
    call("logical_not", TIES),
    *[call(name, TIES, TIES[0]) for name in ("logical_and", "logical_or", "logical_xor")],
    # reductions
    call("sum", CUBE), call("sum", CUBE, 1), call("sum", CUBE, (0, 2), True),
    call("mean", CUBE), call("mean", CUBE, -1), call("mean", CUBE, (0, 2), True),
    call("max", TIES, 1), call("max", CUBE, -1, True), call("max", TIES), call("max", X, Y),
    call("min", TIES, 1, True), call("min", CUBE, 0), call("min", TIES), call("min", X, Y),
    call("cummax", TIES, 1), call("cummax", CUBE, -1), call("cummin", CUBE, 1),
    call("quantile", X, 0.3), call("quantile", CUBE, 0.5, 1, True),
    Row("quantile", (X, (0.1, 0.25, 1.0), 1), theirs=lambda x, q, dim: torch.quantile(
        x, torch.tensor(q, dtype=x.dtype), dim), note="`q` is a number or several; linear"),
    call("searchsorted", np.sort(X[0]), Y), call("searchsorted", np.sort(CUBE), CUBE[..., :2]),
    call("searchsorted", KINKS, KINKS[::-1].copy(), right=True),
    call("bucketize", Y, np.sort(X[0])),
    call("amax", TIES, 1), call("amax", TIES), call("amax", CUBE, (0, 2), True),
    call("amin", TIES, 1), call("amin", TIES), call("amin", CUBE, (0, -1)),
    call("aminmax", CUBE), call("aminmax", CUBE, dim=1, keepdim=True),
    call("argmax", X), call("argmax", X, 1), call("argmax", X, 0, True), call("argmin", X, 1),
    call("argmin", X),
    call("var", CUBE), call("var", CUBE, 1), call("var", CUBE, (0, 2), keepdim=True, correction=0),
    call("std", CUBE), call("std", TIES, 1), call("std", CUBE, -1, keepdim=True, correction=0),
    call("var_mean", CUBE, 1), call("std_mean", CUBE, 1),
    call("prod", X), call("prod", WITH_ZEROS, 1), call("prod", CUBE, -1, True),
    call("cumsum", CUBE, 1), call("cumsum", X, -1), call("cumprod", WITH_ZEROS, 1),
    call("logsumexp", CUBE, 1), call("logsumexp", CUBE, (0, 2), True),
    call("logsumexp", np.array([[-np.inf, 0.0, 800.0], [-np.inf, 1.0, -900.0]]), 1),
    *[call("norm", TIES, p, 1) for p in (0.5, 1, 1.5, 2, 3, math.inf, -math.inf)],
    *[call("norm", ZEROS, p, 1) for p in (0.5, 1, 2, 3, math.inf)],
    call("norm", CUBE), call("norm", CUBE, dim=(0, 2), keepdim=True),
    call("dist", X, Y), call("dist", X, Y, 3),
    call("cdist", CUBE, normal(2, 4, 5)), call("cdist", CUBE, normal(2, 4, 5), 1.0),
    call("logcumsumexp", CUBE, 1), call("logcumsumexp", X * 300.0, -1),
    call("nansum", NOT_FINITE[:2]), call("nanmean", SOME_NAN, 1), call("nanmean", SOME_NAN),
    call("isclose", TIES, TIES + np.array([0.0, 1e-9, 1e-3, np.inf])),
    call("any", FLAGS), call("any", FLAGS, 1), call("all", TIES, 1, True), call("all", TIES),
    call("count_nonzero", TIES), call("count_nonzero", TIES, 1),
    # shapes
    *[call(name, [X, Y], 1) for name in ("cat", "concat", "concatenate", "stack")],
    call("hstack", [X, Y]), call("vstack", [X, Y]), call("hstack", [X[0], Y[0]]),
    call("vstack", [X[0], Y[0]]),
    call("column_stack", [X, Y]), call("column_stack", [X[0], Y[0]]),
    call("dstack", [CUBE, CUBE + 1.0]), call("dstack", [X[0], Y[0]]), call("row_stack", [X, Y]),
    call("unsqueeze", X, -1), call("unsqueeze", X, 1),
    Row("squeeze", (normal(3, 1, 2), 1), note="an axis of another length is an error"),
    call("squeeze", normal(3, 1, 2, 1)),
    call("flatten", CUBE, 1), Row("flatten", (CUBE, 0), note="begins with axis 1 by default"),
    call("unflatten", X, 1, (5, -1)), call("unflatten", normal(2, 6), -1, (2, 3)),
    call("ravel", CUBE), call("reshape", CUBE, (5, -1)),
    call("permute", CUBE, (2, 0, 1)), call("transpose", CUBE, 0, -1), call("t", X),
    call("swapaxes", CUBE, 0, 1), call("swapdims", CUBE, 0, 1),
    call("movedim", CUBE, 0, -1), call("moveaxis", CUBE, (0, 1), (2, 0)),
    call("broadcast_to", X, (2, 3, 5)), call("broadcast_tensors", X, CUBE[:, :1]),
    call("tile", X, (2, 1, 3)), call("tile", X, (2,)),
    call("repeat_interleave", X, 3, 1), call("repeat_interleave", X, 2, dim=0),
    call("repeat_interleave", X, 2),
    call("meshgrid", X[0], Y[:, 0], indexing="ij"), call("meshgrid", X[0], Y[:, 0], indexing="xy"),
    call("split", X, 2, 1), call("split", X, [1, 4], -1), call("chunk", X, 2, 1),
    call("chunk", X, 3), call("tensor_split", X, 3, 1), call("tensor_split", X, (1, 3), 1),
    call("unbind", CUBE, 1), call("narrow", X, 1, 1, 3), call("diff", X), call("diff", X, 2, 0),
    call("flip", CUBE, (0, 2)), call("fliplr", X), call("flipud", X),
    call("rot90", CUBE, 1, (1, 2)), call("rot90", CUBE, -1, (0, 2)), call("rot90", X, 2),
    call("roll", CUBE, 2, -1), call("roll", CUBE, (1, -1), (0, 2)),
    # selecting
    call("gather", X, 0, ALONG), call("index_select", X, 0, INDEX),
    call("take_along_dim", X, np.array([[0, 2, 4]]), 1),
    call("take_along_dim", X, np.array([[0, 14, 4]])),
    call("scatter_add", X, 0, ALONG, normal(2, 5)),
    call("scatter", X, 1, np.array([[0, 3], [4, 1], [2, 0]]), normal(3, 2)),
    call("scatter", X, 1, np.array([[0, 3], [4, 1], [2, 0]]), 2.5),
    call("index_add", X, 0, INDEX, normal(4, 5), alpha=0.5),
    call("index_copy", X, 1, np.array([3, 0]), normal(3, 2)),
    call("index_fill", CUBE, 1, np.array([2, 0]), 1.5),
    call("sort", CUBE), call("sort", X, 0),
    Row("sort", (TIES, 1, True), theirs=lambda x, dim, down: torch.sort(
        x, dim=dim, descending=down, stable=True), note="always stable"),
    call("argsort", X, 0), call("argsort", CUBE, -1, True),
    call("topk", CUBE, 2), call("topk", X, 2, 0, False),
    call("kthvalue", X, 2), call("kthvalue", CUBE, 1, 1, True),
    call("median", X), call("median", X, 1), call("median", CUBE, 1, True),
    call("tril", SQUARE), call("tril", CUBE, 1), call("triu", SQUARE, -1), call("triu", CUBE),
    call("diagonal", CUBE, 1, 1, 2), call("diagonal", SQUARE, -1), call("diag", SQUARE),
    call("diag", X[0]), call("diag", X[0], -1), call("diag_embed", X, 1), call("trace", SQUARE),
    # products
    call("matmul", CUBE, normal(5, 4)), call("mm", X, normal(5, 2)),
    call("bmm", CUBE, normal(2, 5, 4)), call("mv", X, X[0]), call("dot", X[0], Y[0]),
    call("inner", CUBE, X), call("outer", X[0], Y[:, 0]),
    call("kron", X, SQUARE), call("tensordot", CUBE, normal(3, 5, 4)),
    call("tensordot", CUBE, normal(5, 3, 4), ([1, 2], [1, 0])),
    call("addmm", SQUARE, normal(4, 3), normal(3, 4), beta=0.5, alpha=2.0),
    call("baddbmm", normal(2, 3, 4), CUBE, normal(2, 5, 4)),
    call("cross", normal(4, 3), normal(4, 3)), call("cross", normal(3, 4), normal(3, 4), dim=0),
    call("einsum", "bij,bkj->bik", CUBE, normal(2, 4, 5)),
    # arrays made from numbers
    *[
        Row(name, args, theirs=partial(getattr(torch, name), dtype=torch.float64), like=True,
            note="`like=x` takes the place of `dtype` and `device`")
        for name, args in (("zeros", ((2, 3),)), ("ones", ((2, 3),)), ("full", ((2, 3), 1.5)),
                           ("eye", (3,)), ("eye", (3, 4)), ("linspace", (-1.0, 2.0, 7)),
                           ("arange", (5,)), ("arange", (1, 3.5, 0.5)))
    ],
    call("zeros_like", X), call("ones_like", X), call("full_like", X, 2.5), call("detach", X),
]  # fmt: skip


# torch.nn.functional
# -----------------------------------------------------------------------------

PIXELS = normal(2, 4, 6, 5)
LINE, VOLUME = normal(2, 3, 7), normal(1, 2, 4, 5, 6)
KERNEL = normal(6, 2, 3, 2)
LABELS = np.array([2, 0, 4])
SOME = np.array([2, -100, 4])
SHARES = _rng.dirichlet(np.ones(5), 3)
LOG_SHARES = np.log(_rng.dirichlet(np.ones(5), 3))
SIGNS = np.sign(Y)
LISTS = np.array([[3, 0, -1, 1, 1], [-1, 2, 2, 2, 2], [4, 1, 0, 2, 3]])
BAGS = np.array([[0, 2], [1, 1], [2, 1]])
SPEECH = normal(7, 2, 5)  # (time, batch, classes)
SPOKEN = np.array([[1, 1, 2], [4, 2, 1]])
WEIGHT = _rng.uniform(0.5, 2.0, 5)
FIXED = fixed(WEIGHT)
TOKENS = normal(2, 2, 3, 4)
GRID = _rng.uniform(-1.2, 1.2, (2, 3, 4, 2))
ALLOWED = np.tril(np.ones((3, 3), bool))
HARD = "PyTorch has its slope of 1/6 rounded to float32, also in float64: 2e-8 apart"

CELU = "PyTorch has the factor of 1/alpha rounded to float32, also in float64: 1e-8 apart"
POSITIVE = "0 where the sum of the powers is not positive, where PyTorch gives NaN"


def hardsigmoid(x):
    return F.relu6(x + 3.0) / 6.0


EVEN = (LINE[..., :6], PIXELS[..., :4], VOLUME[..., :4, :])
STEPPED = np.floor(LINE * 2.0)  # with ties


def pooled(n, x, *window):
    """Maxima and their positions."""
    pool = getattr(F, f"max_pool{n}d")
    values, positions = pool(torch.tensor(x), *window or (2,), return_indices=True)
    return values.numpy(), positions.numpy()


class Function(torch.nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def in_place(name, x, inplace):
    """PyTorch's function, on an array that it may write over."""
    return getattr(F, name)(x * 1.0, inplace=inplace)


def celu(x, alpha):
    return torch.where(x > 0, x, alpha * torch.expm1(x / alpha))


def reductions(name, *args, **kwargs):
    return [call(name, *args, reduction=how, **kwargs) for how in ("mean", "sum", "none")]


def ranks(name, *args, **kwargs):
    """A function for inputs of 1 to 3 dimensions."""
    return [
        call(f"{name}{n}d", x, *args, **kwargs) for n, x in ((1, LINE), (2, PIXELS), (3, VOLUME))
    ]


FUNCTIONS = [
    # activations
    *unary("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", x=KINKS),
    *unary("softplus", "logsigmoid", "softsign", "tanhshrink", "hardtanh", "hardswish", x=KINKS),
    *unary("hardshrink", "softshrink", "sigmoid", "tanh", x=KINKS),
    *[
        Row(name, (X,), {"inplace": True}, theirs=partial(in_place, name))
        for name in ("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "mish",
                     "hardtanh", "hardswish")
    ],
    Row("hardsigmoid", (KINKS,), theirs=hardsigmoid, note=HARD),
    call("leaky_relu", KINKS, 0.2), call("elu", KINKS, 0.7),
    Row("celu", (KINKS, 0.7), theirs=celu, note=CELU),
    call("gelu", KINKS, approximate="tanh"), call("softplus", KINKS, 2.0, 5.0),
    call("hardtanh", KINKS, -3.0, 0.5), call("hardshrink", KINKS, 3.0),
    call("softshrink", KINKS, 3.0), call("threshold", KINKS, 0.5, 7.0),
    call("prelu", X, np.array([0.3])), call("prelu", X, WEIGHT), call("glu", PIXELS, 1),
    call("softmax", CUBE, 1), call("softmin", CUBE, -1), call("log_softmax", CUBE, 1),
    # linear maps, attention
    call("linear", CUBE, normal(4, 5), normal(4)), call("linear", X, normal(4, 5)),
    call("bilinear", X, SQUARE[:3], normal(6, 5, 4), normal(6)),
    call("bilinear", CUBE, normal(2, 3, 2), normal(4, 5, 2)),
    call("embedding", np.array([[0, 2], [1, 1]]), X),
    *[call("embedding_bag", BAGS, X, mode=mode) for mode in ("mean", "sum", "max")],
    *[
        call("embedding_bag", INDEX, X, np.array([0, 3, 3]), mode=mode)
        for mode in ("mean", "sum", "max")
    ],
    call("embedding_bag", BAGS, X, mode="sum", per_sample_weights=normal(3, 2)),
    call("embedding_bag", INDEX, X, np.array([0, 1, 4]), include_last_offset=True, padding_idx=2),
    call("embedding_bag", BAGS, X, mode="max", padding_idx=-1),
    call("one_hot", LABELS, num_classes=5), call("one_hot", np.array([[0, 3], [1, 1]]), 6),
    call("scaled_dot_product_attention", TOKENS, TOKENS + 0.5, TOKENS - 0.5),
    call("scaled_dot_product_attention", TOKENS, TOKENS, TOKENS, is_causal=True),
    call("scaled_dot_product_attention", TOKENS, TOKENS, TOKENS, ALLOWED, scale=0.3),
    call("scaled_dot_product_attention", TOKENS, TOKENS, TOKENS, normal(3, 3)),
    call("scaled_dot_product_attention", normal(2, 4, 3, 6), TOKENS @ normal(4, 6), TOKENS,
         enable_gqa=True),
    # convolution, pooling, resizing
    call("conv1d", LINE, normal(4, 3, 3), normal(4), 2, 1),
    call("conv2d", PIXELS, KERNEL, normal(6), (2, 1), (1, 0), (1, 2), 2),
    call("conv2d", PIXELS, normal(2, 4, 3, 3), padding="same"),
    call("conv3d", VOLUME, normal(3, 2, 2, 3, 2), padding=1),
    call("conv_transpose1d", LINE, normal(3, 4, 3), normal(4), 2, 1, 1),
    call("conv_transpose2d", PIXELS, normal(4, 3, 3, 2), None, 2, 1, (1, 0), 2, (1, 2)),
    call("conv_transpose3d", VOLUME, normal(2, 2, 2, 3, 2), None, 2),
    *ranks("max_pool", 2, 1, 1), *ranks("max_pool", 3, ceil_mode=True),
    *ranks("max_pool", 2, return_indices=True),
    call("max_pool2d", PIXELS, (3, 2), 1, 1, (1, 2), True, True),
    call("max_pool1d", STEPPED, 3, 2, 1, return_indices=True),
    *ranks("adaptive_max_pool", 3, return_indices=True),
    *[call(f"max_unpool{n}d", *pooled(n, x), 2) for n, x in enumerate(EVEN, 1)],
    call("max_unpool2d", *pooled(2, PIXELS), 2, None, 0, (6, 5)),
    call("max_unpool2d", *pooled(2, PIXELS, 3, 1), 3, 1),
    *ranks("avg_pool", 2), *ranks("avg_pool", 3, 2, 1, True, False),
    call("avg_pool2d", PIXELS, 3, 2, 1, divisor_override=4),
    call("avg_pool2d", PIXELS, 2, ceil_mode=True, divisor_override=3),
    *ranks("adaptive_avg_pool", 3), *ranks("adaptive_max_pool", 3),
    call("adaptive_avg_pool2d", PIXELS, (None, 7)), call("adaptive_max_pool2d", PIXELS, (2, None)),
    *ranks("lp_pool", 2, 2),
    Row("lp_pool2d", (np.abs(PIXELS), 3, 3, 2), note=POSITIVE),
    call("lp_pool2d", PIXELS, 2, 3, 2, True),
    call("unfold", PIXELS, (3, 2), 1, 1, 2), call("unfold", PIXELS, 2, 2),
    call("fold", normal(2, 12, 16), (6, 5), (3, 2)),
    call("fold", normal(1, 8, 12), (6, 5), 2, 1, 1, 2),
    call("interpolate", LINE, 11), call("interpolate", PIXELS, scale_factor=1.7),
    call("interpolate", PIXELS, (9, 4), mode="nearest-exact"),
    call("interpolate", LINE, scale_factor=1.7, mode="linear"),
    call("interpolate", PIXELS, (9, 4), mode="bilinear"),
    call("interpolate", PIXELS, (9, 4), None, "bilinear", True),
    call("interpolate", PIXELS, (9, 4), mode="bicubic"),
    call("interpolate", PIXELS, (9, 4), mode="bicubic", align_corners=True),
    call("interpolate", PIXELS, scale_factor=1.7, mode="bicubic"),
    call("interpolate", PIXELS, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    call("interpolate", PIXELS, (3, 9), mode="bilinear", antialias=True),
    call("interpolate", PIXELS, (3, 2), mode="bicubic", antialias=True),
    call("interpolate", VOLUME, 5, mode="trilinear"), call("interpolate", PIXELS, 3, mode="area"),
    call("upsample", PIXELS, 9, mode="bilinear", align_corners=False),
    call("affine_grid", normal(2, 2, 3), (2, 4, 3, 5), align_corners=False),
    call("affine_grid", normal(2, 3, 4), (2, 1, 3, 4, 5), align_corners=True),
    *[
        call("grid_sample", PIXELS, GRID, mode, padding, corners)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    ],
    call("grid_sample", normal(2, 2, 3, 4, 5), _rng.uniform(-1.2, 1.2, (2, 2, 3, 2, 3)),
         align_corners=False),
    call("pixel_shuffle", PIXELS, 2), call("pixel_unshuffle", normal(2, 3, 4, 6), 2),
    call("channel_shuffle", PIXELS, 2),
    call("pad", PIXELS, (1, 2)), call("pad", PIXELS, (1, 0, -1, 2), "constant", 1.5),
    *[call("pad", PIXELS, (2, 1, 0, 3), mode) for mode in ("reflect", "replicate", "circular")],
    call("pad", LINE, (2, 7), "circular"),
    # norms
    call("layer_norm", CUBE, (3, 5), normal(3, 5), normal(3, 5)), call("layer_norm", X, (5,)),
    call("rms_norm", CUBE, (5,), normal(5)), call("rms_norm", CUBE, (3, 5), eps=1e-3),
    call("group_norm", PIXELS, 2, normal(4), normal(4)),
    Row("batch_norm", (PIXELS, fixed(normal(4)), fixed(_rng.uniform(0.5, 2.0, 4)), normal(4)),
        note="with given statistics; `eps` is the sixth argument, and layers do the training"),
    Row("instance_norm", (PIXELS,), {"weight": normal(4), "bias": normal(4)}),
    call("local_response_norm", PIXELS, 3), call("local_response_norm", LINE, 2, 0.1, 0.5, 2.0),
    call("normalize", X), call("normalize", X, 1.0, 0), call("normalize", TIES, 3.0),
    call("cosine_similarity", X, Y), call("cosine_similarity", CUBE, CUBE[:1] + 0.5, -1),
    call("cosine_similarity", ZEROS, ZEROS + 1.0),
    call("pairwise_distance", X, Y), call("pairwise_distance", X, Y, 1.0, 0.1, True),
    call("pdist", X), call("pdist", X, 3.0),
    # losses
    *reductions("cross_entropy", X, LABELS), call("cross_entropy", X, SOME, FIXED),
    call("cross_entropy", X, LABELS, label_smoothing=0.1), call("cross_entropy", X, SHARES),
    call("cross_entropy", X, SHARES, WEIGHT, label_smoothing=0.1, reduction="none"),
    *reductions("nll_loss", LOG_SHARES, LABELS), call("nll_loss", LOG_SHARES, SOME, FIXED),
    call("nll_loss", PIXELS, np.arange(60).reshape(2, 6, 5) % 4),
    *reductions("binary_cross_entropy", U, SHARES), call("binary_cross_entropy", U, SHARES, FIXED),
    *reductions("binary_cross_entropy_with_logits", X, SHARES),
    call("binary_cross_entropy_with_logits", X, SHARES, FIXED, pos_weight=FIXED),
    *reductions("mse_loss", X, Y), *reductions("mse_loss", X, Y, weight=P),
    *reductions("l1_loss", X, Y),
    *reductions("smooth_l1_loss", X, Y),
    call("smooth_l1_loss", KINKS, KINKS[::-1] + 0.25, beta=0.5),
    call("smooth_l1_loss", X, Y, beta=0.0),
    *reductions("huber_loss", X, Y), *reductions("huber_loss", X, Y, delta=0.5, weight=P),
    *reductions("kl_div", LOG_SHARES, SHARES), call("kl_div", LOG_SHARES, fixed(np.eye(5)[:3])),
    call("kl_div", LOG_SHARES, np.log(SHARES), reduction="batchmean", log_target=True),
    *reductions("poisson_nll_loss", X, P), call("poisson_nll_loss", P, P[::-1].copy(), False, True),
    *reductions("gaussian_nll_loss", X, Y, P), call("gaussian_nll_loss", X, Y, P[:, :1], True),
    *reductions("soft_margin_loss", X, fixed(SIGNS)), *reductions("hinge_embedding_loss", X, SIGNS),
    *reductions("multi_margin_loss", X, LABELS),
    call("multi_margin_loss", X, LABELS, 2, 0.5, FIXED),
    *reductions("multilabel_margin_loss", X, LISTS), call("multilabel_margin_loss", X[0], LISTS[2]),
    *[
        Row("ctc_loss", (SPEECH, *targets), {"reduction": how, **more}, through="log_softmax",
            note="behind `log_softmax`; PyTorch's own derivative takes it for granted")
        for how in ("mean", "sum", "none")
        for targets, more in (
            ((SPOKEN, (7, 5), (3, 2)), {}),
            ((SPOKEN, np.array([7, 6]), np.array([0, 3])), {"blank": 3}),
            ((np.array([1, 1, 2, 4]), (7, 4), (3, 1)), {}),
            ((SPOKEN, (3, 7), (3, 3)), {"zero_infinity": True}),
        )
    ],
    Row("ctc_loss", (SPEECH[:, 0], SPOKEN[0], np.array(7), np.array(3)), through="log_softmax"),
    *reductions("multilabel_soft_margin_loss", X, np.round(U)),
    *reductions("margin_ranking_loss", X, Y, np.sign(Z), 0.3),
    *reductions("cosine_embedding_loss", X, Y, np.array([1.0, -1.0, 1.0]), 0.1),
    *reductions("triplet_margin_loss", X, Y, Z),
    call("triplet_margin_loss", X, Y, Z, 2.0, 1, swap=True),
    *reductions("triplet_margin_with_distance_loss", X, Y, Z),
]  # fmt: skip


# torch.nn
# -----------------------------------------------------------------------------


@dataclass
class LayerRow:
    """A layer made and called as PyTorch's of the same name.

    Attributes:
        name: Of the layer, on both sides.
        args, kwargs: What it is made with; arrays are tensors on PyTorch's side.
        inputs: What it is called with.
        training: The mode.
        call: How it is called on both sides.
        note: How the two differ.
        oracle: What makes PyTorch's layer, where it is not that of the same name and arguments.
    """

    name: str
    args: tuple
    kwargs: dict
    inputs: list
    training: bool = True
    call: Any = lambda layer, *inputs: layer(*inputs)
    note: str = ""
    oracle: Any = None

    def case(self):
        def oracle(*args, **kwargs):
            args, kwargs = _tensors((args, kwargs))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # remarks on PyTorch's own speed
                return getattr(torch.nn, self.name)(*args, **kwargs)

        made = self.oracle or partial(oracle, *self.args, **self.kwargs)
        return LayerCase(
            self.name,
            {"args": self.args, **self.kwargs},
            self.inputs,
            self.training,
            call=self.call,
            oracle=made,
        )


def _tensors(nest):
    arrays = [torch.tensor(np.array(x)) for x in _parts(nest) if isinstance(x, np.ndarray)]
    return _filled(nest, iter(arrays))


def layer(name, *args, on=X, training=True, call=None, note="", oracle=None, **kwargs):
    inputs = on if isinstance(on, list) else [on]
    more = {} if call is None else {"call": call}
    return LayerRow(name, args, kwargs, inputs, training, note=note, oracle=oracle, **more)


def layers(name, *args, on=(LINE, PIXELS, VOLUME), **kwargs):
    """A layer for inputs of 1 to 3 dimensions."""
    return [layer(f"{name}{n}d", *args, on=x, **kwargs) for n, x in enumerate(on, start=1)]


def first(layer, *inputs):
    return layer(*inputs)[0]


def spoken_loss(layer, x):
    """Of two samples with fixed labels."""
    nn = F if isinstance(x, torch.Tensor) else layer.nn
    labels = _like(layer, np.array([[0, 0, 2], [4, 2, 0]]), x)
    return layer(nn.log_softmax(x, -1), labels, (7, 5), (3, 2))


def with_masks(layer, *inputs):
    causal = _like(layer, np.triu(np.full((3, 3), -np.inf), 1), inputs[0])
    return layer(*inputs, causal)


def _like(layer, array, x):
    """A constant beside an input, on both sides."""
    return torch.tensor(array) if isinstance(x, torch.Tensor) else layer.nn.constant(array, like=x)


STEPS = normal(4, 2, 3)  # (time, batch, width)
WORDS = normal(3, 2, 6)  # (tokens, batch, width)
MEMORY = normal(4, 2, 6)
STATE, CELL = normal(2, 5), normal(2, 5)
IN_EVALUATION = "in evaluation: masks in training are drawn otherwise"

LAYERS = [
    *[
        layer(name, on=KINKS)
        for name in ("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish",
                     "Softplus", "LogSigmoid", "Softsign", "Tanhshrink", "Hardtanh", "Hardswish",
                     "Hardshrink", "Softshrink", "Sigmoid", "Tanh")
    ],
    *[
        layer(name, inplace=True, on=X, call=lambda layer, x: layer(x * 1.0))
        for name in ("ReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardtanh", "LeakyReLU")
    ],
    layer("Hardsigmoid", on=KINKS, note=HARD, oracle=lambda: Function(hardsigmoid)),
    *layers("MaxPool", 2, return_indices=True, call=first),
    *layers("AdaptiveMaxPool", 3, return_indices=True, call=first),
    *[
        layer(f"MaxUnpool{n}d", 2, on=list(pooled(n, x)))
        for n, x in enumerate(EVEN, 1)
    ],
    layer("MaxUnpool2d", 2, on=list(pooled(2, PIXELS)),
          call=lambda layer, x, places: layer(x, places, output_size=(2, 4, 6, 5))),
    layer("EmbeddingBag", 3, 4, on=BAGS), layer("EmbeddingBag", 3, 4, mode="max", on=BAGS),
    layer("EmbeddingBag", 3, 4, mode="sum", padding_idx=1, on=[INDEX, np.array([0, 1])]),
    layer("MultiLabelMarginLoss", on=[X, LISTS]),
    layer("CTCLoss", 1, "sum", on=SPEECH, call=spoken_loss),
    layer("Softplus", 2.0, 5.0, on=KINKS), layer("Hardtanh", -3.0, 0.5, on=KINKS),
    layer("Hardshrink", 3.0, on=KINKS), layer("Softshrink", 3.0, on=KINKS),
    layer("CELU", 0.7, on=KINKS, note=CELU, oracle=lambda: Function(partial(celu, alpha=0.7))),
    layer("Threshold", 0.5, 7.0, on=KINKS), layer("GLU", 1, on=PIXELS), layer("PReLU", 5),
    layer("Softmax", 1), layer("Softmin", -1), layer("LogSoftmax", 1),
    layer("Softmax2d", on=PIXELS), layer("Identity", 54, unused=True), layer("Flatten", on=CUBE),
    layer("Unflatten", 1, (5, -1)), layer("Linear", 5, 4),
    layer("Bilinear", 5, 4, 6, on=[X, SQUARE[:3]]),
    layer("CosineSimilarity", on=[X, Y]), layer("PairwiseDistance", 3.0, on=[X, Y]),
    layer("Embedding", 3, 4, on=np.array([[0, 2], [1, 1]])),
    layer("Embedding", 3, 4, 1, on=np.array([[0, 2], [1, 1]])),
    *[
        layer(f"Conv{n}d", x.shape[1], 4, 3, 2, 2, bias=n == 2, padding_mode=mode, on=x)
        for mode in ("zeros", "reflect", "replicate", "circular")
        for n, x in ((1, LINE), (2, PIXELS), (3, VOLUME))
    ],
    layer("Conv2d", 4, 4, (3, 2), padding="same", padding_mode="circular", on=PIXELS),
    *[
        layer(f"ConvTranspose{n}d", x.shape[1], 3, 3, 2, 1, 1, padding_mode="zeros", on=x)
        for n, x in ((1, LINE), (2, PIXELS), (3, VOLUME))
    ],
    layer("Unfold", (3, 2), 1, 1, 2, on=PIXELS),
    layer("Fold", (6, 5), (3, 2), on=normal(2, 12, 16)),
    *layers("MaxPool", 3, 2, 1, 1, False, True), *layers("AvgPool", 3, 2, 1, True, False),
    layer("AvgPool2d", 3, 2, 1, divisor_override=4, on=PIXELS),
    *layers("AdaptiveAvgPool", 3), *layers("AdaptiveMaxPool", 3),
    layer("AdaptiveAvgPool2d", (None, 7), on=PIXELS),
    *layers("LPPool", 2, 3, 2),
    layer("Upsample", scale_factor=2, on=PIXELS),
    layer("Upsample", (9, 4), mode="bicubic", align_corners=True, on=PIXELS),
    layer("UpsamplingNearest2d", 9, on=PIXELS), layer("UpsamplingBilinear2d", 9, on=PIXELS),
    layer("PixelShuffle", 2, on=PIXELS), layer("PixelUnshuffle", 2, on=normal(2, 3, 4, 6)),
    layer("ChannelShuffle", 2, on=PIXELS),
    *layers("ConstantPad", 2, 1.5), *layers("ZeroPad", 1), *layers("ReflectionPad", 2),
    *layers("ReplicationPad", 2), *layers("CircularPad", 2),
    layer("ReflectionPad2d", (1, 2, 0, 3), on=PIXELS),
    *layers("BatchNorm", 4, on=(normal(3, 4, 5), PIXELS, normal(2, 4, 3, 2, 2))),
    *layers("BatchNorm", 4, training=False, on=(normal(3, 4, 5), PIXELS)),
    layer("BatchNorm2d", 4, momentum=None, bias=False, on=PIXELS),
    *layers("InstanceNorm", 4, affine=True, on=(normal(3, 4, 5), PIXELS, normal(2, 4, 3, 2, 2))),
    layer("GroupNorm", 2, 4, on=PIXELS), layer("GroupNorm", 2, 4, bias=False, on=PIXELS),
    layer("LayerNorm", 5), layer("LayerNorm", (3, 5), 1e-3, True, False, on=CUBE),
    layer("RMSNorm", 5), layer("RMSNorm", (3, 5), 1e-3, False, on=CUBE),
    layer("LocalResponseNorm", 3, on=PIXELS),
    layer("LocalResponseNorm", 2, 0.1, 0.5, 2.0, on=LINE),
    *[
        layer(name, 0.3, True, on=x, training=False, note=IN_EVALUATION)
        for name, x in (("Dropout", X), ("Dropout1d", LINE), ("Dropout2d", PIXELS),
                        ("Dropout3d", VOLUME), ("AlphaDropout", X), ("FeatureAlphaDropout", PIXELS))
    ],
    layer("RNN", 3, 5, on=STEPS), layer("RNN", 3, 5, 2, "relu", bidirectional=True, on=STEPS),
    layer("LSTM", 3, 5, 2, bidirectional=True, on=STEPS),
    layer("LSTM", 3, 5, 2, proj_size=2, on=STEPS),
    layer("LSTM", 3, 5, 2, False, True, bidirectional=True, proj_size=4, on=STEPS),
    layer("GRU", 3, 5, 2, batch_first=True, on=STEPS),
    layer("RNNCell", 3, 5, on=[STEPS[0], STATE]),
    layer("RNNCell", 3, 5, False, "relu", on=STEPS[0]),
    layer("GRUCell", 3, 5, on=[STEPS[0], STATE]), layer("LSTMCell", 3, 5, on=STEPS[0]),
    layer("LSTMCell", 3, 5, on=[STEPS[0], STATE, CELL],
          call=lambda layer, x, h, c: layer(x, (h, c))),
    layer("MultiheadAttention", 6, 2, on=[WORDS, WORDS, WORDS]),
    layer("MultiheadAttention", 6, 3, kdim=4, vdim=5, on=[WORDS, normal(4, 2, 4), normal(4, 2, 5)]),
    layer("MultiheadAttention", 6, 2, add_bias_kv=True, add_zero_attn=True,
          on=[WORDS, MEMORY, MEMORY]),
    layer("MultiheadAttention", 6, 2, add_bias_kv=True, on=[WORDS],
          call=lambda layer, x: layer(
              x, x, x, attn_mask=_like(layer, np.triu(np.full((3, 3), -1e9), 1), x))),
    layer("TransformerEncoderLayer", 6, 2, 8, 0.0, on=WORDS, call=with_masks),
    layer("TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", 1e-3, True, True, False, on=WORDS),
    layer("TransformerDecoderLayer", 6, 2, 8, 0.0, on=[WORDS, MEMORY], call=with_masks),
    layer("TransformerDecoderLayer", 6, 2, 8, 0.0, "gelu", 1e-3, norm_first=True,
          on=[WORDS, MEMORY]),
    layer("Transformer", 6, 2, 1, 2, 8, 0.0, on=[WORDS, MEMORY]),
    layer("L1Loss", on=[X, Y]), layer("MSELoss", reduction="sum", on=[X, Y]),
    layer("SmoothL1Loss", beta=0.5, on=[X, Y]),
    layer("HuberLoss", "none", 0.5, on=[X, Y]), layer("CrossEntropyLoss", on=[X, LABELS]),
    layer("CrossEntropyLoss", WEIGHT, ignore_index=4, label_smoothing=0.1, on=[X, LABELS]),
    layer("NLLLoss", WEIGHT, on=[LOG_SHARES, LABELS]), layer("BCELoss", on=[U, SHARES]),
    layer("BCEWithLogitsLoss", pos_weight=WEIGHT, on=[X, SHARES]),
    layer("KLDivLoss", reduction="batchmean", log_target=True, on=[LOG_SHARES, np.log(SHARES)]),
    layer("PoissonNLLLoss", full=True, on=[X, P]), layer("GaussianNLLLoss", on=[X, Y, P]),
    layer("SoftMarginLoss", on=[X, FLAGS * 2 - 1]), layer("HingeEmbeddingLoss", 0.5, on=[X, SIGNS]),
    layer("MarginRankingLoss", 0.3, on=[X, Y, np.sign(Z)]),
    layer("CosineEmbeddingLoss", 0.1, on=[X, Y, np.array([1.0, -1.0, 1.0])]),
    layer("MultiMarginLoss", 2, 0.5, WEIGHT, on=[X, LABELS]),
    layer("MultiLabelSoftMarginLoss", on=[X, np.round(U)]),
    layer("TripletMarginLoss", 2.0, on=[X, Y, Z]),
    layer("TripletMarginWithDistanceLoss", margin=2.0, swap=True, on=[X, Y, Z]),
]  # fmt: skip


# What there is not, and what is compared elsewhere
# -----------------------------------------------------------------------------

ROWS = TENSORS + FUNCTIONS

_RANDOM = "random numbers belong to layers, which draw the same ones on every backend"
_MASKS = "layers draw masks: `Dropout` and its like"
_LAZY = "shapes are given, since start values are drawn by them"
_VALUES = "its shape depends on values, which a compiled program does not know"
_OLD = "PyTorch has deprecated it"
_KERNEL = "a kernel for some GPUs"

# Compared by other tests: what the docs say of them.
ELSEWHERE = {
    "Sequential": "of blocks, or of a dict of them",
    "ModuleList": "with `append` and `extend`",
    "ModuleDict": "",
    "ParameterList": "",
    "ParameterDict": "",
    "TransformerEncoder": "layers draw start values of their own",
    "TransformerDecoder": "layers draw start values of their own",
}

ABSENT_LAYERS = {
    "Module": "`deliralike.Network`",
    "DataParallel": "`deliralike.DataParallel`",
    "SyncBatchNorm": "a setting of `deliralike.DataParallel`",
    "AdaptiveLogSoftmaxWithLoss": _VALUES,
    "LinearCrossEntropyLoss": "a fused kernel: `Linear` and `CrossEntropyLoss`",
    "RReLU": _RANDOM,
    **{f"FractionalMaxPool{n}d": _RANDOM for n in (2, 3)},
    **{f"Lazy{kind}{n}d": _LAZY for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
       for n in (1, 2, 3)},
    "LazyLinear": _LAZY,
    **dict.fromkeys(("Container", "NLLLoss2d", "CrossMapLRN2d"), _OLD),
    **dict.fromkeys(("RNNBase", "RNNCellBase"), "a base, not a layer"),
}  # fmt: skip

ABSENT_FUNCTIONS = {
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _MASKS),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), _MASKS),
    **dict.fromkeys(("gumbel_softmax", "rrelu"), _RANDOM),
    **{f"fractional_max_pool{n}d": _RANDOM for n in (2, 3)},
    "linear_cross_entropy": "a fused kernel: `linear` and `cross_entropy`",
    "multi_head_attention_forward": "the layer `MultiheadAttention`",
    "conv_tbc": "`conv1d` after `permute`",
    **dict.fromkeys(("grouped_mm", "scaled_mm", "scaled_grouped_mm"), _KERNEL),
    **dict.fromkeys(("upsample_bilinear", "upsample_nearest"), _OLD),
}
_INTERNAL = {"assert_int_or_pair", "boolean_dispatch", "native_channel_shuffle"}

ABSENT_TENSORS = {
    **dict.fromkeys(("masked_select", "nonzero", "unique", "bincount"), _VALUES),
    **dict.fromkeys(("rand", "randn", "randint", "bernoulli", "normal", "multinomial"), _RANDOM),
    "tensor": "`nn.constant`",
    "empty": "`zeros`", "item": "`nn.concrete`, outside of compiled programs",
    "take": "ours has an axis, `take(x, index, dim)`; without one there is `take_along_dim`",
    "select": "ours takes an array of positions, `select(x, index, dim)`; else there is `x[...]`",
    **dict.fromkeys(("complex", "fft", "stft"), "complex numbers are not portable"),
}  # fmt: skip


def layers_of_pytorch():
    """The names of all layers in `torch.nn`."""
    classes = {name: value for name, value in vars(torch.nn).items() if isinstance(value, type)}
    return {name for name, value in classes.items() if issubclass(value, torch.nn.Module)}


def functions_of_pytorch():
    """The names of all functions in `torch.nn.functional` that return something new."""
    found = set()
    for name in dir(F):
        is_public = name[0].islower() and callable(getattr(F, name)) and not name.endswith("_")
        is_own = "torch_function" not in name and not name.endswith("_with_indices")
        if is_public and is_own and name not in _INTERNAL:
            found.add(name)
    return found


# The page of the docs
# -----------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pytorch.md"
_INTRODUCTION = """# PyTorch's names

What `torch.nn`, `torch.nn.functional` and PyTorch's functions of tensors are called is what they
are called here, with the same arguments in the same order and with the same defaults. A few
conventions hold for all of them:

- Arrays are given by position. Arguments that name memory or a device (`out`, `dtype`, `device`),
  and those that PyTorch has deprecated (`size_average`, `reduce`), are not taken. `inplace` of
  functions and layers is taken and has no effect: nothing writes over its input, which may be read
  again.
- Functions with several results give tuples. No function changes its arguments.
- Older names stay: `concatenate`, `expand_dims`, `bce_with_logits`, `kl_divergence`, `attention`,
  and `pad` with pairs.

*Agrees to* is the largest deviation from PyTorch {version} in float64, of values and of gradients
with respect to inputs and parameters, relative to the largest element, over all calls that are
compared, on PyTorch, Chainer and JAX. Corners are among them: ties, zeros, bounds.
`python -m tests.nn.vocabulary` measures it and writes this page.

Of {layers} layers in `torch.nn` {have_layers} are here, and of {functions} functions
in `torch.nn.functional` {have_functions}.
"""


def entries():
    """The rows of the page by section: name, the rows that are measured, and a remark."""
    sections = {}
    tables = {
        "Layers": (LAYERS, layers_of_pytorch(), ELSEWHERE, ABSENT_LAYERS),
        "Functions": (FUNCTIONS, functions_of_pytorch(), {}, ABSENT_FUNCTIONS),
        "Functions of tensors": (TENSORS, set(), {}, ABSENT_TENSORS),
    }
    for title, (rows, names, elsewhere, absent) in tables.items():
        by_name = {}
        for row in rows:
            by_name.setdefault(row.name, []).append(row)
        names = sorted(set(names) | set(by_name) | set(absent))
        sections[title] = [
            (name, by_name.get(name, []), _remark(name, by_name, elsewhere, absent))
            for name in names
        ]
    return sections


def _remark(name, by_name, elsewhere, absent):
    if name in by_name:
        return next((row.note for row in by_name[name] if row.note), "")
    return {**elsewhere, **absent}[name]


def page(measured):
    """The text of the page, with the deviation of each row."""
    sections = entries()
    counts = {}
    for key, title in (("layers", "Layers"), ("functions", "Functions")):
        rows = sections[title]
        counts[key] = len(rows)
        counts[f"have_{key}"] = sum(bool(found) or name in ELSEWHERE for name, found, _ in rows)
    lines = [_INTRODUCTION.format(version=torch.__version__.partition("+")[0], **counts)]
    for title, rows in sections.items():
        lines += [f"## {title}", "", "| PyTorch | here | agrees to | |", "|---|---|---|---|"]
        for name, found, remark in rows:
            ours = f"`{name}`" if found or name in ELSEWHERE else "–"
            far = _power_of_ten(max(measured[id(row)] for row in found)) if found else ""
            lines.append(f"| `{name}` | {ours} | {far} | {remark} |")
        lines.append("")
    return "\n".join(lines)


def _power_of_ten(deviation):
    if deviation <= 1e-16:
        return "1e-16"
    return f"1e{math.ceil(math.log10(deviation)):+03d}"


def main():
    """Measure all rows on all backends, and write the page."""
    measured = {}
    for name in backends.known():
        for rows in (TENSORS, FUNCTIONS, LAYERS):
            for begin in range(0, len(rows), TOGETHER):
                part = rows[begin : begin + TOGETHER]
                far = deviations(name, {str(i): row.case() for i, row in enumerate(part)})
                for row, deviation in zip(part, far.values(), strict=True):
                    measured[id(row)] = max(measured.get(id(row), 0.0), deviation)
    PAGE.write_text(page(measured))


if __name__ == "__main__":
    main()
