"""Convolutions, each in the form that XLA compiles well.

XLA's kernels for a CPU cover dense convolutions. Grouped ones, their gradients, and outputs smaller
than the kernel go through plain loops that are 10 to 400 times slower; on a CPU such a convolution
is written with slices, products and sums instead. Values agree up to rounding.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deliralike.backends.jax.depthwise import Windows, depthwise, taps
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads

# elements of a kernel up to which a convolution goes tap by tap
_MOST_TAPS = 64
# dense convolutions that a grouped one is split into: more are quicker, and slower to compile
_MOST_PARTS = 8


@dataclass(frozen=True)
class Geometry:
    """The settings of a convolution, one item for each spatial axis.

    Attributes:
        stride: Steps between outputs.
        pads: Zeros before and after each axis.
        lhs_dilation: Steps between elements of the input: the stride of a transposed convolution.
        dilation: Steps between elements of the kernel.
        groups: Groups of channels.
    """

    stride: tuple[int, ...]
    pads: Pads
    lhs_dilation: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def is_undilated(self) -> bool:
        """Whether neither input nor kernel is dilated."""
        return {*self.lhs_dilation, *self.dilation} == {1}


def convolve(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """Convolve ``(batch, in, *size)`` with ``(out, in / groups, *kernel)``."""
    form = _form(x.shape, weight.shape, settings)
    return _in_form(form, x, weight, settings)


@partial(jax.jit, static_argnums=(0, 3))
def _in_form(form: Any, x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    return form(x, weight, settings)


def _form(shape: tuple[int, ...], weight: tuple[int, ...], settings: Geometry) -> Any:
    """Return the function that computes a convolution of these shapes."""
    kernel = weight[2:]
    if _is_patches(kernel, settings):
        return _patches
    # elsewhere XLA calls the device's own library
    if jax.default_backend() != "cpu":
        return _by_xla
    few_taps = math.prod(kernel) <= _MOST_TAPS
    if settings.groups > 1:
        is_depthwise = settings.groups == shape[1]
        return _depthwise if is_depthwise and few_taps else _part_by_part
    if few_taps and _is_smaller_than_kernel(shape, kernel, settings):
        return _tap_by_tap
    return _in_planes if len(kernel) == 3 and math.prod(kernel) > 1 else _by_xla


def precision() -> Any:
    """Return the precision of products: exact unless JAX's own setting asks otherwise."""
    return lax.Precision.HIGHEST if jax.config.jax_default_matmul_precision is None else None


def pad_spatially(x: jax.Array, pads: Pads, value: np.ndarray) -> jax.Array:
    """Pad the spatial axes; negative pads cut off."""
    return lax.pad(x, value, [(0, 0, 0), (0, 0, 0), *((*pad, 0) for pad in pads)])


# Forms
# --------------------------------------------------------------------------------------------------


def _by_xla(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        weight,
        settings.stride,
        settings.pads,
        settings.lhs_dilation,
        settings.dilation,
        feature_group_count=settings.groups,
        precision=precision(),
    )


def _is_patches(kernel: tuple[int, ...], settings: Geometry) -> bool:
    """Return whether the windows lie side by side, so that they are the rows of a matrix.

    A kernel of one element is left to XLA, which takes it for the product that it is.
    """
    if settings.groups > 1 or not settings.is_undilated or math.prod(kernel) == 1:
        return False
    return kernel == settings.stride and not np.any(settings.pads)


def _patches(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    kernel = weight.shape[2:]
    counts = [n // k for n, k in zip(x.shape[2:], kernel, strict=True)]
    whole = [slice(count * k) for count, k in zip(counts, kernel, strict=True)]
    split = itertools.chain.from_iterable(zip(counts, kernel, strict=True))
    x = jnp.reshape(x[(slice(None), slice(None), *whole)], (*x.shape[:2], *split))
    within_window = range(3, x.ndim, 2)
    contracted = (1, *within_window), tuple(range(1, weight.ndim))
    y = lax.dot_general(x, weight, (contracted, ((), ())), precision=precision())
    return jnp.moveaxis(y, -1, 1)


def _depthwise(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    x = jnp.repeat(_padded(x, settings), weight.shape[0] // x.shape[1], axis=1)
    return depthwise(x, jnp.squeeze(weight, 1), settings.stride, settings.dilation)


def _part_by_part(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """A few dense convolutions, each of several groups, with zeros where groups do not meet."""
    parts = max(n for n in range(1, _MOST_PARTS + 1) if settings.groups % n == 0)
    kernels = _joined(weight, settings.groups // parts, parts)
    of_part = replace(settings, groups=1)
    outputs = []
    for pair in zip(jnp.split(x, parts, axis=1), jnp.split(kernels, parts, axis=0), strict=True):
        outputs.append(convolve(*pair, of_part))
    return jnp.concatenate(outputs, axis=1)


def _joined(weight: jax.Array, count: int, parts: int) -> jax.Array:
    """Return kernels that join so many groups each, with zeros from one group to another."""
    split = jnp.reshape(weight, (parts, count, -1, 1, *weight.shape[1:]))
    same = jnp.eye(count, dtype=weight.dtype)
    joined = split * jnp.reshape(same, (count, 1, count, *(1 for _ in weight.shape[1:])))
    channels = weight.shape[0], count * weight.shape[1]
    return jnp.reshape(joined, (*channels, *weight.shape[2:]))


def _in_planes(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """Three axes as two: the planes below a kernel are so many more channels."""
    channels, depth, *plane = weight.shape[1:]
    (stride, *strides), (dilation, *dilations) = settings.stride, settings.dilation
    (pad, *pads), (step, *steps) = settings.pads, settings.lhs_dilation
    edges = [(0, 0, 0)] * 3
    last = jnp.moveaxis(x, 1, -1)
    padded = lax.pad(last, np.zeros((), x.dtype), [(0, 0, 0), (*pad, step - 1), *edges])
    count = (padded.shape[1] - dilation * (depth - 1) - 1) // stride + 1
    length = (count - 1) * stride + 1
    starts = range(0, depth * dilation, dilation)
    below = [padded[:, start : start + length : stride] for start in starts]
    planes = jnp.reshape(jnp.concatenate(below, -1), (-1, *x.shape[3:], depth * channels))
    kernel = jnp.reshape(jnp.moveaxis(weight, 2, 1), (-1, depth * channels, *plane))
    y = lax.conv_general_dilated(
        planes,
        kernel,
        strides,
        pads,
        steps,
        dilations,
        dimension_numbers=("NHWC", "OIHW", "NHWC"),
        precision=precision(),
    )
    return jnp.moveaxis(jnp.reshape(y, (x.shape[0], count, *y.shape[1:])), -1, 1)


def _is_smaller_than_kernel(
    shape: tuple[int, ...], kernel: tuple[int, ...], settings: Geometry
) -> bool:
    if set(settings.lhs_dilation) != {1}:
        return False
    sizes = map(
        geometry.conv_size, shape[2:], kernel, settings.stride, settings.pads, settings.dilation
    )
    return any(map(operator.lt, sizes, kernel))


def _tap_by_tap(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    padded = _padded(x, settings)
    windows = Windows(padded.shape[2:], weight.shape[2:], settings.stride, settings.dilation)
    stacked = jnp.stack(taps(padded, windows))
    flat = jnp.reshape(weight, (*weight.shape[:2], -1))
    return jnp.einsum("kbi...,oik->bo...", stacked, flat, precision=precision())


def _padded(x: jax.Array, settings: Geometry) -> jax.Array:
    """The input with its zeros around, and between its elements."""
    spatial = []
    for (before, after), step in zip(settings.pads, settings.lhs_dilation, strict=True):
        spatial.append((before, after, step - 1))
    return lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *spatial])
