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
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

# sums that one loop computes at once
_SUMS_PER_LOOP = 8


@dataclass(frozen=True)
class Windows:
    """The windows of a depthwise convolution without padding, one item for each spatial axis.

    Attributes:
        size: Of the input.
        kernel: Of the kernel.
        stride: Steps between windows.
        dilation: Steps between elements of a window.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of windows."""
        each = zip(self.size, self.extent, self.stride, strict=True)
        return tuple((n - extent) // s + 1 for n, extent, s in each)

    @property
    def extent(self) -> tuple[int, ...]:
        """The length of a window with its gaps."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def backwards(self) -> tuple[list[tuple[int, int, int]], Windows]:
        """Return how to pad an output, and the windows over it that give the input's gradient."""
        pads, size = [], []
        each = zip(self.size, self.counts, self.extent, self.stride, strict=True)
        for n, count, extent, stride in each:
            unused = n - extent - (count - 1) * stride
            pads.append((extent - 1, extent - 1 + unused, stride - 1))
            size.append(n + extent - 1)
        no_stride = (1,) * len(size)
        return pads, Windows(tuple(size), self.kernel, no_stride, self.dilation)


def depthwise(
    x: jax.Array, weight: jax.Array, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> jax.Array:
    """Convolve each channel of ``(batch, channels, *size)`` with its ``(channels, *kernel)``."""
    windows = Windows(x.shape[2:], weight.shape[1:], stride, dilation)
    return _output.bind(x, weight, windows=windows)


def taps(x: jax.Array, windows: Windows) -> list[jax.Array]:
    """Return, for each element of a kernel, the input below it at every position.

    There is one array (batch, channels, *positions) for each element.
    """
    cuts_by_axis = []
    axes = zip(windows.kernel, windows.counts, windows.stride, windows.dilation, strict=True)
    for kernel, count, stride, dilation in axes:
        length = (count - 1) * stride + 1
        starts = range(0, kernel * dilation, dilation)
        cuts_by_axis.append([slice(start, start + length, stride) for start in starts])
    cuts = itertools.product(*cuts_by_axis)
    return [x[(slice(None), slice(None), *cut)] for cut in cuts]


# The three operations
# --------------------------------------------------------------------------------------------------


def _compute_output(x: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    total: Any = None
    elements = jnp.reshape(_exact(weight), (weight.shape[0], -1))
    ones = (1,) * len(windows.kernel)
    for i, tap in enumerate(taps(x, windows)):
        product = _exact(tap) * jnp.reshape(elements[:, i], (-1, *ones))
        total = product if total is None else total + product
    return total.astype(x.dtype)


def _compute_input(y: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    pads, backwards = windows.backwards()
    padded = lax.pad(y, np.zeros((), y.dtype), [(0, 0, 0), (0, 0, 0), *pads])
    flipped = jnp.flip(weight, tuple(range(1, weight.ndim)))
    return _compute_output(padded, flipped, backwards)


def _compute_weight(x: jax.Array, y: jax.Array, windows: Windows) -> jax.Array:
    exact = _exact(y)
    products = [_exact(tap) * exact for tap in taps(x, windows)]
    sums: list[jax.Array] = []
    for first in range(0, len(products), _SUMS_PER_LOOP):
        sums.extend(_sums(products[first : first + _SUMS_PER_LOOP]))
    weight = jnp.stack(sums, axis=1)
    return jnp.reshape(weight, (x.shape[1], *windows.kernel)).astype(x.dtype)


def _sums(arrays: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Return the sum of each of several arrays for each channel, in one loop over all of them."""
    axes = (0, *range(2, arrays[0].ndim))
    zeros = tuple(np.zeros((), x.dtype) for x in arrays)
    return lax.reduce(tuple(arrays), zeros, _add, axes)


def _add(totals: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(total + each for total, each in zip(totals, more, strict=True))


def _exact(x: jax.Array) -> jax.Array:
    """Half-precision numbers are summed in float32."""
    return x.astype(jnp.promote_types(x.dtype, np.float32))


def _output_shape(x: Any, weight: Any, windows: Windows) -> tuple[int, ...]:
    return (*x.shape[:2], *windows.counts)


def _input_shape(y: Any, weight: Any, windows: Windows) -> tuple[int, ...]:
    return (*y.shape[:2], *windows.size)


def _weight_shape(x: Any, y: Any, windows: Windows) -> tuple[int, ...]:
    return (x.shape[1], *windows.kernel)


# Primitives
# --------------------------------------------------------------------------------------------------


def _primitive(
    name: str, compute: Callable[..., jax.Array], shape: Callable[..., tuple[int, ...]]
) -> Primitive:
    def abstract(a: Any, b: Any, windows: Windows) -> ShapedArray:
        return ShapedArray(shape(a, b, windows), a.dtype)

    primitive = Primitive(f"depthwise_{name}")
    primitive.def_impl(jax.jit(compute, static_argnames="windows"))
    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    batching.primitive_batchers[primitive] = partial(_batched, primitive)
    return primitive


def _batched(
    primitive: Primitive, values: Sequence[jax.Array], axes: Sequence[Any], windows: Windows
) -> tuple[jax.Array, int]:
    """Return the operation over one more axis, whose items are taken for more channels."""
    count = next(x.shape[axis] for x, axis in zip(values, axes, strict=True) if axis is not None)
    flat = []
    for x, axis in zip(values, axes, strict=True):
        x = jnp.broadcast_to(x, (count, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        flat.append(_joined(x, windows))
    result = primitive.bind(*flat, windows=windows)
    channels = _channel_axis(result, windows)
    split = (*result.shape[:channels], count, -1, *result.shape[channels + 1 :])
    return jnp.reshape(result, split), channels


def _joined(x: jax.Array, windows: Windows) -> jax.Array:
    """Join the first axis with that of the channels."""
    channels = _channel_axis(x, windows)
    x = jnp.moveaxis(x, 0, channels - 1)
    return jnp.reshape(x, (*x.shape[: channels - 1], -1, *x.shape[channels + 1 :]))


def _channel_axis(x: jax.Array, windows: Windows) -> int:
    return x.ndim - len(windows.kernel) - 1


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
