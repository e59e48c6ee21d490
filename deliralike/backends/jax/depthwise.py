"""Depthwise convolution for a CPU, as a primitive with derivatives of every order.

The sum of ``output * (input convolved with kernel)`` is linear in each of the three. Given two of
them, its derivative by the third is an operation: the convolution, the gradient of the input and
the gradient of the kernel. The derivatives of each are the other two. All are written as shifted
products, which XLA fuses into loops without a copy; its own kernels for these are 3 to 30 times
slower.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.experimental.layout import Layout, with_layout_constraint

from deliralike.backends.jax.unstable import Primitive, ad, batching, mlir
from deliralike.nn.geometry import Pads, conv_size, tap_slices

# sums that one loop computes at once
_SUMS_PER_LOOP = 8
_NO_PAD = (0, 0, 0)


@dataclass(frozen=True)
class Windows:
    """The windows of a depthwise convolution, one item for each spatial axis.

    Attributes:
        size: Of the input.
        kernel: Of the kernel.
        stride: Steps between windows.
        dilation: Steps between elements of a window.
        pads: Zeros before and after the input, which negative numbers cut.
        channels_last: Whether arrays are ``(batch, *size, channels)`` instead of ``(batch,
            channels, *size)``. The kernel is ``(channels, *kernel)`` in either case.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: Pads
    channels_last: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows."""
        axes = (self.size, self.kernel, self.stride, self.pads, self.dilation)
        return tuple(map(conv_size, *axes))

    @property
    def extent(self) -> tuple[int, ...]:
        """The length of a window with its gaps."""
        return tuple(
            d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True)
        )

    @property
    def channel_axis(self) -> int:
        """The axis of the channels in inputs and outputs."""
        return len(self.size) + 1 if self.channels_last else 1

    def shape(
        self, batch: int, channels: int, positions: Sequence[int]
    ) -> tuple[int, ...]:
        """The shape of an array with the axes in order."""
        return (batch, *self.in_order(tuple(positions), channels))

    def in_order(self, of_positions: tuple, of_channels: Any) -> tuple:
        """Items for each axis but the first one in order."""
        if self.channels_last:
            return (*of_positions, of_channels)
        return (of_channels, *of_positions)

    def backwards(self) -> tuple[list[tuple[int, int, int]], Windows]:
        """Return how to pad an output, and the windows over it that give the input's gradient."""
        pads, size = [], []
        each = zip(
            self.size, self.counts, self.extent, self.stride, self.pads, strict=True
        )
        for n, count, extent, stride, (before, _) in each:
            last = (count - 1) * stride - before  # where the last window begins
            pads.append((extent - 1 - before, n - 1 - last, stride - 1))
            size.append(n + extent - 1)
        plain = replace(
            self, size=tuple(size), stride=(1,) * len(size), pads=((0, 0),) * len(size)
        )
        return pads, plain


def depthwise(
    x: jax.Array,
    weight: jax.Array,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: Pads,
) -> jax.Array:
    """Convolve each channel of ``(batch, channels, *size)`` with its ``(channels, *kernel)``."""
    windows = Windows(x.shape[2:], weight.shape[1:], stride, dilation, pads)
    return _output.bind(x, weight, windows=windows)


def taps(x: jax.Array, windows: Windows) -> list[jax.Array]:
    """Return, for each element of a kernel, the input below it at every position.

    There is one array for each element. The input is padded already.
    """
    axes = map(
        tap_slices, windows.kernel, windows.counts, windows.stride, windows.dilation
    )
    cuts = itertools.product(*axes)
    return [x[(slice(None), *windows.in_order(cut, slice(None)))] for cut in cuts]


# The three operations
# --------------------------------------------------------------------------------------------------


def _compute_output(x: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    total: Any = None
    padded = _padded(x, windows)
    for tap, element in zip(
        taps(padded, windows), _elements(weight, windows), strict=True
    ):
        product = _exact(tap) * element
        total = product if total is None else total + product
    return total.astype(x.dtype)


def _padded(x: jax.Array, windows: Windows) -> jax.Array:
    edges = windows.in_order(tuple((*pad, 0) for pad in windows.pads), _NO_PAD)
    return lax.pad(x, np.zeros((), x.dtype), [_NO_PAD, *edges])


def _elements(weight: jax.Array, windows: Windows) -> list[jax.Array]:
    """Return, for each element of a kernel, its values for all channels along their axis."""
    by_channel = jnp.reshape(_exact(weight), (weight.shape[0], -1))
    elements = by_channel.T
    if windows.channels_last:
        # else each value is fetched from a place of its own, at every position
        elements = with_layout_constraint(elements, Layout((0, 1)))
    ones = (1,) * len(windows.kernel)
    shape = windows.in_order(ones, -1)
    return [jnp.reshape(element, shape) for element in elements]


def _compute_input(y: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    pads, backwards = windows.backwards()
    edges = windows.in_order(tuple(pads), _NO_PAD)
    padded = lax.pad(y, np.zeros((), y.dtype), [_NO_PAD, *edges])
    flipped = jnp.flip(weight, tuple(range(1, weight.ndim)))
    return _compute_output(padded, flipped, backwards)


def _compute_weight(x: jax.Array, y: jax.Array, windows: Windows) -> jax.Array:
    exact = _exact(y)
    products = [_exact(tap) * exact for tap in taps(_padded(x, windows), windows)]
    axes = (0, *(axis for axis in range(1, x.ndim) if axis != windows.channel_axis))
    sums: list[jax.Array] = []
    for first in range(0, len(products), _SUMS_PER_LOOP):
        sums.extend(_sums(products[first : first + _SUMS_PER_LOOP], axes))
    weight = jnp.stack(sums, axis=1)
    return jnp.reshape(weight, (-1, *windows.kernel)).astype(x.dtype)


def _sums(arrays: Sequence[jax.Array], axes: tuple[int, ...]) -> Sequence[jax.Array]:
    """Return the sums of several arrays over axes, in one loop over all of them."""
    zeros = tuple(np.zeros((), x.dtype) for x in arrays)
    return lax.reduce(tuple(arrays), zeros, _add, axes)


def _add(totals: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(total + each for total, each in zip(totals, more, strict=True))


def _exact(x: jax.Array) -> jax.Array:
    """Half-precision numbers are summed in float32."""
    return x.astype(jnp.promote_types(x.dtype, np.float32))


def _output_shape(x: Any, weight: Any, windows: Windows) -> tuple[int, ...]:
    return windows.shape(x.shape[0], weight.shape[0], windows.counts)


def _input_shape(y: Any, weight: Any, windows: Windows) -> tuple[int, ...]:
    return windows.shape(y.shape[0], weight.shape[0], windows.size)


def _weight_shape(x: Any, y: Any, windows: Windows) -> tuple[int, ...]:
    return (x.shape[windows.channel_axis], *windows.kernel)


# Primitives
# --------------------------------------------------------------------------------------------------


def _primitive(
    name: str, compute: Callable[..., jax.Array], shape: Callable[..., tuple[int, ...]]
) -> Primitive:
    def abstract(a: Any, b: Any, windows: Windows) -> ShapedArray:
        return ShapedArray(shape(a, b, windows), a.dtype)

    def between_bounds(a: jax.Array, b: jax.Array, windows: Windows) -> jax.Array:
        return _not_fused(partial(compute, windows=windows), shape(a, b, windows), a, b)

    primitive = Primitive(f"depthwise_{name}")
    primitive.def_impl(jax.jit(between_bounds, static_argnames="windows"))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(
        primitive, mlir.lower_fun(between_bounds, multiple_results=False)
    )
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    return primitive


def _not_fused(
    compute: Callable[..., jax.Array],
    shape: tuple[int, ...],
    a: jax.Array,
    b: jax.Array,
) -> jax.Array:
    """Compute in one piece of its own.

    Otherwise XLA makes one loop of a convolution and what comes before and after: it computes the
    input again for each element of the kernel, and the output for each use of it, three in a norm.
    A branch is the only bound that it keeps on a CPU, where barriers are dropped first. The
    condition always holds, which XLA cannot know.
    """
    if 0 in (*a.shape, *b.shape):
        return compute(a, b)
    value = b[(0,) * b.ndim]
    always = (value == value) | (value != value)
    return lax.cond(always, compute, lambda a, b: jnp.zeros(shape, a.dtype), a, b)


def _batched(
    primitive: Primitive,
    values: Sequence[jax.Array],
    axes: Sequence[Any],
    windows: Windows,
) -> tuple[jax.Array, int]:
    """Return the operation over one more axis, whose items are taken for more channels."""
    count = next(
        x.shape[axis] for x, axis in zip(values, axes, strict=True) if axis is not None
    )
    flat = []
    for x, axis in zip(values, axes, strict=True):
        x = (
            jnp.broadcast_to(x, (count, *x.shape))
            if axis is None
            else jnp.moveaxis(x, axis, 0)
        )
        flat.append(_joined(x, windows))
    result = primitive.bind(*flat, windows=windows)
    axis = _channel_axis(result.ndim, windows)
    split = (*result.shape[:axis], count, -1, *result.shape[axis + 1 :])
    return jnp.reshape(result, split), axis


def _joined(x: jax.Array, windows: Windows) -> jax.Array:
    """Join the first axis with that of the channels."""
    axis = _channel_axis(x.ndim - 1, windows)
    x = jnp.moveaxis(x, 0, axis)
    return jnp.reshape(x, (*x.shape[:axis], -1, *x.shape[axis + 2 :]))


def _channel_axis(rank: int, windows: Windows) -> int:
    is_kernel = rank == len(windows.kernel) + 1
    return 0 if is_kernel else windows.channel_axis


_output = _primitive("output", _compute_output, _output_shape)
_input = _primitive("input", _compute_input, _input_shape)
_weight = _primitive("weight", _compute_weight, _weight_shape)

ad.defbilinear(
    _output,
    lambda y, x, weight, windows: _input.bind(y, weight, windows=windows),
    lambda y, x, weight, windows: _weight.bind(x, y, windows=windows),
)
ad.defbilinear(
    _input,
    lambda x, y, weight, windows: _output.bind(x, weight, windows=windows),
    lambda x, y, weight, windows: _weight.bind(x, y, windows=windows),
)
ad.defbilinear(
    _weight,
    lambda weight, x, y, windows: _input.bind(y, weight, windows=windows),
    lambda weight, x, y, windows: _output.bind(x, weight, windows=windows),
)
