"""The backend that computes shapes only, without a framework or data, for outlines of networks.

Arrays know their shape and type, parameters have no values, products are counted. This backend
cannot train, so it is not listed among `deliralike.backends.known`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from operator import getitem
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.context import context_value
from deliralike.errors import CapabilityError, ShapeError
from deliralike.network.base import AbstractNetwork
from deliralike.network.construction import require_construction
from deliralike.network.state import Slot
from deliralike.network.tree import walk
from deliralike.nn import checks, geometry
from deliralike.nn.functional import Functions
from deliralike.nn.primitives import axis_of


class ShapeArray:
    """An array of which only the shape, the type and the source blocks in a trace are known."""

    sources: frozenset[int] = frozenset()

    def __init__(self, shape: Sequence[int], dtype: str = "float32") -> None:
        """Take the shape and the name of the type."""
        self.shape = tuple(int(size) for size in shape)
        self.dtype = str(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def with_sources(self, sources: frozenset[int]) -> ShapeArray:
        """Return an array of the same shape that comes from these boxes."""
        copy = ShapeArray(self.shape, self.dtype)
        copy.sources = sources
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype!r})"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> ShapeArray:
        """Take slices and whole numbers, as NumPy understands them."""
        return _with_sources_of(_by_numpy(getitem, self, index), (self,))

    def _combine(self, other: Any) -> ShapeArray:
        return _with_sources_of(_broadcast(self, other), (self, other))

    def _compare(self, other: Any) -> ShapeArray:
        shape = _broadcast(self, other).shape
        return _with_sources_of(ShapeArray(shape, "bool"), (self, other))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combine
    __truediv__ = __rtruediv__ = __pow__ = __mod__ = __floordiv__ = _combine
    __and__ = __or__ = __xor__ = _combine
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> ShapeArray:
        return self

    __invert__ = __neg__


def inputs(entries: Sequence[Any]) -> list[ShapeArray]:
    """Return the inputs of a network for a batch of one sample.

    Each comes from a box of its own; the boxes have the indices ..., -2, -1.
    """
    arrays = []
    for index, entry in enumerate(entries):
        dtype = "float32" if entry.below is None else "int64"
        array = ShapeArray((1, *entry.shape), dtype)
        arrays.append(array.with_sources(frozenset([index - len(entries)])))
    return arrays


class Parameter(ShapeArray):
    """A parameter's shape."""


class Buffer(ShapeArray):
    """A buffer's shape."""


@dataclass
class Block:
    """The record of one block of a network.

    Attributes:
        path: The block's dotted path.
        type: The name of the block's class.
        parameters: The number of own parameters, those of blocks below not counted.
        is_leaf: Whether there are no blocks below the block.
        output: The shape of the last output, or a nest of shapes.
        multiply_adds: Multiplications (each with an addition) in own products, over all calls.
    """

    path: str
    type: str
    parameters: int
    is_leaf: bool
    output: Any = None
    multiply_adds: int = 0


@dataclass
class Flow:
    """One box of a drawing: a block as a whole, at one of its calls.

    Attributes:
        block: The block that is called.
        sources: The indices of the boxes whose outputs are the arguments; for the network's inputs
            see `inputs`.
        output: The shape of the output, or a nest of shapes.
    """

    block: Block
    sources: frozenset[int]
    output: Any = None


@dataclass
class Trace:
    """The records of a network's run on shapes.

    Attributes:
        blocks: The blocks by path, in the order of their first calls.
        depth: The depth of nested calls up to which `flow` has boxes; None when no flow is wanted.
        flow: The boxes in the order of their calls.
        running: The blocks that are being called now, the outermost first.
    """

    blocks: dict[str, Block]
    depth: int | None = None
    flow: list[Flow] = field(default_factory=list)
    running: list[Block] = field(default_factory=list)


_trace: ContextVar[Trace | None] = ContextVar("deliralike_outline", default=None)


def tracing(depth: int | None = None) -> AbstractContextManager[Any]:
    """Record the blocks that run in the ``with`` block and, to a depth of calls, the data flow."""
    return context_value(_trace, Trace({}, depth))


def _letters(axes: str, open_axes: Iterable[int]) -> list[str | int]:
    """Return the axes of a term of an einsum, those of its ``...`` as numbers from the end."""
    before, dots, after = axes.partition("...")
    return [*before, *(open_axes if dots else ()), *after]


def _count(products: int) -> None:
    trace = _trace.get()
    if trace and trace.running:
        trace.running[-1].multiply_adds += products


def _sources(value: Any) -> frozenset[int]:
    """Return the indices of the boxes from which the arrays in a nest come."""
    arrays = [leaf for leaf in nest.leaves(value) if isinstance(leaf, ShapeArray)]
    return frozenset().union(*(array.sources for array in arrays))


def _with_sources_of(result: Any, arguments: Any) -> Any:
    """Return a result with the sources of its arguments, where a data flow is recorded."""
    trace = _trace.get()
    if trace is None or trace.depth is None or not isinstance(result, ShapeArray):
        return result
    return result.with_sources(_sources(arguments))


def _track_sources(functions: type) -> type:
    """Let the results of a vocabulary's functions have the sources of their arguments."""
    for name, function in list(vars(functions).items()):
        if not name.startswith("_") and callable(function):
            setattr(functions, name, _tracking(function))
    return functions


def _tracking(function: Callable[..., Any]) -> Callable[..., Any]:
    end = None
    if function.__name__ in ("cast", "constant", "zeros"):
        end = 2  # the second argument of these functions is no source: they take only its type

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _with_sources_of(function(*args, **kwargs), args[1:end])

    return call


@_track_sources
class OutlineFunctions(Functions):
    """OutlineFunctions computes the shapes of the results of `nn`'s functions."""

    def Parameter(self, shape, start):
        return Parameter(shape, require_construction("a parameter").dtype)

    def Buffer(self, value):
        if value is None:
            return None
        construction = require_construction("a buffer")
        value = np.asarray(value)
        dtype = construction.dtype if value.dtype.kind == "f" else str(value.dtype)
        return Buffer(value.shape, dtype)

    def constant(self, value, like):
        value = np.asarray(value)
        is_floating = value.dtype.kind == "f" and "float" in like.dtype
        return ShapeArray(value.shape, like.dtype if is_floating else str(value.dtype))

    def zeros(self, shape, like):
        return ShapeArray(shape, like.dtype)

    def cast(self, x, dtype):
        return ShapeArray(x.shape, dtype if isinstance(dtype, str) else dtype.dtype)

    def concrete(self, x):
        return None

    def stop_gradient(self, x):
        return x

    exp = log = sqrt = sin = cos = tanh = erf = sigmoid = exact_softplus = stop_gradient
    abs = floor = atan = stop_gradient

    def relu(self, x, inplace=False):
        return x

    def flip_along(self, x, dim):
        return x

    log_softmax = flip_along

    def where(self, condition, x, y):
        return ShapeArray(_broadcast(condition, x, y).shape, _broadcast(x, y).dtype)

    def sum(self, x, dim=None, keepdim=False):
        if dim is None:
            dim = range(x.ndim)
        elif isinstance(dim, int | np.integer):
            dim = (dim,)
        reduced = {axis_of(axis, x.ndim) for axis in dim}
        shape = []
        for axis, size in enumerate(x.shape):
            if axis not in reduced:
                shape.append(size)
            elif keepdim:
                shape.append(1)
        return ShapeArray(shape, x.dtype)

    mean = max_along = sum

    def argmax_along(self, x, dim):
        return ShapeArray(self.sum(x, dim).shape, "int64")

    def reshape(self, x, shape):
        try:
            return _by_numpy(np.reshape, x, tuple(shape))
        except ValueError:
            raise ShapeError(
                f"reshape: {math.prod(x.shape)} elements of shape {x.shape} do not fit into "
                f"{tuple(shape)}"
            ) from None

    def permute(self, x, dims):
        return _by_numpy(np.transpose, x, tuple(dims))

    def broadcast_to(self, x, shape):
        return ShapeArray(np.broadcast_shapes(x.shape, tuple(shape)), x.dtype)

    def concatenate(self, arrays, dim=0):
        dim = dim % len(arrays[0].shape)
        others = {(*x.shape[:dim], *x.shape[dim + 1 :]) for x in arrays}
        if len(others) > 1:
            raise ShapeError(
                f"concatenate: shapes {[x.shape for x in arrays]} differ off axis {dim}"
            )
        length = sum(x.shape[dim] for x in arrays)
        return _resized(arrays[0], dim, length)

    def pad_constant(self, x, pads, value=0.0):
        shape = [size + sum(pad) for size, pad in zip(x.shape, pads, strict=True)]
        return ShapeArray(shape, x.dtype)

    def select(self, x, index, dim):
        dim = dim % len(x.shape)
        return ShapeArray((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype)

    def select_along(self, x, index, dim):
        return ShapeArray(index.shape, x.dtype)

    def scatter_add(self, x, dim, index, src):
        return x

    def argsort_along(self, x, dim):
        return ShapeArray(x.shape, "int64")

    def matmul(self, x, y):
        left = x.shape if x.ndim > 1 else (1, *x.shape)
        right = y.shape if y.ndim > 1 else (*y.shape, 1)
        if left[-1] != right[-2]:
            raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} do not fit")
        out = list(np.broadcast_shapes(left[:-2], right[:-2]))
        if x.ndim > 1:
            out.append(left[-2])
        if y.ndim > 1:
            out.append(right[-1])
        _count(math.prod(out) * left[-1])
        return ShapeArray(out, x.dtype)

    def einsum(self, equation, *arrays):
        inputs, arrow, output = equation.replace(" ", "").partition("->")
        sizes: dict[str | int, int] = {}
        for axes, x in zip(inputs.split(","), arrays, strict=True):
            open_axes = range(len(axes.replace("...", "")) - x.ndim, 0)
            for axis, size in zip(_letters(axes, open_axes), x.shape, strict=True):
                if sizes.get(axis, 1) == 1:
                    sizes[axis] = size
        if len(arrays) > 1:
            _count(math.prod(sizes.values()))
        if not arrow:
            alone = sorted(each for each in set(inputs) if inputs.count(each) == 1)
            output = "..." + "".join(filter(str.isalpha, alone))
        shared = sorted(axis for axis in sizes if isinstance(axis, int))
        out = [sizes[axis] for axis in _letters(output, shared)]
        return ShapeArray(out, arrays[0].dtype)

    def resample(self, x, matrix, dim):
        return _resized(x, dim, len(matrix))

    def convolve(self, x, weight, stride, pads, dilation, groups):
        size = map(
            geometry.conv_size, x.shape[2:], weight.shape[2:], stride, pads, dilation
        )
        out = ShapeArray((x.shape[0], weight.shape[0], *size), x.dtype)
        _count(math.prod(out.shape) * math.prod(weight.shape[1:]))
        return out

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        sizes = geometry.conv_transposed_sizes(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding
        )
        _count(math.prod(x.shape) * math.prod(weight.shape[1:]))
        return ShapeArray((x.shape[0], weight.shape[1] * groups, *sizes), x.dtype)

    def max_windows(self, x, kernel, stride, pads, dilation):
        sizes = map(geometry.conv_size, x.shape[2:], kernel, stride, pads, dilation)
        return ShapeArray((*x.shape[:2], *sizes), x.dtype)

    def sum_windows(self, x, kernel, stride, pads):
        return self.max_windows(x, kernel, stride, pads, (1,) * len(pads))

    def gradient(self, function, x):
        checks.scalar(function(x), "gradient: the function's value")
        return x

    def draw(self, layer, shape, like, kind, p=0.0):
        return ShapeArray(shape, like.dtype)


class OutlineSlot(Slot):
    """The shape of a parameter or buffer; it has no value."""

    def __init__(self, native: ShapeArray) -> None:
        """Describe a parameter or buffer."""
        self.native = native
        self.is_parameter = isinstance(native, Parameter)
        self.trainable = self.is_parameter

    @property
    def shape(self) -> tuple[int, ...]:
        return self.native.shape

    def read(self) -> np.ndarray:
        raise _no_values()

    def write(self, value: np.ndarray) -> None:
        raise _no_values()

    @property
    def value(self) -> Any:
        return self.native

    @value.setter
    def value(self, array: Any) -> None:
        raise _no_values()


class AbstractOutlineNetwork(AbstractNetwork):
    """The base of networks of which only shapes are known."""

    block_path = ""
    device_name = "none"

    def __init__(self, **init_kwargs: Any) -> None:
        """Create an empty block; keyword arguments are recorded in `init_kwargs`."""
        self.training = True
        self._record(init_kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, unless it is a buffer, whose new value would have the same shape."""
        if not isinstance(vars(self).get(name), Buffer):
            super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as shapes, and record the call in the current trace."""
        trace = _trace.get()
        if trace is None:
            return self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        if self.block_path not in trace.blocks:
            trace.blocks[self.block_path] = self._block()
        block = trace.blocks[self.block_path]
        box = self._box(trace, block, (args, kwargs))
        trace.running.append(block)
        output = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        trace.running.pop()
        block.output = nest.map(lambda leaf: getattr(leaf, "shape", leaf), output)
        if box is None:
            return output
        box.output = block.output
        index = frozenset([len(trace.flow) - 1])
        return nest.map_where(
            BACKEND.is_array, lambda array: array.with_sources(index), output
        )

    def _box(self, trace: Trace, block: Block, arguments: Any) -> Flow | None:
        """Append a box to the flow and return it, or return None when this call has no box.

        A call has one at the depth of the trace, and above it if the block is a leaf.
        """
        level = len(trace.running)
        if trace.depth is None or not 0 < level <= trace.depth:
            return None
        if level < trace.depth and not block.is_leaf:
            return None
        trace.flow.append(Flow(block, _sources(arguments)))
        return trace.flow[-1]

    def _block(self) -> Block:
        """Return the record of this block before its first call."""
        size = 0
        for value in vars(self).values():
            if isinstance(value, Parameter):
                size += math.prod(value.shape)
        is_leaf = not self._children()
        return Block(self.block_path, type(self).__name__, size, is_leaf)

    def _children(self) -> list[tuple[str, AbstractOutlineNetwork]]:
        children = []
        for name, value in vars(self).items():
            if isinstance(value, AbstractOutlineNetwork):
                children.append((name, value))
        return children

    def neutral_slots(self) -> dict[str, Slot]:
        """Return own parameters, own buffers, then children; ties under each of their names."""
        slots: dict[str, Slot] = {}
        self._add_slots("", slots)
        return slots

    def _add_slots(self, prefix: str, slots: dict[str, Slot]) -> None:
        for kind in (Parameter, Buffer):
            for name, value in vars(self).items():
                if type(value) is kind:
                    slots[prefix + name] = OutlineSlot(value)
        for child, block in self._children():
            block._add_slots(f"{prefix}{child}.", slots)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Yield every block once, with its dotted path."""
        return walk(self, AbstractOutlineNetwork._children)

    @property
    def dtype_name(self) -> str:
        """The first floating type among parameters and buffers."""
        for slot in self.neutral_slots().values():
            if "float" in slot.native.dtype:
                return slot.native.dtype
        return "float32"


class OutlineBackend(Backend):
    """The backend of shapes: networks can be created and called, and nothing else."""

    name = "outline"
    dtypes = ("float32", "float64", "float16", "bfloat16")

    def version(self) -> str:
        return "outline"

    def devices(self) -> list[str]:
        return ["none"]

    def precision(self) -> dict[str, str]:
        return {}

    def array(
        self, value: Any, dtype: str | None = None, device: str | None = None
    ) -> ShapeArray:
        if dtype is None:
            typed = value if hasattr(value, "dtype") else np.asarray(value)
            dtype = str(typed.dtype)
        return ShapeArray(np.shape(value), dtype)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, ShapeArray)

    def is_native(self, value: Any) -> bool:
        return isinstance(value, AbstractOutlineNetwork)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise _no_values()

    split = concatenate = stack = wrap = gradients = optimizer = wrap_optimizer = numpy

    def seed(self, seed: int) -> None:
        """Do nothing: nothing here is random."""


def _no_values() -> CapabilityError:
    return CapabilityError(
        "an outline knows shapes, not values: build the network on another backend"
    )


def _by_numpy(function: Callable[..., Any], x: ShapeArray, setting: Any) -> ShapeArray:
    """Return what a function of NumPy gives for an array without values."""
    stand_in = np.broadcast_to(np.False_, x.shape)
    return ShapeArray(function(stand_in, setting).shape, x.dtype)


def _broadcast(*values: Any) -> ShapeArray:
    """Return shape and type of an elementwise operation; plain numbers take the arrays' type.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    arrays = [value for value in values if isinstance(value, ShapeArray)]
    shapes = [np.shape(value) for value in values]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"shapes {' and '.join(map(str, shapes))} do not fit together element by element"
        ) from None
    dtypes = [array.dtype for array in arrays]
    floating = [dtype for dtype in dtypes if "float" in dtype]
    return ShapeArray(shape, (floating or dtypes)[0])


def _resized(x: ShapeArray, dim: int, length: int) -> ShapeArray:
    """Return an array with another size along an axis."""
    shape = list(x.shape)
    shape[dim] = length
    return ShapeArray(shape, x.dtype)


BACKEND = OutlineBackend()
BACKEND.bind(OutlineFunctions(), AbstractOutlineNetwork)
