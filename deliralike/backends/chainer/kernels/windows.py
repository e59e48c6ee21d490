"""Pooling in any number of dimensions: which elements the windows hold, their maxima and sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import array_module, chainer
from deliralike.nn.geometry import conv_size


class Windows:
    """The elements of windows over the last axes: one strided slice for each kernel position."""

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        count: Sequence[int],
    ) -> None:
        """Take the shape of a window and the number of windows along each axis."""
        self.kernel = kernel
        self.stride = stride
        self.dilation = dilation
        self.count = count

    def slices(self) -> list[tuple]:
        """Return the slices in row-major order of the kernel."""
        axes = zip(self.kernel, self.dilation, strict=True)
        starts = product(*(range(0, size * step, step) for size, step in axes))
        return [self._slices_from(start) for start in starts]

    def _slices_from(self, start: Sequence[int]) -> tuple:
        """Return the index of one kernel position in all windows; `start` is the position."""
        axes = zip(start, self.stride, self.count, strict=True)
        return (..., *(slice(i, i + step * (n - 1) + 1, step) for i, step, n in axes))


def windows_over(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
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

    It has any number of axes, with dilation.
    """

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self.windows = windows

    def forward(self, inputs):
        (x,) = inputs
        xp = array_module(x)
        first, *others = self.windows.slices()
        y = x[first].copy(order="K")
        number_type = np.min_scalar_type(len(others))
        self.argmax = xp.zeros_like(y, dtype=number_type)
        for number, window in enumerate(others, start=1):
            element = x[window]
            xp.putmask(self.argmax, element > y, number_type.type(number))
            xp.maximum(y, element, out=y)  # propagates NaN, as PyTorch does
        return (y,)

    def backward(self, indexes, gradients):
        return SpreadMax(self.windows, self.argmax, self.inputs[0].shape).apply(gradients)


class SpreadMax(chainer.FunctionNode):
    """The derivative of `MaxWindows`: each value goes to the position of its window's maximum."""

    def __init__(self, windows: Windows, argmax: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.windows = windows
        self.argmax = argmax
        self.shape = shape

    def forward(self, inputs):
        (gy,) = inputs
        gx = zeros_like(gy, self.shape)
        for number, window in enumerate(self.windows.slices()):
            gx[window] += gy * (self.argmax == number)
        return (gx,)

    def backward(self, indexes, gradients):
        return TakeMax(self.windows, self.argmax).apply(gradients)


class TakeMax(chainer.FunctionNode):
    """The transpose of `SpreadMax`: the elements at the positions of the maxima."""

    def __init__(self, windows: Windows, argmax: Any) -> None:
        super().__init__()
        self.windows = windows
        self.argmax = argmax

    def forward(self, inputs):
        (x,) = inputs
        y = array_module(x).zeros_like(self.argmax, dtype=x.dtype)
        for number, window in enumerate(self.windows.slices()):
            y += x[window] * (self.argmax == number)
        return (y,)

    def backward(self, indexes, gradients):
        return SpreadMax(self.windows, self.argmax, self.inputs[0].shape).apply(gradients)


class SumWindows(chainer.FunctionNode):
    """The sum of each window."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self.windows = windows

    def forward(self, inputs):
        (x,) = inputs
        first, *others = self.windows.slices()
        y = x[first].copy(order="K")
        for window in others:
            y += x[window]
        return (y,)

    def backward(self, indexes, gradients):
        return SpreadWindows(self.windows, self.inputs[0].shape).apply(gradients)


class SpreadWindows(chainer.FunctionNode):
    """The transpose of `SumWindows`: each value goes to every element of its window."""

    def __init__(self, windows: Windows, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.windows = windows
        self.shape = shape

    def forward(self, inputs):
        (gy,) = inputs
        gx = zeros_like(gy, self.shape)
        for window in self.windows.slices():
            gx[window] += gy
        return (gx,)

    def backward(self, indexes, gradients):
        return SumWindows(self.windows).apply(gradients)
