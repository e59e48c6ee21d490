"""The vocabulary's functions on JAX arrays.

Every function accepts arrays, ``nnx.Variable`` or NumPy arrays.

Products and convolutions of float32 are exact ("highest") unless ``jax_default_matmul_precision``
asks otherwise.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from deliralike import random
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled import host_checks, inner
from deliralike.backends.jax.random import RngStream
from deliralike.errors import ConstructionError
from deliralike.network.construction import require_construction
from deliralike.nn import checks, geometry
from deliralike.nn.functional import Functions
from deliralike.nn.geometry import Pads

_FEW, _MANY = (
    16,
    64,
)  # elements of a kernel up to which pooling, and convolution to a tiny output, go tap by tap


class Buffer(nnx.BatchStat):
    """A saved, untrained array of a network; `neutral_dtype` is its type in the neutral state."""


def value_of(x: Any) -> Any:
    """The array in a variable; anything else as it is."""
    return x.get_value() if isinstance(x, nnx.Variable) else x


class JaxFunctions(Functions):
    """Functions of arrays."""

    # Parameters
    # ----------------------------------------------------------------------------------------------

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        if isinstance(start, np.ndarray):
            return nnx.Param(arrays.array(start, construction.dtype, construction.device))
        zeros = arrays.array(
            np.zeros(tuple(shape), np.float32), construction.dtype, construction.device
        )
        return construction.declare(nnx.Param(zeros), start)

    def Buffer(self, value):
        construction = require_construction("a buffer")
        name = construction.dtype if value.dtype.kind == "f" else str(value.dtype)
        return Buffer(arrays.array(value, name, construction.device), neutral_dtype=name)

    # Arrays
    # ----------------------------------------------------------------------------------------------

    def constant(self, value, like):
        floating = np.asarray(value).dtype.kind == "f" and jnp.issubdtype(like.dtype, jnp.floating)
        return jnp.asarray(value, like.dtype) if floating else jnp.asarray(value)

    def zeros(self, shape, like):
        return jnp.zeros(tuple(shape), like.dtype)

    def cast(self, x, dtype):
        return jnp.asarray(value_of(x)).astype(
            arrays.dtype(dtype) if isinstance(dtype, str) else dtype.dtype
        )

    def stop_gradient(self, x):
        return lax.stop_gradient(value_of(x))

    def concrete(self, x):
        return arrays.host_values(value_of(x))

    def checked(self, x, check):
        """Within a program, what came with the batch is checked before each call."""
        super().checked(x, check)
        host_checks.record_check(value_of(x), check)

    # Element by element
    # ------------------------------------------------------------------------------------------

    def exp(self, x):
        return jnp.exp(value_of(x))

    def log(self, x):
        return jnp.log(value_of(x))

    def sqrt(self, x):
        return jnp.sqrt(value_of(x))

    def sin(self, x):
        return jnp.sin(value_of(x))

    def cos(self, x):
        return jnp.cos(value_of(x))

    def tanh(self, x):
        return jnp.tanh(value_of(x))

    def erf(self, x):
        return jax.scipy.special.erf(value_of(x))

    def sigmoid(self, x):
        return jax.nn.sigmoid(value_of(x))

    def softplus(self, x):
        return jnp.logaddexp(value_of(x), 0.0)

    def relu(self, x):
        x = value_of(x)
        return jnp.where(
            x <= 0, 0, x
        )  # jnp.maximum(x, 0) has derivative 1/2 at 0; `channels_last` sees through this

    def abs(self, x):
        x = value_of(x)
        return x * lax.stop_gradient(jnp.sign(x))  # jnp.abs has derivative 1 at 0

    def clip(self, x, low, high):
        x = value_of(x)
        return jnp.where(
            x < low, low, jnp.where(x > high, high, x)
        )  # jnp.clip has derivative 1/2 at its bounds

    def where(self, condition, x, y):
        return jnp.where(value_of(condition), value_of(x), value_of(y))

    # Reductions
    # ----------------------------------------------------------------------------------------------

    def sum(self, x, dim=None, keepdim=False):
        return jnp.sum(value_of(x), _axes(dim), keepdims=keepdim)

    def mean(self, x, dim=None, keepdim=False):
        return jnp.mean(value_of(x), _axes(dim), keepdims=keepdim)

    def max(self, x, dim, keepdim=False):
        x = jnp.asarray(value_of(x))
        first = jnp.argmax(x, dim, keepdims=True)  # jnp.max shares the gradient among equal maxima
        y = jnp.take_along_axis(x, first, dim, mode="promise_in_bounds")
        return y if keepdim else jnp.squeeze(y, dim)

    def argmax(self, x, dim):
        return jnp.argmax(value_of(x), dim)

    def log_softmax(self, x, dim):
        return jax.nn.log_softmax(value_of(x), dim)

    def softmax(self, x, dim):
        return jax.nn.softmax(value_of(x), dim)

    # Shapes
    # ----------------------------------------------------------------------------------------------

    def reshape(self, x, shape):
        return jnp.reshape(value_of(x), tuple(shape))

    def permute(self, x, dims):
        return jnp.transpose(value_of(x), tuple(dims))

    def broadcast_to(self, x, shape):
        return jnp.broadcast_to(value_of(x), tuple(shape))

    def concatenate(self, arrays, dim=0):
        return jnp.concatenate([value_of(x) for x in arrays], dim)

    def pad_constant(self, x, pads, value=0.0):
        x = jnp.asarray(value_of(x))
        return lax.pad(
            x, np.asarray(value, x.dtype), [(before, after, 0) for before, after in pads]
        )

    def flip(self, x, dim):
        return jnp.flip(value_of(x), dim)

    def select(self, x, index, dim):
        x = jnp.asarray(value_of(x))
        return jnp.take(x, _not_wrapping(index, x.shape[dim]), dim, mode="fill")

    def select_along(self, x, index, dim):
        x = jnp.asarray(value_of(x))
        index = _not_wrapping(index, x.shape[dim])
        corner = tuple(
            slice(None) if axis == dim % x.ndim else slice(size)
            for axis, size in enumerate(index.shape)
        )
        return jnp.take_along_axis(
            x[corner], index, dim, mode="fill"
        )  # PyTorch reads a corner, NumPy broadcasts

    # Products and windows
    # ----------------------------------------------------------------------------------------

    def matmul(self, x, y):
        return jnp.matmul(value_of(x), value_of(y), precision=_precision())

    def einsum(self, equation, *arrays):
        return jnp.einsum(equation, *map(value_of, arrays), precision=_precision())

    def convolve(self, x, weight, stride, pads, dilation, groups):
        return _convolve(
            value_of(x), value_of(weight), stride, pads, (1,) * len(pads), dilation, groups
        )

    def convolve_transposed(self, x, weight, stride, padding, output_padding, dilation, groups):
        weight = value_of(weight)
        kernel = weight.shape[2:]
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = tuple(
            (r - p, r - p + e) for r, p, e in zip(reach, padding, output_padding, strict=True)
        )
        split = jnp.reshape(
            weight, (groups, -1, *weight.shape[1:])
        )  # (groups, in/groups, out/groups, *kernel)
        swapped = jnp.reshape(jnp.swapaxes(split, 1, 2), (-1, weight.shape[0] // groups, *kernel))
        flipped = jnp.flip(swapped, tuple(range(2, weight.ndim)))
        return _convolve(value_of(x), flipped, (1,) * len(pads), pads, stride, dilation, groups)

    def max_windows(self, x, kernel, stride, pads, dilation):
        x = jnp.asarray(value_of(x))
        lowest = np.array(
            -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min, x.dtype
        )
        if any(d > 1 for d in dilation) or math.prod(kernel) <= _FEW:
            return _largest(_taps(lax.pad(x, lowest, _lax_pads(pads)), kernel, stride, dilation))
        return lax.reduce_window(
            x, lowest, lax.max, (1, 1, *kernel), (1, 1, *stride), _spatial(pads)
        )

    def sum_windows(self, x, kernel, stride, pads):
        x = jnp.asarray(value_of(x))
        return lax.reduce_window(
            x, np.zeros((), x.dtype), lax.add, (1, 1, *kernel), (1, 1, *stride), _spatial(pads)
        )

    # Control and chance
    # ------------------------------------------------------------------------------------------

    def gradient(self, function, x):
        def value(at):
            found = value_of(function(at))
            checks.scalar(found, "gradient: the function's value")
            return found

        return inner.gradient(value, jnp.asarray(value_of(x)))

    def scan(self, step, carry, xs):
        carry = jax.tree.map(value_of, carry, is_leaf=lambda x: isinstance(x, nnx.Variable))
        with arrays.scan_context():
            return lax.scan(step, carry, value_of(xs))

    def prepare_rng(self, layer: Any) -> None:
        layer.chance = RngStream()

    def keep_mask(self, layer: Any, shape: Sequence[int], p: float, like: jax.Array) -> jax.Array:
        stream = random.current()
        if stream is not None:
            return _portable_mask(stream, layer.block_path, tuple(shape), p).astype(like.dtype)
        if not hasattr(layer, "chance"):
            raise ConstructionError(
                f"{type(layer).__name__} draws masks: call self.nn.prepare_rng(self) in its "
                "__init__"
            )
        key = jax.random.fold_in(layer.chance(), _number(layer.block_path))
        bits = jax.random.bits(key, tuple(shape), "uint16").astype(jnp.uint32)
        return (bits >= np.uint32(random.drop_threshold(p))).astype(like.dtype)


def _axes(dim: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    return dim if dim is None or isinstance(dim, int) else tuple(dim)


def _spatial(pads: Pads) -> Pads:
    return ((0, 0), (0, 0), *pads)


def _lax_pads(pads: Pads) -> list[tuple[int, int, int]]:
    return [(before, after, 0) for before, after in _spatial(pads)]


def _not_wrapping(index: Any, size: int) -> jax.Array:
    """Positions with negative ones moved out of range: JAX would count them from the end."""
    index = jnp.asarray(value_of(index))
    return (
        index
        if jnp.issubdtype(index.dtype, jnp.unsignedinteger)
        else jnp.where(index < 0, size, index)
    )


def _precision() -> Any:
    return lax.Precision.HIGHEST if jax.config.jax_default_matmul_precision is None else None


def _convolve(
    x: jax.Array,
    weight: jax.Array,
    stride: Sequence[int],
    pads: Pads,
    lhs_dilation: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> jax.Array:
    if groups == 1 and set(lhs_dilation) == {1} and _is_tiny(x, weight, stride, pads, dilation):
        taps = jnp.stack(
            _taps(
                lax.pad(x, np.zeros((), x.dtype), _lax_pads(pads)),
                weight.shape[2:],
                stride,
                dilation,
            )
        )
        flat = jnp.reshape(weight, (*weight.shape[:2], -1))
        return jnp.einsum("kbi...,oik->bo...", taps, flat, precision=_precision())
    return lax.conv_general_dilated(
        x,
        weight,
        tuple(stride),
        pads,
        tuple(lhs_dilation),
        tuple(dilation),
        feature_group_count=groups,
        precision=_precision(),
    )


def _is_tiny(
    x: jax.Array, weight: jax.Array, stride: Sequence[int], pads: Pads, dilation: Sequence[int]
) -> bool:
    """Return whether the output of a convolution is smaller than the kernel.

    XLA on the CPU then takes a naive loop, which is 50 to 150 times slower.
    """
    kernel = weight.shape[2:]
    sizes = map(geometry.conv_size, x.shape[2:], kernel, stride, pads, dilation)
    return math.prod(kernel) <= _MANY and any(
        size < k for size, k in zip(sizes, kernel, strict=True)
    )


def _taps(
    x: jax.Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[jax.Array]:
    """Return, for each element of a kernel, the input below it at every position.

    There is one array (batch, channels, *positions) for each element.
    """
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    steps = list(zip(counts, stride, dilation, strict=True))
    cuts = [
        tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, (n, s, d) in zip(offset, steps, strict=True)
        )
        for offset in itertools.product(*map(range, kernel))
    ]
    return [x[(slice(None), slice(None), *cut)] for cut in cuts]


def _largest(arrays: Sequence[jax.Array]) -> jax.Array:
    """Return the elementwise maximum of several arrays.

    The first of equal elements takes the gradient, and NaN wins.
    """
    return functools.reduce(lambda best, x: jnp.where((x > best) | (x != x), x, best), arrays)


def _portable_mask(stream: random.Stream, path: str, shape: tuple[int, ...], p: float) -> jax.Array:
    """Return the mask of `deliralike.random`.

    It is drawn while the program runs where step or sample are traced values.
    """

    def draw(step: Any, first_sample: Any) -> np.ndarray:
        return random.keep_mask(stream.seed, path, int(step), int(first_sample), shape, p)

    where = (stream.step, stream.first_sample)
    if not any(isinstance(number, jax.core.Tracer) for number in where):
        return jnp.asarray(draw(*where))
    return arrays.draw_on_host(draw, shape, *where)


def _number(path: str) -> int:
    """A whole number of 31 bits for a path, so that layers draw different masks."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=4).digest(), "little") >> 1
