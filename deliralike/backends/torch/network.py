"""The native base on PyTorch, and what the neutral state is there: a module's own names, in its own
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch import arrays
from deliralike.network.base import AbstractNetwork
from deliralike.network.enclosing import EnclosingNetwork
from deliralike.network.parallelism import Single, is_replicated
from deliralike.network.state import Slot


class TorchSlot(Slot):
    """A parameter or buffer of a module; names and layouts are neutral already."""

    def __init__(self, native: torch.Tensor) -> None:
        """Look at a tensor; nothing is copied."""
        self.native = native
        self.is_parameter = isinstance(native, torch.nn.Parameter)

    @property
    def trainable(self) -> bool:  # type: ignore[override]
        """Whether the parameter takes a gradient."""
        return self.is_parameter and self.native.requires_grad

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.native.requires_grad_(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.native.shape)

    def read(self) -> np.ndarray:
        """A copy on the host."""
        return arrays.numpy(self.native)

    def write(self, value: np.ndarray) -> None:
        """Copy into the tensor, in its type, on its device."""
        with torch.no_grad():
            self.native.copy_(
                arrays.like(
                    torch.from_numpy(np.require(value, requirements=["C", "W"])), self.native
                )
            )

    @property
    def value(self) -> torch.Tensor:
        """The tensor, apart from any graph; when set, another one is copied into it."""
        return self.native.detach()

    @value.setter
    def value(self, array: torch.Tensor) -> None:
        with torch.no_grad():
            self.native.copy_(array)


class TorchSingle(Single):
    """How a plain network of PyTorch computes."""

    def copies_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors that stand for a parameter in further replicas: none."""
        return []

    def replicated_blocks(self) -> Iterator[str]:
        """The paths of blocks that are replicated networks; `named_modules` shows their modules in
        their places.
        """
        module = self.network
        if isinstance(module, WrappedTorchNetwork):
            module = module.native  # whose paths have no prefix
        return _replicated("", module)


class AbstractTorchNetwork(AbstractNetwork, torch.nn.Module):
    """The base of networks on PyTorch: a ``torch.nn.Module`` that answers the neutral interface.

    Written-once networks are bound to it; a network written for PyTorch alone may subclass it as it
    would ``torch.nn.Module``. ``state_dict``, ``to``, ``parameters`` … are PyTorch's own.
    """

    _parallelism = TorchSingle
    block_path = ""

    def __init__(self, **init_kwargs: Any) -> None:
        """Make an empty module; keyword arguments are recorded in `init_kwargs`."""
        torch.nn.Module.__init__(self)
        self._record(init_kwargs)

    train = torch.nn.Module.train
    eval = torch.nn.Module.eval
    state_dict = torch.nn.Module.state_dict
    load_state_dict = torch.nn.Module.load_state_dict

    def neutral_slots(self) -> dict[str, Slot]:
        """Every entry of ``state_dict`` in its order; ties appear under each of their names."""
        return {name: TorchSlot(tensor) for name, tensor in self.state_dict(keep_vars=True).items()}

    def named_blocks(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Every module with its dotted path."""
        return self.named_modules()

    @property
    def device_name(self) -> str:
        """The device of the first parameter or buffer."""
        first = next(_tensors(self), None)
        return "cpu" if first is None else str(first.device)

    @property
    def dtype_name(self) -> str:
        """The type of the first floating parameter or buffer."""
        first = next((tensor for tensor in _tensors(self) if tensor.is_floating_point()), None)
        return self.dtype_built if first is None else arrays.dtype_name(first.dtype)


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Parameters and buffers, module by module; PyTorch's own iterators take longer to find the
    first one.
    """
    for held in (module._parameters, module._buffers):
        yield from (tensor for tensor in held.values() if tensor is not None)
    for child in module._modules.values():
        if child is not None:
            yield from _tensors(child)


def _replicated(path: str, module: torch.nn.Module) -> Iterator[str]:
    for name, child in module._modules.items():
        if is_replicated(child):
            yield f"{path}{name}"
        elif child is not None:
            yield from _replicated(f"{path}{name}.", child)


class WrappedTorchNetwork(EnclosingNetwork, AbstractTorchNetwork):
    """A plain module seen as an abstract network: the same tensors under the same names."""

    enclosed = "native"

    def __init__(self, native: torch.nn.Module) -> None:
        """Share the module's weights; nothing is copied."""
        super().__init__()
        self.native = native

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        return self.native(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The module's own, without a prefix."""
        return self.native.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As the module's own does."""
        return self.native.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        # a module that holds this one loads: from here on it asks for the names of its blocks
        for name in [name for name in state_dict if name.startswith(prefix)]:
            state_dict[f"{prefix}{self.enclosed}.{name.removeprefix(prefix)}"] = state_dict.pop(
                name
            )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def neutral_slots(self) -> dict[str, Slot]:
        """The module's own names, without a prefix."""
        return {
            name: TorchSlot(tensor)
            for name, tensor in self.native.state_dict(keep_vars=True).items()
        }

    def named_blocks(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """This network, then the module's blocks without a prefix; the module itself comes
        second.
        """
        yield "", self
        yield from self.native.named_modules()
