"""The base class of networks on PyTorch, and the neutral state there: names of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from deliralike import nest
from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.extra_state import extra_slots
from deliralike.backends.torch.holder import TorchHolder
from deliralike.errors import StateError
from deliralike.network.base import AbstractNetwork
from deliralike.network.parallelism import Single, is_replicated
from deliralike.network.state import Slot
from deliralike.network.unregistered_modules import refuse_in, refuse_without_init
from deliralike.network.wrapper import NativeWrapper, WrapperNetwork
from deliralike.nn.start import Shape

# of a module: its parameters, buffers and blocks
TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class TorchSlot(Slot):
    """A parameter or buffer of a module; names and layouts are neutral already."""

    is_resizable = True

    def __init__(self, native: torch.Tensor) -> None:
        """Refer to a tensor; nothing is copied."""
        self.native = native
        self.is_parameter = isinstance(native, torch.nn.Parameter)

    @property
    def trainable(self) -> bool:
        """Whether the tensor is a parameter that takes a gradient."""
        return self.is_parameter and self.native.requires_grad

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.native.requires_grad_(value)

    @property
    def shape(self) -> Shape:
        """The tensor's shape."""
        return tuple(self._initialized().shape)

    def read(self) -> np.ndarray:
        """Return a copy on the host."""
        return arrays.numpy(self._initialized())

    def _initialized(self) -> torch.Tensor:
        if is_lazy(self.native):
            raise StateError(
                "the shape of a parameter or buffer of a lazy layer is not known yet: call the "
                "network once"
            )
        return self.native

    def write(self, value: np.ndarray) -> None:
        """Copy an array into the tensor, in its type, on its device."""
        source = torch.from_numpy(np.require(value, requirements=["C", "W"]))
        with torch.no_grad():
            self.native.copy_(arrays.like(source, self.native))

    def resize(self, shape: Shape) -> None:
        """Let the parameter hold zeros of another shape."""
        if not self.is_parameter:
            super().resize(shape)
        self.native.data = self.native.data.new_zeros(shape)

    @property
    def value(self) -> torch.Tensor:
        """The tensor, detached from any graph; setting it copies the new values into the tensor."""
        return self.native.detach()

    @value.setter
    def value(self, array: torch.Tensor) -> None:
        with torch.no_grad():
            self.native.copy_(array)


class TorchSingle(Single):
    """The parallelism of a plain network on PyTorch: none."""

    def replica_leaves(
        self, parameters: Mapping[str, Any]
    ) -> list[dict[str, torch.Tensor]]:
        """Return the copies of parameters that keep gradients, for each further replica: none."""
        return []

    def forget_gradients(self) -> None:
        """Drop the gradients by ``zero_grad``."""
        self.network.zero_grad()

    def replicated_blocks(self) -> Iterator[str]:
        """Yield the paths of blocks that are replicated networks.

        `named_modules` does not show them: it yields the modules that they replicate.
        """
        module = self.network
        if isinstance(module, WrappedTorchNetwork):
            module = module.native  # whose paths have no prefix
        return _replicated_paths("", module)


class AbstractTorchNetwork(AbstractNetwork, torch.nn.Module):
    """The base of networks on PyTorch: a ``torch.nn.Module`` that answers the neutral interface.

    Written-once networks are bound to it; a network written for PyTorch alone may subclass it as it
    would ``torch.nn.Module``. ``state_dict``, ``to``, ``parameters`` … are PyTorch's own.
    """

    _parallelism = TorchSingle
    block_path = ""

    def __init__(self, **init_kwargs: Any) -> None:
        """Make an empty module, and record the keyword arguments in `init_kwargs`."""
        torch.nn.Module.__init__(self)
        self._record(init_kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a tensor sets a buffer's value, in its type and without its graph."""
        is_new = isinstance(value, torch.nn.Buffer | torch.nn.Parameter)
        if isinstance(value, torch.Tensor) and not is_new:
            buffer = self.__dict__.get("_buffers", {}).get(name)
            if buffer is not None:
                value = value.detach().to(buffer.dtype)
        if is_new or isinstance(value, torch.nn.Module):
            refuse_without_init(self, name, "_modules")
        super().__setattr__(name, value)

    def _detach_computed_arrays(self, memo: dict[int, Any]) -> None:
        """As in `AbstractNetwork`: `torch.nn.utils.weight_norm` keeps a weight that it computes.

        So do networks that keep what a hook saw. PyTorch refuses to copy such a tensor.
        """
        for module in self.modules():
            attributes = {
                name: value for name, value in vars(module).items() if name[0] != "_"
            }
            for value in nest.leaves(attributes):
                if isinstance(value, torch.Tensor) and not value.is_leaf:
                    memo[id(value)] = value.detach().clone()

    def add_module(self, name: str, module: torch.nn.Module | None) -> None:
        """Add a block; for one of another framework the error says what to do."""
        if not isinstance(module, torch.nn.Module):
            refuse_in(self, {}, name, module)
        super().add_module(name, module)

    def _has_own_mode(self, block: Any) -> bool:
        return type(block).train is not torch.nn.Module.train

    train = torch.nn.Module.train
    eval = torch.nn.Module.eval
    state_dict = torch.nn.Module.state_dict
    load_state_dict = torch.nn.Module.load_state_dict

    def neutral_slots(self) -> dict[str, Slot]:
        """Return all parameters and lasting buffers, module by module; ties under each name.

        What the user's own ``state_dict`` leaves out or copies is among them.
        """
        return module_slots(self)

    def named_blocks(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield every module with its dotted path."""
        return self.named_modules()

    @property
    def device_name(self) -> str:
        """The device of the first parameter or buffer."""
        first = first_tensor(self, torch.is_tensor)
        return "cpu" if first is None else str(first.device)

    @property
    def dtype_name(self) -> str:
        """The floating type of the parameters and buffers; that of complex ones is of their parts.

        The type of the first one is found in less time than the types of all.
        """
        first = first_tensor(self, _has_fractions)
        if first is None:
            return self.dtype_built
        if first.dtype.itemsize < 4:
            wide = first_tensor(
                self, lambda each: _has_fractions(each) and each.dtype.itemsize >= 4
            )
            first = first if wide is None else wide
        return arrays.dtype_name(first.dtype.to_real())


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def module_slots(module: torch.nn.Module) -> dict[str, Slot]:
    """Return the slots of a module: those that its ``state_dict`` is made of.

    A block that another one only holds has the names of its holder.
    """
    slots: dict[str, Slot] = {}
    prefixes: dict[str, str] = {}  # of neutral names, by the path of the module
    holders: dict[
        str, str
    ] = {}  # the name of the part that a module only holds, by its path
    for path, part in module.named_modules(remove_duplicate=False):
        parent, _, name = path.rpartition(".")
        prefix = prefixes.get(parent, "")
        if path and holders.get(parent) != name:
            prefix += f"{name}."
        prefixes[path] = prefix
        if isinstance(part, WrapperNetwork | TorchHolder):
            holders[path] = part.enclosed
        for key, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None and key not in unstable.unsaved_buffers(part):
                slots[prefix + key] = TorchSlot(tensor)
        slots.update(extra_slots(part, prefix))
    return slots


@contextmanager
def unchanged_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Give buffers their former tensors and values back after a ``with`` block."""
    before = []
    for part in module.modules():
        for name, buffer in part._buffers.items():
            has_value = buffer is not None and not is_lazy(buffer)
            before.append((part, name, buffer, buffer.clone() if has_value else None))
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, value in before:
                if value is not None:
                    buffer.copy_(value)
                part._buffers[name] = buffer


def first_tensor(
    module: torch.nn.Module, is_wanted: Callable[[torch.Tensor], bool]
) -> torch.Tensor | None:
    """Return the first of the parameters and buffers, module by module, that is wanted.

    PyTorch's own iterators take ten times as long, which counts in each step.
    """
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and is_wanted(tensor):
            return tensor
    for child in module._modules.values():
        if child is not None:
            found = first_tensor(child, is_wanted)
            if found is not None:
                return found
    return None


def _replicated_paths(prefix: str, module: torch.nn.Module) -> Iterator[str]:
    for name, child in module._modules.items():
        if is_replicated(child):
            yield f"{prefix}{name}"
        elif child is not None:
            yield from _replicated_paths(f"{prefix}{name}.", child)


class WrappedTorchNetwork(NativeWrapper, AbstractTorchNetwork):
    """A plain module as an abstract network, with the same tensors under the same names."""

    def __init__(self, native: torch.nn.Module) -> None:
        """Share the module's weights; nothing is copied."""
        super().__init__()
        self.native = native

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's outputs.

        Raises:
            DtypeError: An argument is an array of NumPy.
        """
        try:
            return self.native(*args, **kwargs)
        except TypeError:
            for each in args:
                arrays.refuse_host_array(each, type(self.native).__name__)
            raise

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the module's state, without a prefix."""
        return self.native.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of the module."""
        return self.native.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *others: Any
    ) -> None:
        # A module that holds this one is loading, and next loads the blocks of this one, among them
        # `native`: so the names get its prefix.
        for name in [name for name in state_dict if name.startswith(prefix)]:
            inner_name = f"{prefix}{self.enclosed}.{name.removeprefix(prefix)}"
            state_dict[inner_name] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def neutral_slots(self) -> dict[str, Slot]:
        """Return the slots by the module's own names, without a prefix."""
        return module_slots(self.native)

    def named_blocks(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield this network, then the module and its blocks by their paths without a prefix."""
        yield "", self
        yield from self.native.named_modules()
