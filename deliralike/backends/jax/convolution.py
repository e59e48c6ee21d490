"""Convolutions, each in the form that XLA compiles well.

XLA's kernels for a CPU cover dense convolutions of large pictures. Grouped and transposed ones,
their gradients, and outputs smaller than the kernel go through plain loops that are 10 to 400 times
slower; and of small pictures most of the time goes into another order of the kernel's axes. On a
CPU such a convolution is written with slices, products and sums instead. Values agree up to
rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from deliralike.backends.jax.depthwise import depthwise
from deliralike.nn import geometry
from deliralike.nn.geometry import Pads, PerAxis
from deliralike.nn.start import Shape

# elements of a kernel up to which a convolution goes tap by tap
_MOST_TAPS = 64
# windows for each output channel up to which a convolution is a product with the kernel as it lies
_MOST_WINDOWS = 2
# convolutions that one is split into: more are quicker, and slower to compile
_MOST_PARTS = 8
# numbers in planes that are convolved at once: more do not stay in the processor's cache
_MOST_AT_ONCE = 2**20


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

    stride: PerAxis
    pads: Pads
    lhs_dilation: PerAxis
    dilation: PerAxis
    groups: int

    def counts(self, size: PerAxis, kernel: PerAxis) -> PerAxis:
        """Return the number of windows along each axis of an input that is not dilated."""
        each = map(
            geometry.conv_size, size, kernel, self.stride, self.pads, self.dilation
        )
        return tuple(each)


def convolve(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """Convolve ``(batch, in, *size)`` with ``(out, in / groups, *kernel)``."""
    form = _form(x.shape, weight.shape, settings)
    return _in_form(form, x, weight, settings)


@partial(jax.jit, static_argnums=(0, 3))
def _in_form(
    form: Any, x: jax.Array, weight: jax.Array, settings: Geometry
) -> jax.Array:
    return form(x, weight, settings)


def _form(shape: Shape, weight: Shape, settings: Geometry) -> Any:
    """Return the function that computes a convolution of these shapes."""
    kernel = weight[2:]
    counts = settings.counts(shape[2:], kernel)
    # elsewhere XLA calls the device's own library
    if jax.default_backend() != "cpu":
        return _by_xla
    few_taps = math.prod(kernel) <= _MOST_TAPS
    if settings.groups > 1:
        is_depthwise = settings.groups == shape[1]
        return _depthwise if is_depthwise and few_taps else _part_by_part
    if set(settings.lhs_dilation) == {1}:
        if math.prod(kernel) == 1:
            return _by_product
        if not _is_above(shape[0] * math.prod(counts), _MOST_WINDOWS * weight[0]):
            return _by_product
        if few_taps and not all(map(_is_above, counts, (k - 1 for k in kernel))):
            return _by_product
    return _in_planes if len(kernel) == 3 else _by_xla


def _is_above(size: Any, limit: int) -> bool:
    """Return whether a size is above a limit. One that an export leaves open counts as large."""
    return export.is_symbolic_dim(size) or size > limit


def convolve_transposed(
    x: jax.Array, weight: jax.Array, size: PerAxis, settings: Geometry
) -> jax.Array:
    """Compute the transpose of a convolution in its input.

    Args:
        x: ``(batch, out, *count)``, with the shape of the convolution's output.
        weight: Its kernel, ``(out, in / groups, *kernel)``.
        size: Of its input, so that the result is ``(batch, in, *size)``.
        settings: Of the convolution; its input is not dilated.
    """
    if jax.default_backend() == "cpu" and settings.groups == 1:
        is_strided = set(settings.stride) != {1}
        windows = x.shape[0] * math.prod(x.shape[2:])
        if is_strided or not _is_above(windows, _MOST_WINDOWS * weight.shape[0]):
            return _transposed_by_product(x, weight, size, settings)
    return _transposed_by_convolving(x, weight, size, settings)


def precision() -> Any:
    """Return the precision of products: exact unless JAX's own setting asks otherwise."""
    if jax.config.jax_default_matmul_precision is None:
        return lax.Precision.HIGHEST
    return None


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


def _by_product(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """One product: a step of ResNet-18 at 32×32 takes 3.9 times as long by XLA's own."""
    kernel = weight.shape[2:]
    counts = settings.counts(x.shape[2:], kernel)
    columns = _columns(jnp.moveaxis(x, 1, -1), kernel, counts, settings)
    matrix = _as_matrix(weight)
    rows = jnp.reshape(columns, (*columns.shape[: x.ndim - 1], matrix.shape[1]))
    contracted = (rows.ndim - 1,), (1,)
    y = lax.dot_general(rows, matrix, (contracted, ((), ())), precision=precision())
    return jnp.moveaxis(y, -1, 1)


def _as_matrix(weight: jax.Array) -> jax.Array:
    """Return a kernel as ``(out, elements)``, which XLA takes as it lies.

    It makes a copy of a factor when it sums over several of its axes.
    """
    return jnp.reshape(weight, (weight.shape[0], math.prod(weight.shape[1:])))


@partial(jax.jit, static_argnums=(2, 3))
def _transposed_by_product(
    x: jax.Array, weight: jax.Array, size: PerAxis, settings: Geometry
) -> jax.Array:
    """One product: without it a step of DCGAN's generator takes 8 times as long, of a U-Net 1.3."""
    last = jnp.moveaxis(x, 1, -1)
    contracted = (x.ndim - 1,), (0,)
    # with many windows a copy of the kernel is quicker in the gradients
    is_long = _is_above(
        x.shape[0] * math.prod(x.shape[2:]), _MOST_WINDOWS * weight.shape[0]
    )
    factor = weight if is_long else _as_matrix(weight)
    rows = lax.dot_general(last, factor, (contracted, ((), ())), precision=precision())
    columns = jnp.reshape(rows, (*last.shape[:-1], *weight.shape[1:]))
    cut = partial(
        _columns, kernel=weight.shape[2:], counts=x.shape[2:], settings=settings
    )
    like = jax.ShapeDtypeStruct((x.shape[0], *size, weight.shape[1]), columns.dtype)
    (y,) = jax.linear_transpose(cut, like)(columns)
    return jnp.moveaxis(y, -1, 1)


def _columns(
    x: jax.Array, kernel: PerAxis, counts: PerAxis, settings: Geometry
) -> jax.Array:
    """Return the elements of all windows.

    ``(batch, *size, in)`` gives ``(batch, *counts, in, *kernel)``. One axis is cut after the other,
    so that there are few slices to compile. The elements lie in the order of the kernel's, which
    need not be copied.
    """
    pads = [(*pad, 0) for pad in settings.pads]
    columns = lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    axes = zip(kernel, counts, settings.stride, settings.dilation, strict=True)
    for axis, settings_of_axis in enumerate(axes, start=1):
        cuts = []
        for cut in geometry.tap_slices(*settings_of_axis):
            cuts.append(lax.slice_in_dim(columns, cut.start, cut.stop, cut.step, axis))
        columns = jnp.stack(cuts, -1)
    return columns


def _transposed_by_convolving(
    x: jax.Array, weight: jax.Array, size: PerAxis, settings: Geometry
) -> jax.Array:
    kernel, groups = weight.shape[2:], settings.groups
    pads = []
    widths = [d * (k - 1) for d, k in zip(settings.dilation, kernel, strict=True)]
    axes = zip(widths, settings.pads, size, x.shape[2:], settings.stride, strict=True)
    for width, (before, _), n, count, stride in axes:
        left = n + before - (count - 1) * stride - 1
        pads.append((width - before, left))
    # (groups, out/groups, in/groups, *kernel)
    split = jnp.reshape(weight, (groups, -1, *weight.shape[1:]))
    swapped = jnp.swapaxes(split, 1, 2)
    joined = jnp.reshape(swapped, (-1, weight.shape[0] // groups, *kernel))
    flipped = jnp.flip(joined, tuple(range(2, weight.ndim)))
    no_stride = (1,) * len(pads)
    turned = Geometry(
        no_stride, tuple(pads), settings.stride, settings.dilation, groups
    )
    return convolve(x, flipped, turned)


def _depthwise(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    if set(settings.lhs_dilation) != {1}:
        x = _spread(x, settings)
    if weight.shape[0] != x.shape[1]:
        x = jnp.repeat(x, weight.shape[0] // x.shape[1], axis=1)
    kernel = jnp.squeeze(weight, 1)
    return depthwise(x, kernel, settings.stride, settings.dilation, settings.pads)


def _part_by_part(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """A few dense convolutions, each of several groups, with zeros where groups do not meet.

    XLA's own takes 80 times as long for 3×3 in 32 groups.
    """
    parts = _equal_parts(settings.groups, _MOST_PARTS)
    kernels = _joined(weight, settings.groups // parts, parts)
    of_part = replace(settings, groups=1)
    outputs = []
    for pair in zip(
        jnp.split(x, parts, axis=1), jnp.split(kernels, parts, axis=0), strict=True
    ):
        outputs.append(convolve(*pair, of_part))
    return jnp.concatenate(outputs, axis=1)


def _joined(weight: jax.Array, count: int, parts: int) -> jax.Array:
    """Return kernels that join so many groups each, with zeros from one group to another."""
    split = jnp.reshape(weight, (parts, count, -1, 1, *weight.shape[1:]))
    same = jnp.eye(count, dtype=weight.dtype)
    joined = split * jnp.reshape(
        same, (count, 1, count, *(1 for _ in weight.shape[1:]))
    )
    channels = weight.shape[0], count * weight.shape[1]
    return jnp.reshape(joined, (*channels, *weight.shape[2:]))


def _in_planes(x: jax.Array, weight: jax.Array, settings: Geometry) -> jax.Array:
    """Three axes as two: the planes below a kernel are so many more channels.

    XLA's own takes a step of a U-Net with three axes 3.8 times as long.
    """
    channels, depth, *plane = weight.shape[1:]
    (stride, *strides), (dilation, *dilations) = settings.stride, settings.dilation
    (pad, *pads), (step, *steps) = settings.pads, settings.lhs_dilation
    edges = [(0, 0, 0)] * 3
    # what makes the input is computed once, and not for each plane of the kernel again
    last = lax.optimization_barrier(jnp.moveaxis(x, 1, -1))
    padded = lax.pad(last, np.zeros((), x.dtype), [(0, 0, 0), (*pad, step - 1), *edges])
    count = (padded.shape[1] - dilation * (depth - 1) - 1) // stride + 1
    below = [
        padded[:, cut] for cut in geometry.tap_slices(depth, count, stride, dilation)
    ]
    planes = jnp.reshape(
        jnp.concatenate(below, -1), (-1, *x.shape[3:], depth * channels)
    )
    kernel = jnp.reshape(jnp.moveaxis(weight, 2, 1), (-1, depth * channels, *plane))
    outputs = []
    for part in jnp.split(planes, _parts_in_cache(planes.shape)):
        y = lax.conv_general_dilated(
            part,
            kernel,
            strides,
            pads,
            steps,
            dilations,
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
            precision=precision(),
        )
        outputs.append(y)
    y = jnp.concatenate(outputs)
    return jnp.moveaxis(jnp.reshape(y, (x.shape[0], count, *y.shape[1:])), -1, 1)


def _parts_in_cache(shape: Shape) -> int:
    """Return the number of parts in which planes are convolved; one where an export has open sizes.

    In one part a step of a U-Net with three axes takes 1.11 times as long.
    """
    if any(map(export.is_symbolic_dim, shape)):
        return 1
    wanted = min(_MOST_PARTS, math.prod(shape) // _MOST_AT_ONCE)
    return _equal_parts(shape[0], max(wanted, 1))


def _equal_parts(count: int, most: int) -> int:
    """Return the largest number of equal parts, up to a limit, that a count is divided into."""
    return max(n for n in range(1, most + 1) if count % n == 0)


def _spread(x: jax.Array, settings: Geometry) -> jax.Array:
    """The input with zeros between its elements."""
    spatial = [(0, 0, step - 1) for step in settings.lhs_dilation]
    return lax.pad(x, np.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *spatial])
