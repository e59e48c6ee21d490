"""A backend that computes shapes alone, without any framework or data: what outlines of networks
are made with.

Arrays know their shape and type, parameters have no values, products are counted. It trains
nothing, so it is not listed among `deliralike.backends.known`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.errors import CapabilityError, ShapeError
from deliralike.network.base import AbstractNetwork
from deliralike.network.construction import require_construction
from deliralike.network.state import Slot
from deliralike.nn import checks, geometry
from deliralike.nn.functional import Functions


class ShapeArray:
    """An array of which only shape and type are known, and which blocks of a traced network it
    comes from.
    """

    sources: frozenset[int] = frozenset()

    def __init__(self, shape: Sequence[int], dtype: str = "float32") -> None:
        """State the shape and the type's name."""
        self.shape, self.dtype = tuple(int(size) for size in shape), str(dtype)

    def coming_from(self, sources: frozenset[int]) -> ShapeArray:
        """The same shape, put out by other blocks."""
        copy = ShapeArray(self.shape, self.dtype)
        copy.sources = sources
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype!r})"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> ShapeArray:
        """Slices and whole numbers, as NumPy understands them."""
        part = ShapeArray(np.broadcast_to(np.empty((), bool), self.shape)[index].shape, self.dtype)
        return _following(part, (self,))

    def _combine(self, other: Any) -> ShapeArray:
        return _following(_broadcast(self, other), (self, other))

    def _compare(self, other: Any) -> ShapeArray:
        return _following(ShapeArray(_broadcast(self, other).shape, "bool"), (self, other))

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _combine
    )
    __pow__ = __mod__ = __floordiv__ = __and__ = __or__ = __xor__ = _combine
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compare  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> ShapeArray:
        return self

    __invert__ = __neg__


def inputs(entries: Sequence[Any]) -> list[ShapeArray]:
    """The inputs of a network for a batch of one. They come from boxes of their own, the last of
    which has index -1.
    """
    arrays = [
        ShapeArray((1, *entry.shape), "float32" if entry.below is None else "int64")
        for entry in entries
    ]
    return [
        array.coming_from(frozenset([index - len(arrays)])) for index, array in enumerate(arrays)
    ]


class Parameter(ShapeArray):
    """A parameter's shape."""


class Buffer(ShapeArray):
    """A buffer's shape."""


@dataclass
class Block:
    """What one block of a network did.

    Attributes:
        path: Its dotted path.
        type: Its class's name.
        parameters: The number of its own parameters, those of blocks below it not counted.
        is_leaf: Whether it has no blocks below it.
        output: The shape that it gave last, or a nest of shapes.
        multiply_adds: Multiplications (each with an addition) in its own products, over all calls.
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
        block: What is called.
        sources: The indices of the boxes whose outputs it takes; for the network's inputs see
            `inputs`.
        output: The shape that it gives, or a nest of shapes.
    """

    block: Block
    sources: frozenset[int]
    output: Any = None


@dataclass
class Trace:
    """What is collected while a network runs on shapes.

    Attributes:
        blocks: By path, in the order of their first calls.
        depth: How many calls deep a block is looked into for `flow`; None when no flow is wanted.
        flow: The boxes in the order of their calls.
        running: The blocks that are being called now, the outermost first.
    """

    blocks: dict[str, Block]
    depth: int | None = None
    flow: list[Flow] = field(default_factory=list)
    running: list[Block] = field(default_factory=list)


_trace: ContextVar[Trace | None] = ContextVar("deliralike_outline", default=None)


@contextmanager
def tracing(depth: int | None = None) -> Iterator[Trace]:
    """Collect what the blocks of a network do, and (to a depth of calls) from where to where the
    data flow.
    """
    trace = Trace({}, depth)
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def _count(products: int) -> None:
    trace = _trace.get()
    if trace and trace.running:
        trace.running[-1].multiply_adds += products


def _sources(value: Any) -> frozenset[int]:
    """The boxes from which the arrays in a nest come."""
    return frozenset().union(
        *(leaf.sources for leaf in nest.leaves(value) if isinstance(leaf, ShapeArray))
    )


def _following(result: ShapeArray, arguments: Any) -> ShapeArray:
    """A result that comes from where its arguments come from, if anybody wants to know."""
    trace = _trace.get()
    if trace is None or trace.depth is None:
        return result
    return result.coming_from(_sources(arguments)) if isinstance(result, ShapeArray) else result


def _follow(functions: type) -> type:
    """Let the results of a vocabulary's functions come from where their arguments come from."""
    for name, function in list(vars(functions).items()):
        if not name.startswith("_") and callable(function):
            setattr(functions, name, _followed(function))
    return functions


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    counting = (
        2 if function.__name__ in ("cast", "constant", "zeros") else None
    )  # the second only gives them a type

    @wraps(function)
    def follow(*args: Any, **kwargs: Any) -> Any:
        return _following(function(*args, **kwargs), args[1:counting])

    return follow


@_follow
class OutlineFunctions(Functions):
    """Shapes of results."""

    def Parameter(self, shape, start):
        return Parameter(shape, require_construction("a parameter").dtype)

    def Buffer(self, value):
        dtype = (
            require_construction("a buffer").dtype if value.dtype.kind == "f" else str(value.dtype)
        )
        return Buffer(value.shape, dtype)

    def constant(self, value, like):
        floating = np.asarray(value).dtype.kind == "f" and "float" in like.dtype
        return ShapeArray(np.shape(value), like.dtype if floating else str(np.asarray(value).dtype))

    def zeros(self, shape, like):
        return ShapeArray(shape, like.dtype)

    def cast(self, x, dtype):
        return ShapeArray(x.shape, dtype if isinstance(dtype, str) else dtype.dtype)

    def concrete(self, x):
        return None

    def stop_gradient(self, x):
        return x

    exp = log = sqrt = sin = cos = tanh = erf = sigmoid = softplus = relu = abs = stop_gradient

    def clip(self, x, low, high):
        return x

    def flip(self, x, dim):
        return x

    log_softmax = flip

    def where(self, condition, x, y):
        return ShapeArray(_broadcast(condition, x, y).shape, _broadcast(x, y).dtype)

    def sum(self, x, dim=None, keepdim=False):
        dims = range(len(x.shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
        dims = {d % len(x.shape) for d in dims}
        kept = [
            1 if d in dims else size for d, size in enumerate(x.shape) if keepdim or d not in dims
        ]
        return ShapeArray(kept, x.dtype)

    mean = max = sum

    def argmax(self, x, dim):
        return ShapeArray(self.sum(x, dim).shape, "int64")

    def reshape(self, x, shape):
        known = math.prod(size for size in shape if size != -1)
        total = math.prod(x.shape)
        wanted = tuple(total // known if size == -1 and known else size for size in shape)
        if list(shape).count(-1) > 1 or math.prod(wanted) != total:
            raise ShapeError(
                f"reshape: {total} elements of shape {x.shape} do not fit into {tuple(shape)}"
            )
        return ShapeArray(wanted, x.dtype)

    def permute(self, x, dims):
        return ShapeArray([x.shape[d] for d in dims], x.dtype)

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
        return ShapeArray(
            [length if d == dim else size for d, size in enumerate(arrays[0].shape)],
            arrays[0].dtype,
        )

    def pad_constant(self, x, pads, value=0.0):
        return ShapeArray(
            [size + sum(pad) for size, pad in zip(x.shape, pads, strict=True)], x.dtype
        )

    def select(self, x, index, dim):
        dim = dim % len(x.shape)
        return ShapeArray((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype)

    def select_along(self, x, index, dim):
        return ShapeArray(index.shape, x.dtype)

    def matmul(self, x, y):
        if x.shape[-1] != y.shape[-2]:
            raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} do not fit")
        out = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
        _count(math.prod(out) * x.shape[-1])
        return ShapeArray(out, x.dtype)

    def einsum(self, equation, *arrays):
        inputs, output = equation.replace(" ", "").split("->")
        sizes = {
            a: n
            for axes, x in zip(inputs.split(","), arrays, strict=True)
            for a, n in zip(axes, x.shape, strict=True)
        }
        _count(math.prod(sizes.values()) if len(arrays) > 1 else 0)
        return ShapeArray([sizes[axis] for axis in output], arrays[0].dtype)

    def resample(self, x, matrix, dim):
        return ShapeArray(
            [len(matrix) if d == dim else size for d, size in enumerate(x.shape)], x.dtype
        )

    def convolve(self, x, weight, stride, pads, dilation, groups):
        size = map(geometry.conv_size, x.shape[2:], weight.shape[2:], stride, pads, dilation)
        out = ShapeArray((x.shape[0], weight.shape[0], *size), x.dtype)
        _count(math.prod(out.shape) * math.prod(weight.shape[1:]))
        return out

    def convolve_transposed(self, x, weight, stride, padding, output_padding, dilation, groups):
        axes = zip(
            x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation, strict=True
        )
        size = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, extra, d in axes]
        _count(math.prod(x.shape) * math.prod(weight.shape[1:]))
        return ShapeArray((x.shape[0], weight.shape[1] * groups, *size), x.dtype)

    def max_windows(self, x, kernel, stride, pads, dilation):
        return ShapeArray(
            (*x.shape[:2], *map(geometry.conv_size, x.shape[2:], kernel, stride, pads, dilation)),
            x.dtype,
        )

    def sum_windows(self, x, kernel, stride, pads):
        return self.max_windows(x, kernel, stride, pads, (1,) * len(pads))

    def gradient(self, function, x):
        checks.scalar(function(x), "gradient: the function's value")
        return x

    def keep_mask(self, layer, shape, p, like):
        return ShapeArray(shape, like.dtype)


class OutlineSlot(Slot):
    """The shape of a parameter or buffer; it has no value."""

    def __init__(self, native: ShapeArray) -> None:
        """Look at a shape."""
        self.native, self.is_parameter = native, isinstance(native, Parameter)
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
        raise _no_values()

    @value.setter
    def value(self, array: Any) -> None:
        raise _no_values()


class AbstractOutlineNetwork(AbstractNetwork):
    """The base of networks of which only shapes are known."""

    block_path = ""
    device_name = "none"

    def __init__(self, **init_kwargs: Any) -> None:
        """Make an empty block; keyword arguments are recorded in `init_kwargs`."""
        self.training = True
        self._record(init_kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Buffers stay what they are: a new value has no other shape."""
        if not isinstance(vars(self).get(name), Buffer):
            super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes of the outputs."""
        trace = _trace.get()
        if trace is None:
            return self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        block = trace.blocks.get(self.block_path)
        if block is None:
            block = trace.blocks[self.block_path] = self._block()
        box = self._box(trace, block, (args, kwargs))
        trace.running.append(block)
        output = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        trace.running.pop()
        block.output = nest.map(lambda leaf: getattr(leaf, "shape", leaf), output)
        if box is None:
            return output
        box.output, index = block.output, frozenset([len(trace.flow) - 1])
        return nest.map(
            lambda leaf: leaf.coming_from(index) if isinstance(leaf, ShapeArray) else leaf, output
        )

    def _box(self, trace: Trace, block: Block, arguments: Any) -> Flow | None:
        """A box of the flow, if this call is one: at the depth wanted, or above it with nothing
        inside.
        """
        level = len(trace.running)
        if (
            trace.depth is None
            or level == 0
            or level > trace.depth
            or (level < trace.depth and not block.is_leaf)
        ):
            return None
        trace.flow.append(Flow(block, _sources(arguments)))
        return trace.flow[-1]

    def _block(self) -> Block:
        own = [value for value in vars(self).values() if isinstance(value, Parameter)]
        size = sum(math.prod(value.shape) for value in own)
        return Block(self.block_path, type(self).__name__, size, not self._children())

    def _children(self) -> list[tuple[str, AbstractOutlineNetwork]]:
        return [
            (name, value)
            for name, value in vars(self).items()
            if isinstance(value, AbstractOutlineNetwork)
        ]

    def neutral_slots(self) -> dict[str, Slot]:
        """Own parameters, own buffers, then children; ties appear under each of their names."""
        slots: dict[str, Slot] = {}
        self._add_slots("", slots)
        return slots

    def _add_slots(self, prefix: str, slots: dict[str, Slot]) -> None:
        for kind in (Parameter, Buffer):
            slots |= {
                prefix + name: OutlineSlot(value)
                for name, value in vars(self).items()
                if type(value) is kind
            }
        for child, block in self._children():
            block._add_slots(f"{prefix}{child}.", slots)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Every block with its dotted path, each once."""
        seen: set[int] = set()
        return self._named("", seen)

    def _named(self, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
        if id(self) not in seen:
            seen.add(id(self))
            yield path, self
            for name, block in self._children():
                yield from block._named(f"{path}.{name}".lstrip("."), seen)

    def train(self, mode: bool = True) -> AbstractOutlineNetwork:
        """Set training or evaluation mode."""
        for _, block in self.named_blocks():
            block.training = mode
        return self

    @property
    def dtype_name(self) -> str:
        """The floating type of the first parameter or buffer."""
        natives = (slot.native for slot in self.neutral_slots().values())
        return next((native.dtype for native in natives if "float" in native.dtype), "float32")


class OutlineBackend(Backend):
    """Shapes alone: networks can be created and called, nothing else."""

    name = "outline"
    dtypes = ("float32", "float64", "float16", "bfloat16")

    def version(self) -> str:
        return "outline"

    def devices(self) -> list[str]:
        return ["none"]

    def precision(self) -> dict[str, str]:
        return {}

    def array(self, value: Any, dtype: str | None = None, device: str | None = None) -> ShapeArray:
        return ShapeArray(
            np.shape(value), dtype or str(getattr(value, "dtype", np.asarray(value).dtype))
        )

    def is_array(self, value: Any) -> bool:
        return isinstance(value, ShapeArray)

    def is_native(self, value: Any) -> bool:
        return isinstance(value, AbstractOutlineNetwork)

    def numpy(self, array: Any) -> np.ndarray:
        raise _no_values()

    def split(self, array: Any, sizes: Any, dim: int, devices: Any) -> list[ShapeArray]:
        raise _no_values()

    def concatenate(self, values: Any, dim: int, device: Any = None) -> ShapeArray:
        raise _no_values()

    def stack(self, values: Any, device: Any = None) -> ShapeArray:
        raise _no_values()

    def wrap(self, native: Any) -> AbstractNetwork:
        raise _no_values()

    def gradients(self, loss_function: Any, network: Any, *inputs: Any) -> Any:
        raise _no_values()

    def optimizer(
        self, rule: Any, network: Any, parameters: str | None = None, groups: Any = None
    ) -> Any:
        raise _no_values()

    def wrap_optimizer(self, native: Any, network: Any) -> Any:
        raise _no_values()

    def seed(self, seed: int) -> None:
        """There is no chance here."""


def _no_values() -> CapabilityError:
    return CapabilityError(
        "an outline knows shapes, not values: build the network on another backend"
    )


def _broadcast(*values: Any) -> ShapeArray:
    """The shape and type of an operation element by element; plain numbers take the arrays'
    type.
    """
    arrays = [value for value in values if isinstance(value, ShapeArray)]
    shapes = [value.shape if isinstance(value, ShapeArray) else np.shape(value) for value in values]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"shapes {' and '.join(map(str, shapes))} do not fit together element by element"
        ) from None
    floating = [array.dtype for array in arrays if "float" in array.dtype]
    return ShapeArray(shape, (floating or [array.dtype for array in arrays])[0])


BACKEND = OutlineBackend()
BACKEND.bind(OutlineFunctions(), AbstractOutlineNetwork)
