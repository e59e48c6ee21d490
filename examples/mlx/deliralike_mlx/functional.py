"""The primitives of the vocabulary in MLX.

In float64 MLX computes some functions with the precision of float32, and has no convolution on a
CPU; both are written here from what it computes in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from scipy import special

from deliralike import random
from deliralike.network.construction import require_construction
from deliralike.nn import checks
from deliralike.nn.functional import Functions
from deliralike_mlx.arrays import dtype_named, from_host, is_floating
from deliralike_mlx.network import BufferValue, StateValue

Array = mx.array


def _of_host(
    function: Callable[[np.ndarray], np.ndarray], derivative: Callable[[Array], Array]
) -> Callable[[Array], Array]:
    """Return a function that NumPy computes on the host, with its derivative."""

    @mx.custom_function
    def compute(x: Array) -> Array:
        return from_host(function(np.array(x)))

    @compute.vjp
    def pull_back(x: Array, cotangent: Array, y: Array) -> Array:
        return cotangent * derivative(x)

    return compute


_sin = _of_host(np.sin, lambda x: _cos(x))
_cos = _of_host(np.cos, lambda x: -_sin(x))
_erf = _of_host(special.erf, lambda x: 2 / math.sqrt(math.pi) * _exp(-x * x))


def _exp(x: Array) -> Array:
    # The power is computed in double precision, the exponential is not.
    return mx.power(math.e, x) if x.dtype == mx.float64 else mx.exp(x)


@mx.custom_function
def _where(condition: Array, x: Array, y: Array) -> Array:
    return mx.where(condition, x, y)


@_where.vjp
def _where_pull_back(primals: Any, cotangent: Array, result: Array) -> Any:
    # MLX's own gradient is a product with a mask, which keeps the NaN of an element not looked at.
    condition = primals[0]
    zeros = mx.zeros_like(cotangent)
    of_x = mx.where(condition, cotangent, zeros)
    of_y = mx.where(condition, zeros, cotangent)
    return mx.zeros_like(condition), of_x, of_y


def _windows(
    x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Return the elements of each window along a new third axis, in row-major order."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    counts = [
        (size - span) // s + 1
        for size, span, s in zip(x.shape[2:], spans, stride, strict=True)
    ]
    columns = []
    for offsets in itertools.product(*map(range, kernel)):
        place: list[slice] = [slice(None), slice(None)]
        for offset, d, s, count in zip(offsets, dilation, stride, counts, strict=True):
            start = offset * d
            place.append(slice(start, start + (count - 1) * s + 1, s))
        columns.append(x[tuple(place)])
    return mx.stack(columns, axis=2)


def _spread(x: Array, axis: int, step: int) -> Array:
    """Put ``step - 1`` zeros between the elements along an axis."""
    if step == 1:
        return x
    shape = list(x.shape)
    widths = [(0, 0)] * (x.ndim + 1)
    widths[axis + 1] = (0, step - 1)
    padded = mx.pad(mx.expand_dims(x, axis + 1), widths)
    shape[axis] *= step
    place = [slice(None)] * x.ndim
    place[axis] = slice(0, shape[axis] - step + 1)
    return padded.reshape(shape)[tuple(place)]


class MLXFunctions(Functions):
    """The functions of `nn` on MLX."""

    # Parameters

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        dtype = dtype_named(construction.dtype)
        if isinstance(start, np.ndarray):
            return from_host(start).astype(dtype)
        return construction.declare(mx.zeros(tuple(shape), dtype), start)

    def Buffer(self, value):
        if value is None:
            return None
        construction = require_construction("a buffer")
        array = from_host(value)
        if is_floating(array):
            array = array.astype(dtype_named(construction.dtype))
        return BufferValue(array)

    def State(self, shape, like):
        return StateValue(self.zeros(shape, like))

    # Arrays

    def constant(self, value, like):
        array = from_host(value)
        return array.astype(like.dtype) if is_floating(array) else array

    def zeros(self, shape, like):
        return mx.zeros(tuple(shape), like.dtype)

    def cast(self, x, dtype):
        return x.astype(dtype_named(dtype) if isinstance(dtype, str) else dtype.dtype)

    def stop_gradient(self, x):
        return mx.stop_gradient(x)

    def concrete(self, x):
        return np.array(x)

    # Element by element

    def exp(self, x):
        return _exp(x)

    def log(self, x):
        return mx.log(x)

    def sqrt(self, x):
        return mx.sqrt(x)

    def sin(self, x):
        return _sin(x) if x.dtype == mx.float64 else mx.sin(x)

    def cos(self, x):
        return _cos(x) if x.dtype == mx.float64 else mx.cos(x)

    def tanh(self, x):
        return mx.tanh(x)

    def erf(self, x):
        return _erf(x) if x.dtype == mx.float64 else mx.erf(x)

    def sigmoid(self, x):
        small = self.exp(mx.where(x < 0, x, -x))  # at most 1
        return mx.where(x < 0, small, 1.0) / (1.0 + small)

    def exact_softplus(self, x):
        small = self.exp(mx.where(x < 0, x, -x))
        return mx.where(x < 0, 0.0, x) + mx.log1p(small)

    def relu(self, x, inplace=False):
        return self.where(x <= 0, 0.0, x)  # NaN stays

    def abs(self, x):
        return mx.abs(x)

    def floor(self, x):
        return mx.floor(x)

    def atan(self, x):
        return mx.arctan(x)

    def where(self, condition, x, y):
        result = mx.where(condition, x, y)
        x = mx.broadcast_to(mx.array(x, result.dtype), result.shape)
        y = mx.broadcast_to(mx.array(y, result.dtype), result.shape)
        condition = mx.broadcast_to(mx.stop_gradient(condition), result.shape)
        return _where(condition, x, y)

    # Reductions

    def sum(self, x, dim=None, keepdim=False):
        return mx.sum(x, axis=dim, keepdims=keepdim)

    def mean(self, x, dim=None, keepdim=False):
        return mx.mean(x, axis=dim, keepdims=keepdim)

    def argmax_along(self, x, dim):
        index = mx.argmax(x, axis=dim)
        if is_floating(x):  # the first NaN is the maximum
            unknown = x != x
            is_known = ~mx.any(unknown, axis=dim)
            index = mx.where(is_known, index, mx.argmax(unknown, axis=dim))
        return mx.stop_gradient(index.astype(mx.int64))

    def max_along(self, x, dim, keepdim=False):
        index = mx.expand_dims(self.argmax_along(x, dim), dim)
        largest = mx.take_along_axis(x, index, axis=dim)
        return largest if keepdim else mx.squeeze(largest, dim)

    def log_softmax(self, x, dim):
        largest = mx.stop_gradient(mx.max(x, axis=dim, keepdims=True))
        shifted = x - largest
        return shifted - mx.log(mx.sum(self.exp(shifted), axis=dim, keepdims=True))

    # Shapes

    def reshape(self, x, shape):
        return mx.reshape(x, tuple(shape))

    def permute(self, x, dims):
        return mx.transpose(x, tuple(dims))

    def broadcast_to(self, x, shape):
        return mx.broadcast_to(x, tuple(shape))

    def concatenate(self, arrays, dim=0):
        return mx.concatenate(list(arrays), axis=dim)

    def pad_constant(self, x, pads, value=0.0):
        place = []
        widths = []
        for size, (before, after) in zip(x.shape, pads, strict=True):
            place.append(slice(max(-before, 0), size - max(-after, 0)))
            widths.append((max(before, 0), max(after, 0)))
        return mx.pad(x[tuple(place)], widths, constant_values=value)

    def flip_along(self, x, dim):
        place = [slice(None)] * x.ndim
        place[dim] = slice(None, None, -1)
        return x[tuple(place)]

    def select(self, x, index, dim):
        return mx.take(x, index, axis=dim)

    def select_along(self, x, index, dim):
        return x[self._places(index, dim)]

    def scatter_add(self, x, dim, index, src):
        return x.at[self._places(index, dim)].add(src)

    def _places(self, index, dim):
        """Return the index of each axis that `index` along one axis stands for."""
        places = []
        for axis, size in enumerate(index.shape):
            shape = [1] * index.ndim
            shape[axis] = size
            places.append(mx.arange(size).reshape(shape))
        places[dim] = index
        return tuple(places)

    def argsort_along(self, x, dim):
        return mx.stop_gradient(mx.argsort(x, axis=dim).astype(mx.int64))

    # Products and windows

    def matmul(self, x, y):
        return mx.matmul(x, y)

    def einsum(self, equation, *arrays):
        return mx.einsum(equation, *arrays)

    def convolve(self, x, weight, stride, pads, dilation, groups):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        kernel = weight.shape[2:]
        columns = _windows(x, kernel, stride, dilation)
        batch, channels, elements, *sizes = columns.shape
        outputs = weight.shape[0]
        columns = columns.reshape(
            batch, groups, channels // groups * elements, math.prod(sizes)
        )
        y = weight.reshape(1, groups, outputs // groups, -1) @ columns
        return y.reshape(batch, outputs, *sizes)

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        kernel = weight.shape[2:]
        pads = []
        for axis, k in enumerate(kernel):
            x = _spread(x, axis + 2, stride[axis])
            edge = dilation[axis] * (k - 1) - padding[axis]
            pads.append((edge, edge + output_padding[axis]))
        inputs, outputs = weight.shape[:2]
        by_group = weight.reshape(groups, inputs // groups, outputs, *kernel)
        turned = mx.swapaxes(by_group, 1, 2)
        turned = turned.reshape(groups * outputs, inputs // groups, *kernel)
        for axis in range(2, turned.ndim):
            turned = self.flip_along(turned, axis)
        ones = (1,) * len(kernel)
        return self.convolve(x, turned, ones, tuple(pads), dilation, groups)

    def max_windows(self, x, kernel, stride, pads, dilation):
        pads = ((0, 0), (0, 0), *pads)
        padded = self.pad_constant(x, pads, -math.inf)
        inside = self.pad_constant(mx.ones_like(x), pads)
        windows = _windows(padded, kernel, stride, dilation)
        values = mx.stop_gradient(windows)
        is_largest = values == self.max_along(values, 2, keepdim=True)
        is_largest = is_largest | (values != values)
        # Padding takes no gradient, where all are minus infinity.
        is_candidate = is_largest & (_windows(inside, kernel, stride, dilation) > 0)
        first = mx.expand_dims(mx.argmax(is_candidate, axis=2), 2)
        return mx.squeeze(mx.take_along_axis(windows, first, axis=2), 2)

    def sum_windows(self, x, kernel, stride, pads):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        return mx.sum(_windows(x, kernel, stride, (1,) * len(kernel)), axis=2)

    # Control flow and random numbers

    def gradient(self, function, x):
        def scalar(x: Array) -> Array:
            value = function(x)
            checks.scalar(value, "gradient: the function's value")
            return value

        return mx.grad(scalar)(x)

    def draw(self, layer: Any, shape, like, kind, p=0.0):
        stream = random.current()
        if stream is None:
            return self._draw_native(tuple(shape), kind, p).astype(like.dtype)
        path = layer.block_path
        draw = stream.next_draw(path)
        numbers = random.numbers(stream, path, tuple(shape), kind, p, draw)
        return self.constant(numbers.astype("float64"), like=like)

    def _draw_native(self, shape: tuple[int, ...], kind: str, p: float) -> Array:
        if kind == "normal":
            return mx.random.normal(shape)
        uniform = mx.random.uniform(shape=shape)
        return uniform >= p if kind == "keep" else uniform
