"""The native base of networks, an `mlx.nn.Module`, and its weights by neutral names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from deliralike.network import AbstractNetwork, refuse_plain_container
from deliralike.network.base import StateDictNames
from deliralike.network.construction import current_construction
from deliralike.network.state import Slot
from deliralike.network.unregistered_modules import refuse_without_init
from deliralike.network.wrapper import NativeWrapper
from deliralike_mlx.arrays import from_host, is_floating, name_of

# The axes of PyTorch's kernel in the order in which a layer of MLX holds them.
_KERNELS = {
    nn.Conv1d: (0, 2, 1),
    nn.Conv2d: (0, 2, 3, 1),
    nn.Conv3d: (0, 2, 3, 4, 1),
    nn.ConvTranspose1d: (1, 2, 0),
    nn.ConvTranspose2d: (1, 2, 3, 0),
    nn.ConvTranspose3d: (1, 2, 3, 4, 0),
}
# What only modules of MLX have; a block or an array may have such a name.
_METHODS = frozenset(
    name
    for name in {*dir(nn.Module)} - {*dir(AbstractNetwork), "training"}
    if not name.startswith("_")
)
_NATIVE_BUFFERS = {nn.BatchNorm: ("running_mean", "running_var")}


@dataclass(frozen=True)
class BufferValue:
    """An array that is to become a buffer of the network to which it is assigned."""

    array: mx.array


@dataclass(frozen=True)
class StateValue:
    """An array that a network remembers, and that is none of its weights."""

    array: mx.array


class MLXSlot(Slot):
    """One parameter or buffer: an array in one place of a network, or in several if it is tied."""

    is_resizable = True

    def __init__(self, module: nn.Module, key: str) -> None:
        """Look at an array of a module."""
        self.places = [(module, key)]
        self.is_parameter = key not in _buffer_names(module)
        order = _KERNELS.get(type(module)) if key == "weight" else None
        self._order = order

    @property
    def native(self) -> mx.array:
        """The array, the same object for as long as the network lives."""
        module, key = self.places[0]
        return dict.__getitem__(module, key)

    def put(self, array: mx.array) -> None:
        """Let another array stand in the places of this one."""
        for module, key in self.places:
            dict.__setitem__(module, key, array)

    @property
    def trainable(self) -> bool:
        """Whether the parameter is trained; MLX calls the others frozen."""
        module, key = self.places[0]
        return self.is_parameter and key not in module._no_grad

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        for module, key in self.places:
            if trainable:
                module._no_grad.discard(key)
            else:
                module._no_grad.add(key)

    def to_neutral(self, array: mx.array) -> mx.array:
        """Return an array of the native layout in the neutral one."""
        return array if self._order is None else mx.transpose(array, self._inverse)

    def to_native(self, array: mx.array) -> mx.array:
        """Return an array of the neutral layout in the native one."""
        return array if self._order is None else mx.transpose(array, self._order)

    @property
    def _inverse(self) -> tuple[int, ...]:
        return tuple(np.argsort(self._order).tolist())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.to_neutral(self.native).shape)

    def read(self) -> np.ndarray:
        return np.array(self.to_neutral(self.native))

    def write(self, value: np.ndarray) -> None:
        self.value = self.to_native(from_host(value))

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        return value if self._order is None else value.transpose(self._order)

    def resize(self, shape: tuple[int, ...]) -> None:
        zeros = mx.zeros(shape, self.native.dtype)
        self.put(self.to_native(zeros))

    @property
    def value(self) -> mx.array:
        return self.native

    @value.setter
    def value(self, array: mx.array) -> None:
        self.native[...] = array.astype(self.native.dtype)


def _buffer_names(module: nn.Module) -> tuple[str, ...] | set[str]:
    return _NATIVE_BUFFERS.get(type(module)) or getattr(module, "_buffer_names", ())


def _modules_in(value: Any, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules in a value of a module's, which may be lists and dicts of them."""
    if isinstance(value, nn.Module):
        yield path, value
    elif isinstance(value, list | tuple | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _modules_in(item, f"{path}.{key}")


def modules_by_path(module: nn.Module, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a module and all within it, those with two paths under each of them."""
    yield path, module
    for key, value in dict.items(module):
        for below, child in _modules_in(value, f"{path}.{key}".lstrip(".")):
            yield from modules_by_path(child, below)


def slots_of(module: nn.Module) -> dict[str, MLXSlot]:
    """Return the parameters and buffers of a module by their neutral names."""
    slots: dict[str, MLXSlot] = {}
    by_array: dict[int, MLXSlot] = {}
    for path, block in modules_by_path(module):
        buffers = _buffer_names(block)
        keys = [key for key, value in dict.items(block) if isinstance(value, mx.array)]
        for key in sorted(keys, key=lambda key: key in buffers):
            slot = MLXSlot(block, key)
            first = by_array.setdefault(id(slot.native), slot)
            if first is not slot:
                first.places.append((block, key))
            slot.places = first.places
            slots[f"{path}.{key}".lstrip(".")] = slot
    return slots


@contextmanager
def substituted(
    slots: Mapping[str, MLXSlot], arrays: Mapping[str, mx.array]
) -> Iterator[None]:
    """Let other arrays stand for parameters, as the ones that MLX traces do."""
    originals = {name: slots[name].native for name in arrays}
    try:
        for name, array in arrays.items():
            slots[name].put(array)
        yield
    finally:
        for name, original in originals.items():
            slots[name].put(original)


class _Method:
    """A method of MLX's modules or of dicts, unless a network has a block of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.method = getattr_static(nn.Module, name)

    def __get__(self, network: Any, owner: type) -> Any:
        if network is not None and dict.__contains__(network, self.name):
            return dict.__getitem__(network, self.name)
        return self.method.__get__(network, owner)


class AbstractMLXNetwork(AbstractNetwork, StateDictNames, nn.Module):
    """The native base of networks written once.

    Arrays that ``__init__`` assigns are parameters, as MLX has it, unless they are made by
    ``nn.Buffer`` or ``nn.State``.
    """

    block_path = ""
    _may_be_hidden = _METHODS

    def __init__(self, **init_kwargs: Any) -> None:
        object.__setattr__(self, "_buffer_names", set())
        object.__setattr__(self, "_no_grad", set())
        self.training = True
        self._record(init_kwargs)

    # A module of MLX is a dict: its methods are called as ``dict.items(module)``, since a
    # ModuleDict has its own. A dict has no hash, is equal to its copies, and false when empty.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __bool__(self) -> bool:
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo[id(self)] = type(self).__new__(type(self))
        vars(twin).update(deepcopy(vars(self), memo))
        for key, value in dict.items(self):
            dict.__setitem__(twin, key, deepcopy(value, memo))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        create, arguments, *_ = super().__reduce_ex__(protocol)
        return create, arguments, (vars(self), dict(dict.items(self)))

    def __setstate__(self, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        attributes, items = state
        vars(self).update(attributes)
        dict.update(self, items)

    @property
    def training(self) -> bool:
        """Whether the network is in training mode."""
        return self._training

    @training.setter
    def training(self, mode: bool) -> None:
        object.__setattr__(self, "_training", mode)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, mx.array):
            self._set_array(name, value)
        elif isinstance(value, BufferValue):
            self._register(name, value.array)
            self._buffer_names.add(name)
            self._no_grad.add(name)
        elif isinstance(value, nn.Module):
            self._register(name, value)
        else:
            refuse_plain_container(self, name, value)
            dict.pop(self, name, None)
            if isinstance(value, StateValue):
                value = value.array
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if dict.pop(self, name, None) is None:
            object.__delattr__(self, name)

    def _register(self, name: str, value: Any) -> None:
        refuse_without_init(self, name, "_no_grad")
        vars(self).pop(name, None)
        dict.__setitem__(self, name, value)

    def _set_array(self, name: str, array: mx.array) -> None:
        is_built = current_construction() is None
        present = dict.get(self, name)
        if name in self._buffer_names and present is not None:
            present[...] = mx.stop_gradient(array).astype(present.dtype)
        elif is_built and present is not None:
            raise TypeError(
                f"{name!r} is a parameter: a forward pass cannot assign to it"
            )
        elif is_built:
            object.__setattr__(self, name, array)
        else:
            self._register(name, array)

    def neutral_slots(self) -> dict[str, MLXSlot]:
        return slots_of(self)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        known = set()
        for path, block in modules_by_path(self):
            if id(block) not in known:
                known.add(id(block))
                yield path, block

    def _mode_attributes(self, block: Any, training: bool) -> dict[str, bool]:
        return {"_training": training}

    @property
    def device_name(self) -> str:
        return self.backend.devices()[0]

    @property
    def dtype_name(self) -> str:
        for slot in self.neutral_slots().values():
            if is_floating(slot.native):
                return name_of(slot.native.dtype)
        return self.dtype_built


for _name in _METHODS:
    setattr(AbstractMLXNetwork, _name, _Method(_name))


class MLXWrapper(NativeWrapper, AbstractMLXNetwork):
    """A module of MLX as an abstract network, with the module's own names of weights."""

    def __init__(self, native: nn.Module) -> None:
        super().__init__()
        self.native = native

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.native(*args, **kwargs)

    def neutral_slots(self) -> dict[str, MLXSlot]:
        return slots_of(self.native)

    def named_blocks(self) -> Iterator[tuple[str, Any]]:
        yield "", self
        yield from modules_by_path(self.native)
