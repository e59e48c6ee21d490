"""Convolutions with three axes by those of planes, which copy fewer elements.

Each plane of the input meets all planes of the kernel in one convolution with so many times the
output channels; its results are added to the outputs that have the plane in their window. By
columns of three axes a training step of a U-Net with three axes takes twice as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deliralike.backends.chainer.arrays import array_module
from deliralike.backends.chainer.kernels.geometry import Geometry


def suits(g: Geometry) -> bool:
    """Return whether a convolution has several planes in its kernel, and leaves none out."""
    return len(g.kernel) == 3 and g.kernel[0] > 1 and g.stride[0] == g.groups == 1


def of_planes(g: Geometry) -> Geometry:
    """Return the windows over one plane."""
    axes = g.stride, g.pads, g.dilation, g.kernel, g.size, g.count
    stride, pads, dilation, kernel, size, count = (each[1:] for each in axes)
    return Geometry(stride, pads, dilation, 1, kernel, size, count)


def split(x: Any) -> Any:
    """Return ``(batch, channels, depth, ...)`` as ``(batch * depth, channels, ...)``."""
    x = x.swapaxes(1, 2)
    return x.reshape(len(x) * x.shape[1], *x.shape[2:])


def join(x: Any, depth: int) -> Any:
    """Undo `split`."""
    return x.reshape(len(x) // depth, depth, *x.shape[1:]).swapaxes(1, 2)


def split_weight(w: Any) -> Any:
    """Return ``(out, in, depth, ...)`` as ``(depth * out, in, ...)``."""
    w = w.transpose(2, 0, 1, 3, 4)
    return w.reshape(len(w) * w.shape[1], *w.shape[2:])


def join_weight(w: Any, depth: int) -> Any:
    """Undo `split_weight`."""
    w = w.reshape(depth, len(w) // depth, *w.shape[1:])
    return w.transpose(1, 2, 0, 3, 4)


def add(products: Any, g: Geometry) -> Any:
    """Return the outputs ``(batch, out, *count)``.

    Args:
        products: Those of each plane with the kernel's, ``(batch * depth, kernel * out, ...)``.
        g: The windows.
    """
    batch, out = len(products) // g.size[0], products.shape[1] // g.kernel[0]
    by_plane = products.reshape(batch, g.size[0], g.kernel[0], out, *g.count[1:])
    by_plane = by_plane.transpose(2, 3, 0, 1, 4, 5)  # as it lies in memory
    y = array_module(products).zeros((out, batch, *g.count), products.dtype)
    for product, (windows, planes) in zip(by_plane, _meetings(g), strict=True):
        y[:, :, windows] += product[:, :, planes]
    return y.swapaxes(0, 1)


def spread(y: Any, g: Geometry) -> Any:
    """Return the transpose of `add`."""
    batch, out = y.shape[:2]
    shape = (g.kernel[0], out, batch, g.size[0], *g.count[1:])
    by_plane = array_module(y).zeros(shape, y.dtype)
    for product, (windows, planes) in zip(by_plane, _meetings(g), strict=True):
        product[:, :, planes] = y.swapaxes(0, 1)[:, :, windows]
    joined = by_plane.reshape(g.kernel[0] * out, batch * g.size[0], *g.count[1:])
    return joined.swapaxes(0, 1)


def _meetings(g: Geometry) -> Iterator[tuple[slice, slice]]:
    """Yield, for each plane of the kernel, the windows that have a plane below it, and these."""
    for number in range(g.kernel[0]):
        shift = number * g.dilation[0] - g.pads[0][0]
        first = max(0, -shift)
        end = max(first, min(g.count[0], g.size[0] - shift))
        yield slice(first, end), slice(first + shift, end + shift)
