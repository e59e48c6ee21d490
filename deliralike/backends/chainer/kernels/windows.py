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
        self.kernel, self.stride, self.dilation, self.count = kernel, stride, dilation, count

    def slices(self) -> list[tuple]:
        """Return the slices in row-major order of the kernel."""
        starts = product(
            *(range(0, k * d, d) for k, d in zip(self.kernel, self.dilation, strict=True))
        )
        return [
            (
                ...,
                *(
                    slice(i, i + s * (n - 1) + 1, s)
                    for i, s, n in zip(start, self.stride, self.count, strict=True)
                ),
            )
            for start in starts
        ]


def windows_over(
    size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Windows:
    """Return as many windows as fit into a size."""
    return Windows(
        kernel,
        stride,
        dilation,
        tuple(map(conv_size, size, kernel, stride, [(0, 0)] * len(kernel), dilation)),
    )


def zeros_like(x: Any, shape: Sequence[int]) -> Any:
    """Return zeros of another shape whose axes lie in memory in the same order.

    So arithmetic with `x` runs along the memory of both.
    """
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    return (
        array_module(x)
        .zeros([shape[axis] for axis in order], x.dtype)
        .transpose(np.argsort(order).tolist())
    )


class MaxWindows(chainer.FunctionNode):
    """The maximum of each window; the first of equal ones takes the gradient.

    It has any number of axes, with dilation.
    """

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self.windows = windows

    def forward(self, inputs):
        (x,), xp = inputs, array_module(inputs[0])
        first, *others = self.windows.slices()
        y = x[first].copy(order="K")
        self.place = xp.zeros_like(y, dtype=np.min_scalar_type(len(others)))
        for number, window in enumerate(others, start=1):
            element = x[window]
            xp.putmask(self.place, element > y, self.place.dtype.type(number))
            xp.maximum(y, element, out=y)  # propagates NaN, as PyTorch does
        return (y,)

    def backward(self, indexes, gradients):
        return SpreadMax(self.windows, self.place, self.inputs[0].shape).apply(gradients)


class SpreadMax(chainer.FunctionNode):
    """The derivative of `MaxWindows`: each value goes to the place of its window's maximum."""

    def __init__(self, windows: Windows, place: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.windows, self.place, self.shape = windows, place, shape

    def forward(self, inputs):
        (gy,) = inputs
        gx = zeros_like(gy, self.shape)
        for number, window in enumerate(self.windows.slices()):
            gx[window] += gy * (self.place == number)
        return (gx,)

    def backward(self, indexes, gradients):
        return TakeMax(self.windows, self.place).apply(gradients)


class TakeMax(chainer.FunctionNode):
    """The transpose of `SpreadMax`: the elements at the places of the maxima."""

    def __init__(self, windows: Windows, place: Any) -> None:
        super().__init__()
        self.windows, self.place = windows, place

    def forward(self, inputs):
        (x,), xp = inputs, array_module(inputs[0])
        y = xp.zeros_like(self.place, dtype=x.dtype)
        for number, window in enumerate(self.windows.slices()):
            y += x[window] * (self.place == number)
        return (y,)

    def backward(self, indexes, gradients):
        return SpreadMax(self.windows, self.place, self.inputs[0].shape).apply(gradients)


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
        self.windows, self.shape = windows, shape

    def forward(self, inputs):
        (gy,) = inputs
        gx = zeros_like(gy, self.shape)
        for window in self.windows.slices():
            gx[window] += gy
        return (gx,)

    def backward(self, indexes, gradients):
        return SumWindows(self.windows).apply(gradients)
