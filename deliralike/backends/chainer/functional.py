"""The vocabulary's functions on variables: Chainer's own where they fit, else those of `nodes`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike import random
from deliralike.backends.chainer import arrays
from deliralike.backends.chainer import random as rng
from deliralike.backends.chainer.arrays import Variable, array_module, chainer, raw
from deliralike.backends.chainer.kernels import (
    convolution,
    nodes,
    norms,
    recurrence,
    windows,
)
from deliralike.backends.chainer.kernels.fused import SiLU, are_plain
from deliralike.backends.chainer.kernels.geometry import Geometry
from deliralike.backends.chainer.kernels.windows import windows_over
from deliralike.backends.chainer.network import BufferValue, Parameter
from deliralike.errors import DtypeError, ShapeError
from deliralike.network.construction import Construction, require_construction
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.functional import Functions
from deliralike.nn.geometry import conv_size, conv_transposed_sizes
from deliralike.nn.primitives import axis_of, of_one_array
from deliralike.nn.start import Distribution

F = chainer.functions


class ChainerFunctions(Functions):
    """Functions of variables and arrays.

    Floating results are variables; whole numbers and truth values are arrays.
    """

    argument_errors = Functions.argument_errors | {
        AssertionError,
        RuntimeError,
        chainer.utils.type_check.InvalidType,
    }

    # Parameters
    # ------------------------------------------------------------

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        if isinstance(start, np.ndarray):
            return Parameter(_place(start, construction))
        parameter = Parameter(_place(np.zeros(tuple(shape)), construction))
        parameter.initializer = Redraw(start, construction.dtype)
        return construction.declare(parameter, start)

    def Buffer(self, value):
        if value is None:
            return None
        construction = require_construction("a buffer")
        return BufferValue(_place(value, construction))

    # Arrays
    # ------------------------------------------------------------

    def constant(self, value, like):
        value = raw(value) if arrays.is_array(value) else np.asarray(value)
        both_float = value.dtype.kind == like.dtype.kind == "f"
        return array_module(like).array(value, dtype=like.dtype if both_float else None)

    def zeros(self, shape, like):
        return array_module(like).zeros(tuple(shape), like.dtype)

    def cast(self, x, dtype):
        dtype = arrays.find_dtype(dtype) if isinstance(dtype, str) else dtype.dtype
        if x.dtype.kind == dtype.kind == "f":
            return F.cast(_not_scalar(x), dtype)
        values = array_module(x).asarray(raw(x).astype(dtype))
        return chainer.as_variable(values) if dtype.kind == "f" else values

    def stop_gradient(self, x):
        # whole numbers are plain arrays, as everywhere here
        return chainer.as_variable(raw(x)) if x.dtype.kind == "f" else raw(x)

    def concrete(self, x):
        x = raw(x)
        return x if isinstance(x, np.ndarray) else None

    # Element by element
    # ------------------------------------------------------------

    exp = of_one_array(F.exp)
    log = of_one_array(F.log)
    sqrt = of_one_array(F.sqrt)
    sin = of_one_array(F.sin)
    cos = of_one_array(F.cos)
    tanh = of_one_array(F.tanh)
    erf = of_one_array(F.erf)

    def sigmoid(self, x):
        return nodes.Sigmoid().apply((x,))[0]

    def exact_softplus(self, x):
        return nodes.Softplus().apply((x,))[0]

    def relu(self, x, inplace=False):
        if x.dtype.kind != "f":
            return array_module(x).maximum(raw(x), 0)
        return nodes.ReLU().apply((x,))[0]

    def relu6(self, x, inplace=False):
        if x.dtype.kind != "f":
            return super().relu6(x)
        return nodes.ReLU(cap=6.0).apply((x,))[0]

    def silu(self, x, inplace=False):
        if not are_plain(x):
            return super().silu(x)
        return SiLU(super().silu).of(x)[0]

    def abs(self, x):
        if x.dtype.kind != "f":
            return array_module(x).abs(raw(x))
        return F.absolute(x)

    floor = of_one_array(F.floor)
    atan = of_one_array(F.arctan)

    def fmod(self, x, other):
        if x.dtype.kind != "f":
            return super().fmod(x, other)
        return nodes.Fmod().apply(F.broadcast(x, self._array(other, x)))[0]

    log1p = of_one_array(F.log1p)
    expm1 = of_one_array(F.expm1)
    erfc = of_one_array(F.erfc)

    def where(self, condition, x, y):
        x, y = _not_scalar(x), _not_scalar(y)
        like = x if arrays.is_array(x) else y
        if not arrays.is_array(like):
            xp = array_module(condition)
            values = xp.where(raw(condition), x, y).astype(chainer.config.dtype)
            return chainer.as_variable(values)
        xp = array_module(like)
        condition = xp.asarray(raw(condition))
        if not arrays.is_array(x):
            x = xp.asarray(x, dtype=like.dtype)
        if not arrays.is_array(y):
            y = xp.asarray(y, dtype=like.dtype)
        if like.dtype.kind == "f":
            return F.where(condition, x, y)
        return xp.where(condition, raw(x), raw(y))

    # Reductions
    # ------------------------------------------------------------

    def sum(self, x, dim=None, keepdim=False):
        if x.dtype.kind != "f":
            return array_module(x).asarray(raw(x).sum(_axes(dim), keepdims=keepdim))
        return F.sum(x, _axes(dim), keepdim)

    def mean(self, x, dim=None, keepdim=False):
        if not x.size:  # Chainer's own divides by zero
            return F.sum(x, _axes(dim), keepdim) * np.nan
        return F.mean(x, _axes(dim), keepdims=keepdim)

    def max_along(self, x, dim, keepdim=False):
        axis = axis_of(dim, x.ndim)
        positions = array_module(x).expand_dims(self.argmax_along(x, axis), axis)
        values = self.select_along(x, positions, axis)
        return values if keepdim else F.squeeze(values, axis)

    def argmax_along(self, x, dim):
        return array_module(x).asarray(raw(x).argmax(dim))

    @in_float32
    def log_softmax(self, x, dim):
        dim = axis_of(dim, x.ndim)
        if not x.size:
            return x
        # Chainer's own subtracts the logarithm of the sum as a number of the size of `x`
        largest = raw(x).max(dim, keepdims=True)
        return F.log_softmax(x - largest, dim)

    @in_float32
    def softmax(self, x, dim):
        dim = axis_of(dim, x.ndim)
        return F.softmax(x, dim) if x.size else x

    # Shapes
    # ------------------------------------------------------------

    def reshape(self, x, shape):
        if x.dtype.kind != "f":  # NumPy compares an array without axes to a number
            return raw(x).reshape(tuple(shape))
        return F.reshape(x, tuple(shape))

    def permute(self, x, dims):
        return _plain_unless_floating(F.transpose(x, tuple(dims)))

    def broadcast_to(self, x, shape):
        return _plain_unless_floating(F.broadcast_to(x, tuple(shape)))

    def concatenate(self, arrays, dim=0):
        return _plain_unless_floating(F.concat(arrays, dim))

    def pad_constant(self, x, pads, value=0.0):
        if x.dtype.kind == "f" and not any(map(any, pads)):
            return x
        return _apply(nodes.Pad(pads, value), x)

    def flip_along(self, x, dim):
        return _plain_unless_floating(F.flip(x, dim))

    def select(self, x, index, dim):
        return _apply(nodes.select(raw(index), axis_of(dim, x.ndim)), x)

    def select_along(self, x, index, dim):
        return _apply(nodes.select_along(raw(index), axis_of(dim, x.ndim)), x)

    def scatter_add(self, x, dim, index, src):
        self.checked(index, checks.InRange(x.shape[dim], "scatter_add: index"))
        collected = nodes.select_along(raw(index), axis_of(dim, x.ndim)).transposed(
            x.shape
        )
        return x + _apply(collected, src)

    def argsort_along(self, x, dim):
        return raw(x).argsort(dim, kind="stable")

    @in_float32
    def cumsum(self, x, dim):
        if x.dtype.kind != "f":
            return raw(x).cumsum(dim)
        return F.cumsum(x, axis_of(dim, x.ndim))

    # Products and windows
    # ------------------------------------------------------------

    def matmul(self, x, y):
        return F.matmul(x, y)

    def einsum(self, equation, *arrays):
        if arrays[0].dtype.kind != "f":
            return array_module(arrays[0]).einsum(equation, *map(raw, arrays))
        return F.einsum(equation, *arrays)

    def linear(self, x, weight, bias=None):
        if x.shape[-1] != weight.shape[1]:
            raise ShapeError(
                f"linear: x of shape {x.shape} does not fit a weight of shape {weight.shape}"
            )
        if x.ndim == 2:
            return F.linear(x, weight, bias)
        rows = F.reshape(x, (-1, x.shape[-1]))
        y = F.linear(rows, weight, bias)
        return F.reshape(y, (*x.shape[:-1], weight.shape[0]))

    def convolve(self, x, weight, stride, pads, dilation, groups):
        return self._convolve_with_bias(x, weight, None, stride, pads, dilation, groups)

    def _convolve_with_bias(self, x, weight, bias, stride, pads, dilation, groups):
        if bias is not None and not are_plain(x, weight, bias):
            y = self.convolve(x, weight, stride, pads, dilation, groups)
            return self._add_bias(y, bias)
        _check_product("convolve", x, weight, weight.shape[1] * groups)
        if any(before < 0 or after < 0 for before, after in pads):
            x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
            pads = ((0, 0),) * len(pads)
        kernel = weight.shape[2:]
        size = x.shape[2:]
        count = tuple(map(conv_size, size, kernel, stride, pads, dilation))
        geometry = Geometry(
            tuple(stride), tuple(pads), tuple(dilation), groups, kernel, size, count
        )
        inputs = (x, weight) if bias is None else (x, weight, bias)
        return convolution.Convolve(geometry).apply(inputs)[0]

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        _check_product("convolve_transposed", x, weight, weight.shape[0])
        kernel = weight.shape[2:]
        count = x.shape[2:]
        size = conv_transposed_sizes(
            count, kernel, stride, padding, dilation, output_padding
        )
        pads = tuple((p, p) for p in padding)
        geometry = Geometry(
            tuple(stride), pads, tuple(dilation), groups, kernel, size, count
        )
        return convolution.Product(geometry, "x").apply((x, weight))[0]

    def max_windows(self, x, kernel, stride, pads, dilation):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads), -np.inf)
        over = windows_over(x.shape[2:], kernel, stride, dilation)
        return windows.MaxWindows(over, [before for before, _ in pads]).apply((x,))[0]

    def sum_windows(self, x, kernel, stride, pads):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        # One axis after the other: k1 + k2 additions for k1 * k2.
        for axis, (k, s) in enumerate(zip(kernel, stride, strict=True)):
            if k > 1 or s > 1:
                x = _sum_along(x, axis, k, s)
        return x

    # Norms
    # ------------------------------------------------------------

    def batch_norm(self, x, mean, var, weight=None, bias=None, eps=1e-5):
        weight, bias = _scale_and_shift(x, weight, bias)
        axes = (0, *range(2, x.ndim))
        return F.fixed_batch_normalization(x, weight, bias, mean, var, eps, axis=axes)

    def batch_norm_train(self, x, weight=None, bias=None, eps=1e-5):
        composed = partial(super().batch_norm_train, eps=eps)
        if not are_plain(x, weight, bias):
            return composed(x, weight, bias)
        return norms.BatchNorm(composed, eps).of(x, weight, bias)

    def group_norm(self, x, num_groups, weight=None, bias=None, eps=1e-5):
        super_norm = super().group_norm
        if not are_plain(x, weight, bias) or x.shape[1] % num_groups:
            return super_norm(x, num_groups, weight, bias, eps)

        def composed(x, weight, bias):
            return super_norm(x, num_groups, weight, bias, eps)

        return norms.GroupNorm(composed, num_groups, eps).of(x, weight, bias)[0]

    def _standardise(self, x, dims, eps):
        rows, width = math.prod(x.shape[: dims[0]]), math.prod(x.shape[dims[0] :])
        y = self.group_norm(F.reshape(x, (rows, 1, width)), 1, eps=eps)
        return F.reshape(y, x.shape)

    # Activations
    # ------------------------------------------------------------

    def leaky_relu(self, x, negative_slope=0.01, inplace=False):
        if x.dtype.kind != "f" or not 0 < negative_slope < 1:
            return super().leaky_relu(x, negative_slope)
        # a choice by signs takes NumPy ten times as long as a product
        return x * negative_slope + self.relu(x) * (1.0 - negative_slope)

    # Recurrence
    # ------------------------------------------------------------

    def lstm(
        self, x, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr=None
    ):
        arguments = (x, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
        if not are_plain(*arguments):
            return super().lstm(*arguments)
        return recurrence.LSTM(super().lstm).of(*arguments)

    def gru(self, x, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
        arguments = (x, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
        if not are_plain(*arguments):
            return super().gru(*arguments)
        return recurrence.GRU(super().gru).of(*arguments)

    # Control flow and random masks
    # ------------------------------------------------------------

    def gradient(self, function, x):
        with chainer.force_backprop_mode():
            if not isinstance(x, Variable) or not x.requires_grad:
                x = Variable(raw(x))
            at = F.identity(x)
            value = function(at)
            checks.scalar(value, "gradient: the function's value")
            value = chainer.as_variable(value)
            (gradient,) = chainer.grad([value], [at], enable_double_backprop=True)
        if gradient is None:
            return chainer.as_variable(array_module(at).zeros_like(at.array))
        return gradient

    def scan(self, step, carry, xs):
        outputs = []
        step = random.drawing_the_same(step)
        for x in F.separate(xs, 0):
            carry, y = step(carry, x)
            outputs.append(y)
        return carry, F.stack(outputs, 0)

    def draw(
        self, layer: Any, shape: Sequence[int], like: Any, kind: str, p: float = 0.0
    ) -> Any:
        stream = random.current()
        xp = array_module(like)
        if stream is not None:
            path = layer.block_path
            draw = stream.next_draw(path, "chainer")
            numbers = random.numbers(stream, path, tuple(shape), kind, p, draw)
            numbers = xp.asarray(numbers)
        else:
            numbers = rng.numbers(kind, shape, xp)
            numbers = numbers >= p if kind == "keep" else numbers
        return chainer.as_variable(numbers.astype(like.dtype))


class Redraw(chainer.Initializer):
    """An initializer that draws fresh start values from Chainer's own generator.

    Chainer calls it in ``link.copy("init")``, for example.
    """

    def __init__(self, start: Distribution, dtype: str) -> None:
        super().__init__(np.dtype(dtype))
        self.start = start

    def __call__(self, array: Any) -> None:
        """Fill an array."""
        generator = np.random.default_rng(np.random.randint(2**31))
        values = self.start.draw(generator, array.shape).astype(array.dtype)
        array[...] = array_module(array).asarray(values)


def _place(value: Any, construction: Construction) -> Any:
    """Return a copy on the device of the network under construction; floats get its type."""
    value = np.asarray(value)
    dtype = construction.dtype if value.dtype.kind == "f" else None
    return arrays.array(value, dtype, construction.device)


def _plain_unless_floating(y: Variable) -> Any:
    """Return a variable of floating numbers, and the array of any other."""
    return y if y.dtype.kind == "f" else y.array


def _apply(node: Any, x: Any) -> Any:
    """Apply a function node to a variable; arrays that are not floating need no graph."""
    if x.dtype.kind == "f":
        return node.apply((x,))[0]
    return node.forward((raw(x),))[0]


def _sum_along(x: Any, axis: int, kernel: int, stride: int) -> Any:
    """Return the sums of windows along one of the axes after the channels."""
    ones = (1,) * (x.ndim - 2)
    kernels = (*ones[:axis], kernel, *ones[axis + 1 :])
    strides = (*ones[:axis], stride, *ones[axis + 1 :])
    over = windows_over(x.shape[2:], kernels, strides, ones)
    return windows.sum_windows(over).apply((x,))[0]


def _check_product(name: str, x: Any, weight: Any, channels: int) -> None:
    """Raise an error unless a kernel fits the input and has its type."""
    if x.ndim != weight.ndim or x.shape[1] != channels:
        raise ShapeError(
            f"{name}: an input of shape {x.shape} does not fit a weight of shape {weight.shape}"
        )
    if x.dtype != weight.dtype:
        raise DtypeError(
            f"{name}: an input of {x.dtype} does not fit a weight of {weight.dtype}: convert one "
            "of them"
        )


def _not_scalar(x: Any) -> Any:
    """Return an array in the place of NumPy's scalar, which it makes of arrays without axes."""
    return np.asarray(x) if isinstance(x, np.generic) else x


def _axes(dim: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if dim is None:
        return None
    return (int(dim),) if isinstance(dim, int | np.integer) else tuple(map(int, dim))


def _scale_and_shift(x: Variable, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Return scale and shift of each channel: one and zero where they are None."""
    xp = array_module(x)
    channels = x.shape[1]
    if weight is None:
        weight = xp.ones(channels, x.dtype)
    if bias is None:
        bias = xp.zeros(channels, x.dtype)
    return weight, bias
