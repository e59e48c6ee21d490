"""The parameters of an optimizer, looked up again only after the network has changed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.network import first_tensor
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unreplicated
from deliralike.network.state import each_once, owned_slots


class OwnedParameters:
    """The owned parameters of a network by neutral name.

    Finding them takes many times as long as checking that every module holds the same objects as
    at the last `refresh`.

    Attributes:
        parameters: The owned parameters as of the last `refresh`, each under its first name.

    It stands for the network where a batch is prepared: its device and type are found in less time.
    """

    parameters: dict[str, torch.nn.Parameter]

    def __init__(self, network: AbstractNetwork, owns: Callable[[str], bool]) -> None:
        """Find the parameters of `network` whose names `owns` accepts."""
        self._network = network
        self._owns = owns
        # the tables of all modules (parameters and children), and what they held
        self._tables: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self._sizes: list[int] = []
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters again if the network's modules have changed."""
        if self._tables and self._is_unchanged():
            return
        slots = each_once(owned_slots(self._network.neutral_slots(), self._owns))
        self.parameters = {name: slot.native for name, slot in slots.items()}
        root: Any = unreplicated(self._network)
        first = first_tensor(root, torch.is_tensor)
        self._first = first if isinstance(first, torch.nn.Parameter) else None
        self._tables = []
        for module in root.modules():
            if not isinstance(module, torch.jit.ScriptModule):  # one of those keeps what it has
                self._tables += (module._parameters, module._modules)
        self._sizes = list(map(len, self._tables))
        self._names = list(chain.from_iterable(self._tables))
        self._values = list(chain.from_iterable(map(dict.values, self._tables)))

    @property
    def device_name(self) -> str:
        """The device of the network, as of the last `refresh`."""
        if self._first is None:
            return self._network.device_name
        return arrays.name_of_device(self._first.device)

    @property
    def dtype_name(self) -> str:
        """The floating type of the network, as of the last `refresh`."""
        dtype = None if self._first is None else self._first.dtype
        is_known = dtype is not None and dtype.is_floating_point and dtype.itemsize >= 4
        return arrays.dtype_name(dtype) if is_known else self._network.dtype_name

    def _is_unchanged(self) -> bool:
        if list(map(len, self._tables)) != self._sizes:
            return False
        if list(chain.from_iterable(self._tables)) != self._names:
            return False
        values = chain.from_iterable(map(dict.values, self._tables))
        return all(map(operator.is_, values, self._values))  # tensors compare element by element
