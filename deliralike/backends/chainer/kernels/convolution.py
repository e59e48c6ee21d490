"""Convolution in any number of dimensions, its transpose and its weight's gradient.

The three form a triple. With ``C(x, w)`` the convolution, ``<C(x, w), y>`` is linear in each of x,
w and y, so each function's derivatives are the other two functions, to any order. Columns lie as
``(channels * kernel, batch * windows)`` and results as ``(channels, batch, ...)`` in memory, which
makes every step one matrix product without a copy; outside, shapes are as usual. On the host
`shifted` takes over where columns would be much larger than what they are copied from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import array_module, chainer
from deliralike.backends.chainer.kernels import shifted
from deliralike.backends.chainer.kernels.geometry import Geometry


class Convolve(chainer.FunctionNode):
    """The convolution ``C(x, w)``.

    Shapes:
        ``(batch, in, *size)`` and ``(out, in/groups, *kernel)`` give ``(batch, out, *count)``.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        x, w = inputs
        g = self.geometry
        grid = _grid(g, x, w.shape)
        if grid is not None:
            return (shifted.convolve(x, w, grid),)
        weight = w.reshape(g.groups, w.shape[0] // g.groups, -1)
        y = _product(weight, _columns(x, g))
        return (_channels_second(y, (w.shape[0], x.shape[0], *g.count)),)

    def backward(self, indexes, gradients):
        x, w = self.get_retained_inputs()
        (gy,) = gradients
        results = []
        if 0 in indexes:
            results += Transposed(self.geometry).apply((gy, w))
        if 1 in indexes:
            results += WeightGradient(self.geometry).apply((x, gy))
        return tuple(results)


class Transposed(chainer.FunctionNode):
    """The transpose of ``C`` in `x`.

    Shapes:
        ``(batch, out, *count)`` and the weight give ``(batch, in, *size)``.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        y, w = inputs
        g = self.geometry
        grid = _grid(g, y, w.shape)
        if grid is not None:
            turned = g.turned()
            if g.groups == 1 and turned is not None:  # fewer sums than the transpose
                grid = shifted.grid_of(turned, len(y))
                return (shifted.convolve(y, _turned(w), grid),)
            return (shifted.transpose(y, w, grid),)
        weight = w.reshape(g.groups, w.shape[0] // g.groups, -1)
        columns = _product(weight.swapaxes(1, 2), _channels_first(y, g.groups))
        channels = w.shape[1] * g.groups
        return (_add_columns(columns, (channels, y.shape[0]), g),)

    def backward(self, indexes, gradients):
        y, w = self.get_retained_inputs()
        (gx,) = gradients
        results = []
        if 0 in indexes:
            results += Convolve(self.geometry).apply((gx, w))
        if 1 in indexes:
            results += WeightGradient(self.geometry).apply((gx, y))
        return tuple(results)


class WeightGradient(chainer.FunctionNode):
    """The transpose of ``C`` in `w`.

    Shapes:
        ``(batch, in, *size)`` and ``(batch, out, *count)`` give the weight's shape.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def forward(self, inputs):
        self.retain_inputs((0, 1))
        x, y = inputs
        g = self.geometry
        grid = _grid(g, x, (y.shape[1], x.shape[1] // g.groups))
        if grid is not None:
            return (shifted.weight_gradient(x, y, grid),)
        w = _product(_channels_first(y, g.groups), _columns(x, g).swapaxes(1, 2))
        return (w.reshape(y.shape[1], x.shape[1] // g.groups, *g.kernel),)

    def backward(self, indexes, gradients):
        x, y = self.get_retained_inputs()
        (gw,) = gradients
        results = []
        if 0 in indexes:
            results += Transposed(self.geometry).apply((y, gw))
        if 1 in indexes:
            results += Convolve(self.geometry).apply((x, gw))
        return tuple(results)


# from so many elements of columns on they leave the cache
_LARGE = 1 << 20


def _grid(g: Geometry, x: Any, weight: Sequence[int]) -> shifted.Grid | None:
    """Return the grid for a convolution by shifts, where that is faster than by columns.

    Args:
        g: The windows.
        x: The input or the output.
        weight: The shape of the weight.
    """
    is_plain = isinstance(x, np.ndarray) and x.dtype.char in "fd"
    if not is_plain or not x.size or math.prod(g.kernel) == 1 or min(*g.count, *weight) < 1:
        return None
    batch = len(x)
    out, channels = weight[0] // g.groups, weight[1]
    grid = shifted.grid_of(g, batch)
    cost = grid.cost(out / channels)
    if g.groups > 1:
        return grid if cost < 1.5 else None
    windows = batch * math.prod(g.count)
    is_large = channels * math.prod(g.kernel) * windows > _LARGE
    return grid if is_large and cost < 0.7 and grid.length < 1.5 * windows else None


def _turned(w: Any) -> Any:
    """Return the kernel of the transpose as a convolution, (in, out, *kernel)."""
    return np.flip(w, tuple(range(2, w.ndim))).swapaxes(0, 1)


def _columns(x: Any, g: Geometry) -> Any:
    """Return the elements of each window: (groups, in/groups * kernel, batch * windows)."""
    if g.plain():
        return _channels_first(x, g.groups)
    xp = array_module(x)
    x = x.swapaxes(0, 1)
    if g.is_padded():
        padded = xp.zeros((*x.shape[:2], *g.padded()), x.dtype)
        padded[g.inner()] = x
        x = padded
    channels, batch = x.shape[:2]
    positions = math.prod(g.kernel)
    columns = xp.empty((channels, positions, batch, *g.count), x.dtype)
    for position, window in enumerate(g.windows().slices()):
        columns[:, position] = x[window]
    return columns.reshape(g.groups, channels // g.groups * positions, -1)


def _add_columns(columns: Any, shape: tuple[int, int], g: Geometry) -> Any:
    """Compute the transpose of `_columns`; `shape` is (in, batch)."""
    if g.plain():
        return _channels_second(columns, (*shape, *g.size))
    columns = columns.reshape(shape[0], -1, shape[1], *g.count)
    x = array_module(columns).zeros((*shape, *g.padded()), columns.dtype)
    for position, window in enumerate(g.windows().slices()):
        x[window] += columns[:, position]
    return x[g.inner()].swapaxes(0, 1)


def _channels_first(y: Any, groups: int) -> Any:
    """Reshape (batch, channels, ...) to (groups, channels/groups, batch * ...).

    The result is a view where the memory has that order already.
    """
    return y.swapaxes(0, 1).reshape(groups, y.shape[1] // groups, -1)


def _channels_second(y: Any, shape: Sequence[int]) -> Any:
    """Reshape to (batch, channels, ...), always as a view; `shape` is (channels, batch, ...)."""
    return y.reshape(shape).swapaxes(0, 1)


def _product(x: Any, y: Any) -> Any:
    """Return the matrix product of each group.

    Half precision is summed in single precision, as on a GPU.
    """
    xp = array_module(x)
    if x.dtype == np.float16 and xp is np:
        product = np.matmul(x.astype(np.float32), y.astype(np.float32))
        return product.astype(np.float16)
    return xp.matmul(x, y)
