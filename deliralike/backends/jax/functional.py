"""The vocabulary's functions on JAX arrays.

Every function accepts arrays, ``nnx.Variable`` or NumPy arrays.

Products and convolutions of float32 are exact ("highest") unless ``jax_default_matmul_precision``
asks otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from deliralike import random
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled import host_checks, nested_gradients
from deliralike.backends.jax.convolution import (
    Geometry,
    convolve,
    convolve_transposed,
    precision,
)
from deliralike.backends.jax.random import RngStream
from deliralike.errors import ConstructionError
from deliralike.network.construction import require_construction
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.functional import Functions
from deliralike.nn.geometry import (
    conv_size,
    conv_transposed_sizes,
    first_inside,
    tap_slices,
)
from deliralike.nn.primitives import axis_of, of_one_array
from deliralike.nn.start import Shape


class Buffer(nnx.BatchStat):
    """A saved, untrained array of a network; `neutral_dtype` is its type in the neutral state."""


class State(nnx.Intermediate):
    """An array that a network remembers from call to call, and that is not saved."""


def value_of(x: Any) -> Any:
    """The array in a variable; anything else as it is."""
    if _is_variable(x):
        return x.get_value()
    return x


def _array(x: Any) -> jax.Array:
    """The array in a variable, or of JAX with the values of another."""
    return jnp.asarray(value_of(x))


def _is_variable(x: Any) -> bool:
    return isinstance(x, nnx.Variable)


def _comparison(name: str) -> Any:
    def compare(self: nnx.Variable, other: Any) -> jax.Array:
        return getattr(jnp.asarray(value_of(self)), name)(value_of(other))

    compare.__name__ = name
    compare.__doc__ = (
        "Compare element by element; the result is an array of truth values."
    )
    return compare


# Flax gives variables all operators of arrays but these, which raise errors. Networks that are
# written once compare parameters. Nothing that worked before changes.
for _name in ("__lt__", "__le__", "__ne__", "__gt__", "__ge__"):
    setattr(nnx.Variable, _name, _comparison(_name))


_take = nnx.Variable.__getitem__


def _getitem(self: nnx.Variable, key: Any) -> Any:
    """Index with variables, too, which JAX refuses among the indices of an array."""
    if isinstance(key, tuple):
        return _take(self, tuple(map(value_of, key)))
    return _take(self, value_of(key))


nnx.Variable.__getitem__ = _getitem


def _of_value(function: Callable[[Any], Any]) -> Any:
    """Return the method of a vocabulary that is a function of JAX of one array."""
    return of_one_array(lambda x: function(value_of(x)))


class JaxFunctions(Functions):
    """Functions of arrays."""

    # Parameters
    # ----------------------------------------------------------------------------------------------

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        if isinstance(start, np.ndarray):
            return nnx.Param(
                arrays.array(start, construction.dtype, construction.device)
            )
        zeros = np.zeros(tuple(shape), np.float32)
        array = arrays.array(zeros, construction.dtype, construction.device)
        return construction.declare(nnx.Param(array), start)

    def Buffer(self, value):
        if value is None:
            return None
        construction = require_construction("a buffer")
        value = np.asarray(value)
        name = construction.dtype if value.dtype.kind == "f" else str(value.dtype)
        return Buffer(
            arrays.array(value, name, construction.device), neutral_dtype=name
        )

    def State(self, shape, like):
        return State(self.zeros(shape, like))

    # Arrays
    # ----------------------------------------------------------------------------------------------

    def constant(self, value, like):
        value = np.array(value)  # a copy, as JAX shares memory that is aligned
        if value.dtype.kind == "f" and arrays.is_floating(like.dtype):
            return jnp.asarray(value, like.dtype)
        return jnp.asarray(arrays.narrow(value))

    def zeros(self, shape, like):
        return jnp.zeros(tuple(shape), like.dtype)

    def cast(self, x, dtype):
        native = arrays.find_dtype(dtype) if isinstance(dtype, str) else dtype.dtype
        return _array(x).astype(native)

    stop_gradient = _of_value(lax.stop_gradient)
    concrete = _of_value(arrays.host_values)

    def checked(self, x, check):
        """Check an array; within a program, what came with the batch is checked at each call."""
        super().checked(x, check)
        host_checks.record_check(value_of(x), check)

    # Element by element
    # ------------------------------------------------------------------------------------------

    exp = _of_value(jnp.exp)
    log = _of_value(jnp.log)
    sqrt = _of_value(jnp.sqrt)
    sin = _of_value(jnp.sin)
    cos = _of_value(jnp.cos)
    tanh = _of_value(jnp.tanh)
    erf = _of_value(jax.scipy.special.erf)
    sigmoid = _of_value(jax.nn.sigmoid)

    def exact_softplus(self, x):
        return jnp.logaddexp(value_of(x), 0.0)

    def relu(self, x, inplace=False):
        x = value_of(x)
        # jnp.maximum(x, 0) has derivative 1/2 at 0
        return jnp.where(x <= 0, 0, x)

    def abs(self, x):
        x = value_of(x)
        return x * lax.stop_gradient(jnp.sign(x))  # jnp.abs has derivative 1 at 0

    floor = _of_value(jnp.floor)
    atan = _of_value(jnp.arctan)

    def fmod(self, x, other):
        return jnp.fmod(value_of(x), value_of(other))

    log1p = _of_value(jnp.log1p)
    expm1 = _of_value(jnp.expm1)
    erfc = _of_value(jax.scipy.special.erfc)

    def where(self, condition, x, y):
        return jnp.where(value_of(condition), value_of(x), value_of(y))

    # Reductions
    # ----------------------------------------------------------------------------------------------

    def sum(self, x, dim=None, keepdim=False):
        return jnp.sum(value_of(x), _axes(dim), keepdims=keepdim)

    def mean(self, x, dim=None, keepdim=False):
        return jnp.mean(value_of(x), _axes(dim), keepdims=keepdim)

    def max_along(self, x, dim, keepdim=False):
        x = _array(x)
        first = jnp.argmax(
            x, dim, keepdims=True
        )  # jnp.max shares the gradient among equal maxima
        y = jnp.take_along_axis(x, first, dim, mode="promise_in_bounds")
        return y if keepdim else jnp.squeeze(y, dim)

    def argmax_along(self, x, dim):
        return jnp.argmax(value_of(x), dim)

    @in_float32
    def log_softmax(self, x, dim):
        return jax.nn.log_softmax(value_of(x), axis_of(dim, x.ndim))

    @in_float32
    def softmax(self, x, dim):
        return jax.nn.softmax(value_of(x), axis_of(dim, x.ndim))

    # Shapes
    # ----------------------------------------------------------------------------------------------

    def reshape(self, x, shape):
        return jnp.reshape(value_of(x), tuple(shape))

    def permute(self, x, dims):
        return jnp.transpose(value_of(x), tuple(dims))

    def broadcast_to(self, x, shape):
        return jnp.broadcast_to(value_of(x), tuple(shape))

    def concatenate(self, arrays, dim=0):
        return jnp.concatenate([*map(value_of, arrays)], dim)

    def pad_constant(self, x, pads, value=0.0):
        x = _array(x)
        edges = [(before, after, 0) for before, after in pads]
        return lax.pad(x, np.asarray(value, x.dtype), edges)

    def flip_along(self, x, dim):
        return jnp.flip(value_of(x), dim)

    def select(self, x, index, dim):
        x = _array(x)
        return jnp.take(x, _without_wraparound(index, x.shape[dim]), dim, mode="fill")

    def select_along(self, x, index, dim):
        x = _array(x)
        index = _without_wraparound(index, x.shape[dim])
        # PyTorch reads a corner, NumPy broadcasts
        corner = [slice(size) for size in index.shape]
        corner[dim] = slice(None)
        return jnp.take_along_axis(x[tuple(corner)], index, dim, mode="fill")

    def scatter_add(self, x, dim, index, src):
        x = _array(x)
        self.checked(index, checks.InRange(x.shape[dim], "scatter_add: index"))
        index = _without_wraparound(index, x.shape[dim])
        places = list(jnp.ogrid[tuple(slice(size) for size in index.shape)])
        places[dim] = index
        return x.at[tuple(places)].add(value_of(src), mode="drop")

    def argsort_along(self, x, dim):
        return jnp.argsort(value_of(x), dim, stable=True)

    def cumsum(self, x, dim):
        return jnp.cumsum(value_of(self._widened(x)), dim)

    # Products and windows
    # ----------------------------------------------------------------------------------------

    def matmul(self, x, y):
        return jnp.matmul(value_of(x), value_of(y), precision=precision())

    def einsum(self, equation, *arrays):
        return jnp.einsum(equation, *map(value_of, arrays), precision=precision())

    def convolve(self, x, weight, stride, pads, dilation, groups):
        no_dilation = (1,) * len(pads)
        settings = Geometry(
            tuple(stride), tuple(pads), no_dilation, tuple(dilation), groups
        )
        return convolve(_array(x), _array(weight), settings)

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        x, weight = _array(x), _array(weight)
        size = conv_transposed_sizes(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding
        )
        pads = tuple((p, p) for p in padding)
        no_dilation = (1,) * len(pads)
        settings = Geometry(tuple(stride), pads, no_dilation, tuple(dilation), groups)
        return convolve_transposed(x, weight, size, settings)

    def max_windows(self, x, kernel, stride, pads, dilation):
        x = _array(x)
        if arrays.is_floating(x.dtype):
            lowest = np.array(-np.inf, x.dtype)
        else:
            lowest = np.array(jnp.iinfo(x.dtype).min, x.dtype)
        # The last axis comes first: of equal maxima the first in row-major order is then taken.
        for axis in range(x.ndim - 1, 1, -1):
            row = kernel[axis - 2], stride[axis - 2], pads[axis - 2], dilation[axis - 2]
            x = _maxima_along(x, axis, lowest, *row)
        return x

    def sum_windows(self, x, kernel, stride, pads):
        x = _array(x)
        return lax.reduce_window(
            x,
            np.zeros((), x.dtype),
            lax.add,
            (1, 1, *kernel),
            (1, 1, *stride),
            ((0, 0), (0, 0), *pads),
        )

    # Control and chance
    # ------------------------------------------------------------------------------------------

    def gradient(self, function, x):
        def value(at):
            result = value_of(function(at))
            checks.scalar(result, "gradient: the function's value")
            return result

        return nested_gradients.gradient(value, _array(x))

    def scan(self, step, carry, xs):
        carry = jax.tree.map(value_of, carry, is_leaf=_is_variable)
        with arrays.scan_context():
            return lax.scan(random.drawing_the_same(step), carry, value_of(xs))

    def prepare_rng(self, layer: Any) -> None:
        layer.chance = RngStream()

    def draw(
        self,
        layer: Any,
        shape: Sequence[int],
        like: jax.Array,
        kind: str,
        p: float = 0.0,
    ) -> jax.Array:
        stream = random.current()
        if stream is not None:
            path = layer.block_path
            return _portable(stream, path, tuple(shape), like.dtype, kind, p)
        if not hasattr(layer, "chance"):
            raise ConstructionError(
                f"{type(layer).__name__} draws random numbers: call self.nn.prepare_rng(self) in "
                "its __init__"
            )
        key = jax.random.fold_in(layer.chance(), _number(layer.block_path))
        if kind == "normal":
            return jax.random.normal(key, tuple(shape), like.dtype)
        if kind == "uniform":
            return jax.random.uniform(key, tuple(shape), like.dtype)
        bits = jax.random.bits(key, tuple(shape), "uint16").astype(jnp.uint32)
        return (bits >= np.uint32(random.drop_threshold(p))).astype(like.dtype)


def _axes(dim: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    if dim is None or isinstance(dim, int | np.integer):
        return dim
    return tuple(dim)


def _without_wraparound(index: Any, size: int) -> jax.Array:
    """Positions with negative ones moved out of range: JAX would count them from the end."""
    index = _array(index)
    if jnp.issubdtype(index.dtype, jnp.unsignedinteger):
        return index
    return jnp.where(index < 0, size, index)


def _maxima_along(
    x: jax.Array,
    axis: int,
    lowest: np.ndarray,
    kernel: int,
    stride: int,
    pads: tuple[int, int],
    dilation: int,
) -> jax.Array:
    """Return the maximum of each window along an axis.

    The first of equal elements takes the gradient, and padding never; NaN wins.
    """
    count = conv_size(x.shape[axis], kernel, stride, pads, dilation)
    edges = [(0, 0, 0)] * x.ndim
    edges[axis] = (*pads, 0)
    x = lax.pad(x, lowest, edges)
    first, *others = tap_slices(kernel, count, stride, dilation)
    before = (slice(None),) * axis
    largest = x[*before, first]
    begins = first_inside(count, kernel, stride, pads[0], dilation)
    for number, cut in enumerate(others, start=1):
        element = x[*before, cut]
        is_larger = (element > largest) | (element != element)
        if (begins == number).any():
            is_first = np.expand_dims(begins == number, tuple(range(1, x.ndim - axis)))
            is_larger |= is_first
        largest = jnp.where(is_larger, element, largest)
    return largest


def _portable(
    stream: random.Stream,
    path: str,
    shape: Shape,
    dtype: Any,
    kind: str,
    p: float,
) -> jax.Array:
    """Return the numbers of `deliralike.random`.

    They are drawn while the program runs where step or sample are traced values.
    """
    wide = jnp.promote_types(dtype, jnp.float32)  # callbacks know no bfloat16
    drawn = np.dtype(bool if kind == "keep" else wide)
    number = stream.next_draw(path, "jax")
    draw = _drawer(stream.seed, path, number, shape, drawn, kind, p)
    numbers = (stream.step, stream.first_sample)
    if any(map(arrays.is_traced, numbers)):
        return arrays.draw_on_host(draw, shape, drawn, *numbers).astype(dtype)
    return jnp.asarray(draw(*numbers)).astype(dtype)


@lru_cache
def _drawer(
    seed: int,
    path: str,
    number: int,
    shape: Shape,
    dtype: np.dtype,
    kind: str,
    p: float,
) -> Callable[[Any, Any], np.ndarray]:
    """Return the function that draws: the same one each time, so its program is found."""

    def draw(step: Any, first_sample: Any) -> np.ndarray:
        stream = random.Stream(seed, step, first_sample)
        numbers = random.numbers(stream, path, shape, kind, p, number)
        return numbers.astype(dtype)

    return draw


def _number(path: str) -> int:
    """A whole number of 31 bits for a path, so that layers draw different masks."""
    digest = hashlib.blake2b(path.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1
