"""Depthwise convolution for a CPU, as a primitive with derivatives of every order.

The sum of ``output * (input convolved with kernel)`` is linear in each of the three. Given two of
them, its derivative by the third is an operation: the convolution, the gradient of the input and
the gradient of the kernel. The derivatives of each are the other two. All are written as shifted
products, which XLA fuses into loops without a copy. A training step of MobileNetV2 takes 5 times as
long with XLA's own kernels, and twice as long where JAX differentiates the products itself.
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

from deliralike.backends.jax.unstable import Primitive, ad, batching, mlir
from deliralike.nn.geometry import Pads, PerAxis, conv_size, tap_slices
from deliralike.nn.start import Shape

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
    """

    size: PerAxis
    kernel: PerAxis
    stride: PerAxis
    dilation: PerAxis
    pads: Pads

    @property
    def counts(self) -> PerAxis:
        """The number of windows."""
        axes = (self.size, self.kernel, self.stride, self.pads, self.dilation)
        return tuple(map(conv_size, *axes))

    def backwards(self) -> tuple[list[tuple[int, int, int]], Windows]:
        """Return how to pad an output, and the windows over it that give the input's gradient."""
        pads, size = [], []
        axes = zip(
            self.size,
            self.counts,
            self.kernel,
            self.stride,
            self.dilation,
            self.pads,
            strict=True,
        )
        for n, count, kernel, stride, dilation, (before, _) in axes:
            width = dilation * (kernel - 1)
            last = (count - 1) * stride - before  # where the last window begins
            pads.append((width - before, n - 1 - last, stride - 1))
            size.append(n + width)
        no_stride, no_pads = (1,) * len(size), ((0, 0),) * len(size)
        windows = replace(self, size=tuple(size), stride=no_stride, pads=no_pads)
        return pads, windows


def depthwise(
    x: jax.Array,
    weight: jax.Array,
    stride: PerAxis,
    dilation: PerAxis,
    pads: Pads,
) -> jax.Array:
    """Convolve each channel of ``(batch, channels, *size)`` with its ``(channels, *kernel)``."""
    windows = Windows(x.shape[2:], weight.shape[1:], stride, dilation, pads)
    return _output.bind(x, weight, windows=windows)


# The three operations
# --------------------------------------------------------------------------------------------------


def _compute_output(x: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    elements = jnp.reshape(_exact(weight), (weight.shape[0], -1))
    ones = (1,) * len(windows.kernel)
    total: Any = None
    for number, tap in enumerate(_taps(x, windows)):
        product = _exact(tap) * jnp.reshape(elements[:, number], (-1, *ones))
        total = product if total is None else total + product
    return total.astype(x.dtype)


def _compute_input(y: jax.Array, weight: jax.Array, windows: Windows) -> jax.Array:
    pads, backwards = windows.backwards()
    padded = lax.pad(y, np.zeros((), y.dtype), [_NO_PAD, _NO_PAD, *pads])
    flipped = jnp.flip(weight, tuple(range(1, weight.ndim)))
    return _compute_output(padded, flipped, backwards)


def _compute_weight(x: jax.Array, y: jax.Array, windows: Windows) -> jax.Array:
    exact = _exact(y)
    products = [_exact(tap) * exact for tap in _taps(x, windows)]
    sums: list[jax.Array] = []
    for first in range(0, len(products), _SUMS_PER_LOOP):
        sums.extend(_sums(products[first : first + _SUMS_PER_LOOP]))
    weight = jnp.stack(sums, axis=1)
    return jnp.reshape(weight, (-1, *windows.kernel)).astype(x.dtype)


def _taps(x: jax.Array, windows: Windows) -> list[jax.Array]:
    """Return, for each element of a kernel, the input below it at every position."""
    pads = [(before, after, 0) for before, after in windows.pads]
    padded = lax.pad(x, np.zeros((), x.dtype), [_NO_PAD, _NO_PAD, *pads])
    settings = windows.kernel, windows.counts, windows.stride, windows.dilation
    cuts = itertools.product(*map(tap_slices, *settings))
    return [padded[:, :, *cut] for cut in cuts]


def _sums(arrays: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """Return the sums of several arrays for each channel, in one loop over all of them."""
    zeros = tuple(np.zeros((), x.dtype) for x in arrays)
    axes = (0, *range(2, arrays[0].ndim))
    return lax.reduce(tuple(arrays), zeros, _add, axes)


def _add(totals: Sequence[Any], more: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(total + each for total, each in zip(totals, more, strict=True))


def _exact(x: jax.Array) -> jax.Array:
    """Half-precision numbers are summed in float32."""
    return x.astype(jnp.promote_types(x.dtype, np.float32))


def _output_shape(x: Any, weight: Any, windows: Windows) -> Shape:
    return (*x.shape[:2], *windows.counts)


def _input_shape(y: Any, weight: Any, windows: Windows) -> Shape:
    return (*y.shape[:2], *windows.size)


def _weight_shape(x: Any, y: Any, windows: Windows) -> Shape:
    return (x.shape[1], *windows.kernel)


# Primitives
# --------------------------------------------------------------------------------------------------


def _primitive(
    name: str, compute: Callable[..., jax.Array], shape: Callable[..., Shape]
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
    shape: Shape,
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
    primitive: Primitive, values: Sequence[Any], axes: Sequence[Any], windows: Windows
) -> tuple[jax.Array, int]:
    """Return the operation over one more axis, one item after the other."""
    count = next(
        x.shape[axis] for x, axis in zip(values, axes, strict=True) if axis is not None
    )
    items = []
    for x, axis in zip(values, axes, strict=True):
        if axis is None:
            items.append(jnp.broadcast_to(x, (count, *x.shape)))
        else:
            items.append(jnp.moveaxis(x, axis, 0))
    return lax.map(lambda pair: primitive.bind(*pair, windows=windows), items), 0


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
