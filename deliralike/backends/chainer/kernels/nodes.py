"""Function nodes that Chainer lacks or computes otherwise; all can be differentiated twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import array_module, chainer, cuda

F = chainer.functions
_SigmoidGrad = F.activation.sigmoid.SigmoidGrad
Pads = Sequence[tuple[int, int]]


class Sigmoid(chainer.FunctionNode):
    """The logistic function; Chainer's goes through tanh, which loses the far tail."""

    def forward(self, inputs):
        self.retain_outputs((0,))
        (x,) = inputs
        xp = array_module(x)
        small = xp.exp(-xp.abs(x))  # at most 1: no overflow on either side
        y = 1 / (1 + small)
        return (xp.asarray(xp.where(x < 0, small * y, y)),)

    def backward(self, indexes, gradients):
        (y,) = self.get_retained_outputs()
        return _SigmoidGrad((None,)).apply((y, gradients[0]))


class Softplus(chainer.FunctionNode):
    """``log(1 + exp(x))``, with the sigmoid above as derivative."""

    def forward(self, inputs):
        self.retain_inputs((0,))
        (x,) = inputs
        xp = array_module(x)
        tail = xp.log1p(xp.exp(-xp.abs(x)))
        return (xp.asarray(xp.maximum(x, 0) + tail),)

    def backward(self, indexes, gradients):
        (x,) = self.get_retained_inputs()
        return (gradients[0] * Sigmoid().apply((x,))[0],)


class Mean(chainer.FunctionNode):
    """The mean over some axes (all for None)."""

    def __init__(self, axis: tuple[int, ...] | None, keepdims: bool) -> None:
        super().__init__()
        self.axis = axis
        self.keepdims = keepdims

    def forward(self, inputs):
        (x,) = inputs
        return (array_module(x).asarray(x.mean(self.axis, keepdims=self.keepdims)),)

    def backward(self, indexes, gradients):
        (gy,) = gradients
        shape = self.inputs[0].shape
        axes = set(range(len(shape)))
        if self.axis is not None:
            axes = {axis % len(shape) for axis in self.axis}
        kept = list(shape)
        for axis in axes:
            kept[axis] = 1
        count = math.prod(shape[axis] for axis in axes)
        share = F.reshape(gy, tuple(kept)) * (1.0 / count)
        return (F.broadcast_to(share, shape),)


class Pad(chainer.FunctionNode):
    """Padding with a constant; negative numbers crop. Its derivative is the opposite padding."""

    def __init__(self, pads: Pads, value: float = 0.0) -> None:
        super().__init__()
        self.pads = tuple(pads)
        self.value = value

    def forward(self, inputs):
        (x,) = inputs
        inner = x[_without_margins(x.shape, self._opposite())]
        if all(before <= 0 and after <= 0 for before, after in self.pads):
            return (inner,)
        shape = [n + sum(pads) for n, pads in zip(x.shape, self.pads, strict=True)]
        y = array_module(x).full(shape, self.value, x.dtype)
        y[_without_margins(y.shape, self.pads)] = inner
        return (y,)

    def backward(self, indexes, gradients):
        return Pad(self._opposite()).apply(gradients)

    def _opposite(self) -> list[tuple[int, int]]:
        return [(-before, -after) for before, after in self.pads]


def _without_margins(shape: Sequence[int], margins: Pads) -> tuple[slice, ...]:
    """Return the index of an array without its positive margins, before and after on each axis."""
    axes = zip(shape, margins, strict=True)
    return tuple(slice(max(before, 0), n - max(after, 0)) for n, (before, after) in axes)


# Selecting
# ------------------------------------------------------------


class Select(chainer.FunctionNode):
    """The elements at positions along an axis."""

    def __init__(self, index: Any, axis: int) -> None:
        super().__init__()
        self.index = index
        self.axis = axis

    def forward(self, inputs):
        (x,) = inputs
        return (array_module(x).take(x, self.index, axis=self.axis),)

    def backward(self, indexes, gradients):
        return Collect(self.index, self.axis, self.inputs[0].shape[self.axis]).apply(gradients)


class Collect(chainer.FunctionNode):
    """The transpose of `Select`: gradients of the same position are summed."""

    def __init__(self, index: Any, axis: int, length: int) -> None:
        super().__init__()
        self.index = index
        self.axis = axis
        self.length = length

    def forward(self, inputs):
        (gy,) = inputs
        index = self.index
        before = gy.shape[: self.axis]
        after = gy.shape[self.axis + index.ndim :]
        gy = gy.reshape(*before, index.size, *after)
        collect = _collect_host if isinstance(gy, np.ndarray) else _collect_gpu
        return (collect(gy, index.ravel(), self.axis, self.length),)

    def backward(self, indexes, gradients):
        return Select(self.index, self.axis).apply(gradients)


def _collect_host(gy: np.ndarray, index: np.ndarray, axis: int, length: int) -> np.ndarray:
    before = gy.shape[:axis]
    after = gy.shape[axis + 1 :]
    repeats = _repeats(index, length)
    if repeats:
        return _sum_along(gy.reshape(*before, length, repeats, *after), axis + 1)
    gx = np.zeros((*before, length, *after), gy.dtype)
    if not index.size:
        return gx
    if (index[1:] < index[:-1]).any():
        order = np.argsort(index, kind="stable")
        index = index[order]
        gy = np.take(gy, order, axis)
    starts = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
    positions = (slice(None),) * axis + (index[starts],)
    gx[positions] = np.add.reduceat(gy, starts, axis)
    return gx


def _sum_along(x: np.ndarray, axis: int) -> np.ndarray:
    """Return the sum along an axis.

    NumPy's own takes 3 to 30 times as long where the axis has few elements.
    """
    if x.shape[axis] > 8:
        return x.sum(axis)
    first, *others = np.moveaxis(x, axis, 0)
    total = first.copy(order="K")
    for each in others:
        total += each
    return total


def _repeats(index: np.ndarray, length: int) -> int:
    """Return how often an index repeats each position in turn, as in nearest upsampling; else 0."""
    if not length or index.size % length:
        return 0
    repeats = index.size // length
    if repeats and (index == np.arange(index.size) // repeats).all():
        return repeats
    return 0


def _collect_gpu(gy: Any, index: Any, axis: int, length: int) -> Any:
    shape = (*gy.shape[:axis], length, *gy.shape[axis + 1 :])
    gx = cuda.cupy.zeros(shape, gy.dtype)
    cuda.cupy.add.at(gx, (slice(None),) * axis + (index,), gy)
    return gx


class SelectAlong(chainer.FunctionNode):
    """One element along an axis for each entry of an index with as many axes."""

    def __init__(self, index: Any, axis: int) -> None:
        super().__init__()
        self.index = index
        self.axis = axis

    def forward(self, inputs):
        (x,) = inputs
        inner = [slice(size) for size in self.index.shape]
        inner[self.axis] = slice(None)
        return (array_module(x).take_along_axis(x[tuple(inner)], self.index, self.axis),)

    def backward(self, indexes, gradients):
        return CollectAlong(self.index, self.axis, self.inputs[0].shape).apply(gradients)


class CollectAlong(chainer.FunctionNode):
    """The transpose of `SelectAlong`."""

    def __init__(self, index: Any, axis: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.index = index
        self.axis = axis
        self.shape = shape

    def forward(self, inputs):
        (gy,) = inputs
        xp = array_module(gy)
        grid = list(xp.ogrid[tuple(slice(n) for n in self.index.shape)])
        grid[self.axis] = self.index
        positions = tuple(grid)
        gx = xp.zeros(self.shape, gy.dtype)
        if self.index.shape[self.axis] == 1:  # nothing is taken twice
            gx[positions] = gy
        elif xp is np:
            flat = np.ravel_multi_index(positions, self.shape).ravel()
            gx.ravel()[:] = np.bincount(flat, weights=gy.ravel(), minlength=gx.size)
        else:
            cuda.cupy.add.at(gx, positions, gy)
        return (gx,)

    def backward(self, indexes, gradients):
        return SelectAlong(self.index, self.axis).apply(gradients)


class PickSum(chainer.FunctionNode):
    """The weighted sum of some elements, none of them taken twice."""

    def __init__(self, where: tuple, weights: Any) -> None:
        super().__init__()
        self.where = where
        self.weights = weights

    def forward(self, inputs):
        (x,) = inputs
        total = (x[self.where] * self.weights).sum()
        return (array_module(x).asarray(total, dtype=x.dtype),)

    def backward(self, indexes, gradients):
        return PickSpread(self.where, self.weights, self.inputs[0].shape).apply(gradients)


class PickSpread(chainer.FunctionNode):
    """The transpose of `PickSum`."""

    def __init__(self, where: tuple, weights: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.where = where
        self.weights = weights
        self.shape = shape

    def forward(self, inputs):
        (gy,) = inputs
        gx = array_module(gy).zeros(self.shape, gy.dtype)
        gx[self.where] = self.weights * gy
        return (gx,)

    def backward(self, indexes, gradients):
        return PickSum(self.where, self.weights).apply(gradients)
