"""Convolution on the host by those of slices along the first axis, which copy fewer elements.

Each slice of the input meets all slices of the kernel in one convolution with so many times the
output channels; its results are added to the outputs that have the slice in their window. By
columns of all axes a training step of a U-Net with three axes takes twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deliralike.backends.chainer.kernels.geometry import Geometry


def suits(x: Any, weight: Sequence[int], g: Geometry) -> bool:
    """Return whether slices copy and add fewer elements than columns of all axes.

    Args:
        x: The input or the output.
        weight: The shape of the weight.
        g: The windows.
    """
    out, channels, slices = weight[:3]
    if not isinstance(x, np.ndarray) or g.groups > 1 or len(g.kernel) == 1:
        return False
    elements = math.prod(g.kernel)
    copied = channels * elements // slices + out * slices
    return g.stride[0] == 1 and copied < channels * elements


def of_slices(g: Geometry) -> Geometry:
    """Return the windows over one slice."""
    return Geometry(
        g.stride[1:],
        g.pads[1:],
        g.dilation[1:],
        1,
        g.kernel[1:],
        g.size[1:],
        g.count[1:],
    )


def split(x: Any) -> Any:
    """Return ``(batch, channels, slices, ...)`` as ``(batch * slices, channels, ...)``."""
    x = x.swapaxes(1, 2)
    return x.reshape(len(x) * x.shape[1], *x.shape[2:])


def join(x: Any, g: Geometry) -> Any:
    """Undo `split`."""
    slices = g.size[0]
    return x.reshape(len(x) // slices, slices, *x.shape[1:]).swapaxes(1, 2)


def split_weight(w: Any) -> Any:
    """Return ``(out, in, slices, ...)`` as ``(slices * out, in, ...)``."""
    w = np.moveaxis(w, 2, 0)
    return w.reshape(len(w) * w.shape[1], *w.shape[2:])


def join_weight(w: Any, g: Geometry) -> Any:
    """Undo `split_weight`."""
    slices = g.kernel[0]
    return np.moveaxis(w.reshape(slices, len(w) // slices, *w.shape[1:]), 0, 2)


def add(products: Any, g: Geometry) -> Any:
    """Return the outputs ``(batch, out, *count)``.

    Args:
        products: Those of each slice with the kernel's, ``(batch * slices, kernel * out, ...)``.
        g: The windows.
    """
    batch, out = len(products) // g.size[0], products.shape[1] // g.kernel[0]
    shape = (g.kernel[0], out, batch, g.size[0], *g.count[1:])
    y = np.zeros((out, batch, *g.count), products.dtype)
    by_slice = products.swapaxes(0, 1).reshape(shape)
    for product, (windows, slices) in zip(by_slice, _meetings(g), strict=True):
        y[:, :, windows] += product[:, :, slices]
    return y.swapaxes(0, 1)


def spread(y: Any, g: Geometry) -> Any:
    """Return the transpose of `add`."""
    batch, out = y.shape[:2]
    by_slice = np.zeros((g.kernel[0], out, batch, g.size[0], *g.count[1:]), y.dtype)
    for product, (windows, slices) in zip(by_slice, _meetings(g), strict=True):
        product[:, :, slices] = y.swapaxes(0, 1)[:, :, windows]
    joined = by_slice.reshape(g.kernel[0] * out, batch * g.size[0], *g.count[1:])
    return joined.swapaxes(0, 1)


def _meetings(g: Geometry) -> Iterator[tuple[slice, slice]]:
    """Yield, for each slice of the kernel, the windows that have a slice below it, and these."""
    for number in range(g.kernel[0]):
        shift = number * g.dilation[0] - g.pads[0][0]
        first = max(0, -shift)
        end = max(first, min(g.count[0], g.size[0] - shift))
        yield slice(first, end), slice(first + shift, end + shift)
