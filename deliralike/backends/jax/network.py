"""The native base class on JAX, and the neutral state of its networks.

The neutral state has the names of the package's own layers and those of flax's layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx
from flax.nnx.module import ModuleMeta

from deliralike import nest
from deliralike.backends.jax import arrays, host_random
from deliralike.backends.jax.compiled import nested_gradients
from deliralike.backends.jax.variables import array_of, set_array
from deliralike.errors import ArgumentError
from deliralike.nest.arrays import widest
from deliralike.network import tree
from deliralike.network.base import (
    AbstractNetwork,
    NetworkType,
    StateDictNames,
    refuse_plain_container,
)
from deliralike.network.construction import current_construction
from deliralike.network.state import Slot
from deliralike.network.unregistered_modules import refuse_without_init
from deliralike.network.wrapper import NativeWrapper
from deliralike.nn.start import Shape

_NOT_SAVED = (nnx.RngState, nnx.Intermediate)
_FROZEN = "frozen"


@dataclass(frozen=True)
class Layout:
    """The layout of a native array: the axes to permute and the axes to reverse.

    The array has PyTorch's layout after the axes were permuted and then reversed.
    """

    axes: tuple[int, ...] | None = None
    reversed: tuple[int, ...] = ()

    def to_neutral(self, value: Any) -> Any:
        """An array of the native layout in PyTorch's, as a copy on the host; a traced one as is."""
        if arrays.is_traced(value):
            return self.permute(value, jax.numpy)
        return np.array(self.permute(value), order="C")

    def permute(self, value: Any, xp: Any = np) -> Any:
        """An array of the native layout in PyTorch's, perhaps a view; traced ones with jnp."""
        if self.axes is not None:
            value = xp.transpose(value, self.axes)
        if self.reversed:
            value = xp.flip(value, self.reversed)
        return value

    def to_native(self, value: Any, xp: Any = np) -> Any:
        """An array of PyTorch's layout in the native one."""
        if self.reversed:
            value = xp.flip(value, self.reversed)
        if self.axes is not None:
            value = xp.transpose(value, tuple(map(int, np.argsort(self.axes))))
        return value

    def shape(self, native: Shape) -> Shape:
        """The shape in PyTorch's layout."""
        if self.axes is None:
            return tuple(native)
        return tuple(native[axis] for axis in self.axes)


_PLAIN = Layout()


class JaxSlot(Slot):
    """A variable of a module, seen in PyTorch's layout; its value is set in place."""

    is_resizable = True

    def __init__(self, native: nnx.Variable, layout: Layout = _PLAIN) -> None:
        """Look at a variable; nothing is copied."""
        self.native = native
        self.layout = layout
        self.is_parameter = isinstance(native, nnx.Param)

    @property
    def trainable(self) -> bool:
        """Whether optimizers update the parameter; a frozen one says so in its metadata."""
        return self.is_parameter and not self.native.has_metadata(_FROZEN)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if value and self.native.has_metadata(_FROZEN):
            self.native.del_metadata(_FROZEN)
        elif not value:
            self.native.set_metadata(_FROZEN, True)

    @property
    def shape(self) -> Shape:
        """The shape in PyTorch's layout."""
        return self.layout.shape(array_of(self.native).shape)

    def read(self) -> np.ndarray:
        """A copy on the host, in the neutral type (a counter is int64, whatever JAX counts in)."""
        value = self.layout.to_neutral(arrays.numpy(array_of(self.native)))
        name = self.native.get_metadata("neutral_dtype", "")
        if name.startswith("int"):
            return value.astype(name)
        return value

    def write(self, value: np.ndarray) -> None:
        """Set the variable's value, in its type, on its devices."""
        value = self.layout.to_native(value)
        set_array(self.native, arrays.put_like(value, array_of(self.native)))

    def resize(self, shape: Shape) -> None:
        """Let the parameter hold zeros of another shape."""
        if not self.is_parameter:
            super().resize(shape)
        native_shape = self.layout.to_native(np.empty(shape)).shape
        set_array(self.native, arrays.zeros(native_shape, array_of(self.native)))

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        """An array of PyTorch's layout with the axes in flax's order."""
        return self.layout.to_native(value)

    @property
    def value(self) -> Any:
        """The variable's array; when set, the variable holds another one."""
        return array_of(self.native)

    @value.setter
    def value(self, array: Any) -> None:
        set_array(self.native, array)


class StaticList(list):
    """A list among a module's settings; hashable, since nnx compares the settings of modules."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Hash the length only: elements may be unhashable."""
        return hash((StaticList, len(self)))


class StaticDict(dict):
    """A dict among a module's settings; hashable, since nnx compares the settings of modules."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Hash the length only: elements may be unhashable."""
        return hash((StaticDict, len(self)))


class JaxNetworkType(NetworkType, ModuleMeta):
    """Builds networks: ours first (arguments, start values), then flax's (module state)."""

    def _create(cls, *arguments: Any) -> Any:  # noqa: N805  # a metaclass
        network = super()._create(*arguments)
        refuse_without_init(network, next(iter(network._order), "blocks"), "training")
        return network


class AbstractJaxNetwork(
    StateDictNames, AbstractNetwork, nnx.Module, metaclass=JaxNetworkType
):
    """The base of networks on JAX: a ``flax.nnx.Module`` that answers the neutral interface.

    Networks written once are bound to it; a network written for JAX alone may subclass it as it
    would ``nnx.Module`` (call ``super().__init__()`` first). ``nnx.jit``, ``nnx.grad``,
    ``nnx.split`` and ``nnx.merge`` are flax's own.
    """

    block_path = ""
    training = True
    _order: tuple[str, ...] = ()

    def __init__(self, **init_kwargs: Any) -> None:
        """Make an empty module in training mode.

        Keyword arguments are recorded in `init_kwargs`.
        """
        self.training = True
        self._record(init_kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        arrays.refuse_fork()
        return host_random.watched(self, self.forward, *args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; an array sets the value of a buffer of that name."""
        if current_construction() is None:  # until the end it may become a ModuleList
            refuse_plain_container(self, name, value)
        present = vars(self).get(name)
        if isinstance(present, nnx.Variable) and isinstance(
            value, jax.Array | np.ndarray
        ):
            if isinstance(present, nnx.Param):
                raise ArgumentError(
                    f"{type(self).__name__}: {name!r} is a registered Param and cannot be set to "
                    f"{nest.described(value)}: assign a Param, or None, or set its value, "
                    f"self.{name}.set_value(array)"
                )
            if not isinstance(value, jax.Array):
                value = arrays.put_like(value, array_of(present))
            if isinstance(present, nnx.BatchStat):  # as elsewhere, without its graph
                value = jax.lax.stop_gradient(value)
            nested_gradients.store(present, value)
            return
        value = _setting(value)
        if name in vars(self) and nnx.is_data(value) != nnx.is_data(present):
            # nnx refuses to turn a setting into a block or back, as in `self.head = None`
            delattr(self, name)
        super().__setattr__(name, value)
        if nnx.is_data(value) and name not in self._order:
            object.__setattr__(self, "_order", (*self._order, name))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy that shares nothing with this network.

        The order of creation and ties are kept, also with flax's own blocks. Random layers of this
        package draw other masks in the copy.
        """
        modules = []
        for _, node in walk(self):
            if id(node) in memo:
                continue
            if isinstance(node, nnx.Variable):  # its deepcopy would give its array
                value = array_of(node)
                copy = arrays.copied if isinstance(value, jax.Array) else deepcopy
                memo[id(node)] = node.copy(copy(value))
            elif "__deepcopy__" in vars(type(node)):  # a stream of random numbers
                deepcopy(node, memo)
            else:
                memo[id(node)] = object.__new__(type(node))
                modules.append(node)
        for module in modules:
            memo[id(module)].__setstate__(deepcopy(vars(module), memo))
        return memo[id(self)]

    def __repr__(self) -> str:
        """Return the tree of blocks in creation order, each with its arguments."""
        return _tree(self)

    __str__ = __repr__

    def _mode_attributes(self, block: Any, training: bool) -> dict[str, bool]:
        # flax's own blocks
        flags = ("deterministic", "use_running_average")
        if isinstance(block, AbstractNetwork):
            return super()._mode_attributes(block, training)
        return {name: not training for name in flags if hasattr(block, name)}

    def _changed_by_mode(self, block: Any) -> Iterable[str]:
        if isinstance(block, AbstractNetwork) or not self._has_own_mode(block):
            return super()._changed_by_mode(block)
        settings = vars(block).items()  # it may set anything
        return [name for name, value in settings if type(value) in _PLAIN_SETTINGS]

    def _has_own_mode(self, block: Any) -> bool:
        kind, base = type(block), nnx.Module
        if isinstance(block, AbstractJaxNetwork):
            base = AbstractJaxNetwork
        return kind.train is not base.train or kind.eval is not base.eval

    def neutral_slots(self) -> dict[str, Slot]:
        """Return parameters, then buffers, then blocks, each in the order of creation.

        Tied parameters appear under each of their names.

        Layers of flax's own have PyTorch's names and layouts here where PyTorch has such a layer
        (`Linear`, `Conv`, `ConvTranspose`, `Embed` and the norms); others (`MultiHeadAttention`,
        `LinearGeneral` …) keep flax's.
        """
        return dict(self._each_slot())

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Every module with its dotted path, each once."""
        return named_modules(self)

    @property
    def device_name(self) -> str:
        """The device of the first parameter or buffer."""
        for variable in _saved(self):
            return arrays.name_of_device(array_of(variable))
        return arrays.default_device()

    def _each_slot(self) -> Iterator[tuple[str, JaxSlot]]:
        return _slots(self)

    @property
    def dtype_name(self) -> str:
        """The floating type of the parameters and buffers."""
        dtypes = (array_of(variable).dtype for variable in _saved(self))
        dtype = widest(filter(arrays.is_floating, dtypes))
        return self.dtype_built if dtype is None else str(dtype)


class WrappedJaxNetwork(NativeWrapper, AbstractJaxNetwork):
    """A module of flax's own seen as an abstract network.

    It has the same variables under the same names.
    """

    def __init__(self, native: nnx.Module) -> None:
        """Share the module's weights; nothing is copied."""
        super().__init__()
        self.native = native

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs."""
        return self.native(*args, **kwargs)

    def _each_slot(self) -> Iterator[tuple[str, JaxSlot]]:
        return _slots(self.native)  # without a prefix

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        """Yield this network, then the module's blocks without a prefix.

        The module itself comes second.
        """
        yield "", self
        yield from named_modules(self.native)


def named_modules(module: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    """Yield every module with its dotted path, each once, in the order of creation.

    Lists and dicts are not yielded.
    """
    for path, node in walk(module):
        is_container = path and isinstance(node, nnx.List | nnx.Dict)
        if isinstance(node, nnx.Module) and not is_container:
            yield path, node


def walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield every module, other node and variable with its dotted path.

    Each is yielded once, in the order of creation.
    """
    for path, node in tree.walk(root, children):
        if isinstance(node, _NODES):
            yield path, node


def children(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each part of a node that holds variables.

    The node is a module or container; the order is that of creation.
    """
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(node, AbstractNetwork):
        own = _in_order_of_creation(node)
        items = [one for one in own if type(one[1]) not in (list, tuple, dict)]
    elif isinstance(node, nnx.Pytree):
        items = _in_order_of_creation(node)
    elif type(node) is dict:
        items = node.items()
    elif type(node) in (list, tuple):
        items = enumerate(node)
    return ((str(name), value) for name, value in items if holds(value))


def _in_order_of_creation(module: nnx.Pytree) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each attribute; those whose order is unknown come last."""
    attributes = vars(module)
    known = [name for name in attributes.get("_order", ()) if name in attributes]
    for name in dict.fromkeys([*known, *attributes]):
        if not name.startswith("_pytree__"):
            yield name, attributes[name]


def _tree(block: Any, above: tuple[int, ...] = ()) -> str:
    """Return the text of a module or container and of all below it, indented.

    Of a block that holds one of the blocks above it, that one is not shown again.
    """
    above = (*above, id(block))
    parts = []
    for name, child in children(block):
        has_modules = any(isinstance(node, nnx.Module) for _, node in walk(child))
        if has_modules and id(child) not in above:
            parts.append((name, _tree(child, above)))
    return tree.block_tree(type(block).__name__, _settings(block), parts)


def _settings(block: Any) -> Iterable[tuple[str, Any]]:
    """Return the arguments of a block; of one of flax's the plain values that it holds."""
    if isinstance(block, AbstractNetwork):
        return block.init_kwargs.items()
    if not isinstance(block, nnx.Module):
        return ()
    attributes = vars(block).items()
    return [
        (name, value)
        for name, value in attributes
        if isinstance(value, _PLAIN_SETTINGS)
    ]


_PLAIN_SETTINGS = (bool, int, float, str)
_NODES = (nnx.Pytree, nnx.Variable)


def holds(value: Any) -> bool:
    """Whether a value is, or may hold, a variable or module."""
    if isinstance(value, _PLAIN_SETTINGS):
        return False  # quicker than flax's own test
    return isinstance(value, _NODES) or type(value) in (list, tuple, dict)


def _setting(value: Any) -> Any:
    """A plain list or dict as nnx takes one: of arrays or modules as data, of others hashable."""
    if type(value) not in (list, tuple, dict):
        return value
    if any(map(nnx.is_data, jax.tree.leaves(value, is_leaf=nnx.is_data))):
        return nnx.data(value)
    if type(value) is tuple:
        return value
    return StaticList(value) if type(value) is list else StaticDict(value)


def _slots(
    module: nnx.Module, path: str = "", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, JaxSlot]]:
    """Yield the slots below a module or container.

    A block that holds one of the blocks above it is not entered again.
    """
    own, blocks = [], []
    for name, child in children(module):
        if not isinstance(child, nnx.Variable):
            blocks.append((name, child))
        elif _is_saved(child):
            own.append((name, child))
    # copies of flax's layers have forgotten the order of creation
    is_flax = isinstance(module, tuple(_FLAX_LAYERS))

    def order(item: tuple[str, nnx.Variable]) -> tuple[bool, bool]:
        name, variable = item
        return not isinstance(variable, nnx.Param), is_flax and name == "bias"

    for name, variable in sorted(own, key=order):
        yield _slot(module, name, variable, path)
    for name, block in blocks:
        if id(block) not in above:
            yield from _slots(block, f"{path}{name}.", (*above, id(module)))


def _saved(root: Any) -> Iterator[nnx.Variable]:
    """Yield the variables of the neutral state in the order of the walk.

    The first ones are found without a walk through all.
    """
    for _, node in walk(root):
        if isinstance(node, nnx.Variable) and _is_saved(node):
            yield node


def _is_saved(variable: nnx.Variable) -> bool:
    return not isinstance(variable, _NOT_SAVED) and hasattr(array_of(variable), "shape")


def _slot(
    module: Any, name: str, variable: nnx.Variable, path: str
) -> tuple[str, JaxSlot]:
    for kind, (names, layout) in _FLAX_LAYERS.items():
        if isinstance(module, kind) and name in names:
            neutral_name = names[name]
            if neutral_name == "weight" and layout is not None:
                return f"{path}{neutral_name}", JaxSlot(
                    variable, layout(module, variable)
                )
            return f"{path}{neutral_name}", JaxSlot(variable)
    return f"{path}{name}", JaxSlot(variable)


def _linear_layout(module: nnx.Linear, kernel: nnx.Variable) -> Layout:
    """Return the layout of a kernel (in, out), which becomes (out, in); stacked axes stay first."""
    n = len(array_of(kernel).shape) - 2
    return Layout((*range(n), n + 1, n))


def _conv_layout(module: nnx.Conv, kernel: nnx.Variable) -> Layout:
    """Return the layout of a kernel (*kernel, in, out), which becomes (out, in, *kernel)."""
    n = len(array_of(kernel).shape) - 2
    return Layout((n + 1, n, *range(n)))


def _conv_transpose_layout(module: nnx.ConvTranspose, kernel: nnx.Variable) -> Layout:
    """Return the layout of a transposed convolution's kernel.

    The kernel is (*kernel, in, out), or (*kernel, out, in), which flax reverses when it is applied;
    it becomes (in, out, *kernel).
    """
    n = len(array_of(kernel).shape) - 2
    if module.transpose_kernel:
        return Layout((n + 1, n, *range(n)))
    return Layout((n, n + 1, *range(n)), tuple(range(2, n + 2)))


_NORM = {"scale": "weight", "bias": "bias"}
_KERNEL = {"kernel": "weight", "bias": "bias"}
_FLAX_LAYERS: dict[type, tuple[dict[str, str], Callable[..., Layout] | None]] = {
    nnx.Linear: (_KERNEL, _linear_layout),
    nnx.Conv: (_KERNEL, _conv_layout),
    nnx.ConvTranspose: (_KERNEL, _conv_transpose_layout),
    nnx.Embed: ({"embedding": "weight"}, None),
    nnx.BatchNorm: (_NORM | {"mean": "running_mean", "var": "running_var"}, None),
    nnx.LayerNorm: (_NORM, None),
    nnx.GroupNorm: (_NORM, None),
    nnx.InstanceNorm: (_NORM, None),
    nnx.RMSNorm: (_NORM, None),
}
