"""Pooling in any number of dimensions: which elements the windows hold, their maxima and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import array_module, chainer
from deliralike.backends.chainer.kernels.nodes import LinearMap, keep_where
from deliralike.nn.geometry import conv_size, first_inside, tap_slices


@dataclass(frozen=True)
class Windows:
    """The elements of windows over the last axes: one strided slice for each kernel position."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    count: Sequence[int]

    def slices(self) -> list[tuple]:
        """Return the slices in row-major order of the kernel."""
        axes = map(tap_slices, self.kernel, self.count, self.stride, self.dilation)
        return [(..., *cut) for cut in product(*axes)]


def windows_over(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Windows:
    """Return as many windows as fit into a size."""
    pads = [(0, 0)] * len(kernel)
    count = tuple(map(conv_size, size, kernel, stride, pads, dilation))
    return Windows(kernel, stride, dilation, count)


def zeros_like(x: Any, shape: Sequence[int]) -> Any:
    """Return zeros of another shape whose axes lie in memory in the same order.

    So arithmetic with `x` runs along the memory of both.
    """
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    zeros = array_module(x).zeros([shape[axis] for axis in order], x.dtype)
    return zeros.transpose(np.argsort(order).tolist())


class MaxWindows(chainer.FunctionNode):
    """The maximum of each window; the first of equal ones takes the gradient.

    It has any number of axes, with dilation. Padding in front of the axes never takes it.
    """

    def __init__(self, windows: Windows, before: Sequence[int]) -> None:
        super().__init__()
        self.windows = windows
        self.before = before

    def forward(self, inputs):
        (x,) = inputs
        xp = array_module(x)
        first, *others = self.windows.slices()
        y = x[first].copy(order="K")
        number_type = np.min_scalar_type(len(others))
        self.argmax = xp.zeros_like(y, dtype=number_type)
        if max(self.before) > 0:
            self.argmax[...] = xp.asarray(self._first_inside())
        for number, window in enumerate(others, start=1):
            element = x[window]
            self._set_argmax(element > y, number_type.type(number))
            xp.maximum(y, element, out=y)  # propagates NaN, as PyTorch does
        return (y,)

    def _first_inside(self) -> np.ndarray:
        """Return for each window the number of its first element that is no padding."""
        w = self.windows
        number = np.zeros((), np.int64)
        for row in zip(
            w.count, w.kernel, w.stride, self.before, w.dilation, strict=True
        ):
            number = number[..., None] * row[1] + first_inside(*row)
        return number

    def _set_argmax(self, where: Any, number: Any) -> None:
        xp = array_module(self.argmax)
        if xp is np:
            np.putmask(self.argmax, where, number)
        else:  # CuPy's putmask waits for the device to count
            self.argmax = xp.where(where, number, self.argmax)

    def backward(self, indexes, gradients):
        return self._selection().transposed(self.inputs[0].shape).apply(gradients)

    def _selection(self) -> LinearMap:
        """Return the elements at the positions of the maxima."""
        windows, argmax = self.windows, self.argmax

        def function(x: Any) -> Any:
            y = array_module(x).zeros_like(argmax, dtype=x.dtype)
            for number, window in enumerate(windows.slices()):
                y += keep_where(x[window], argmax == number)
            return y

        def transpose(gy: Any, shape: tuple[int, ...]) -> Any:
            gx = zeros_like(gy, shape)
            for number, window in enumerate(windows.slices()):
                gx[window] += keep_where(gy, argmax == number)
            return gx

        return LinearMap(function, transpose)


def sum_windows(windows: Windows) -> LinearMap:
    """Return the sum of each window; in the transpose each value goes to all of its window."""

    def function(x: Any) -> Any:
        first, *others = windows.slices()
        y = x[first].copy(order="K")
        for window in others:
            y += x[window]
        return y

    def transpose(gy: Any, shape: tuple[int, ...]) -> Any:
        gx = zeros_like(gy, shape)
        for window in windows.slices():
            gx[window] += gy
        return gx

    return LinearMap(function, transpose)
