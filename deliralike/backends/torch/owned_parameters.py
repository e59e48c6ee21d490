"""The parameters of an optimizer on PyTorch, and what a batch is prepared for."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.network import first_tensor
from deliralike.network.core import unreplicated
from deliralike.optim import owned_parameters


class OwnedParameters(owned_parameters.OwnedParameters):
    """See `deliralike.optim.owned_parameters.OwnedParameters`."""

    def find_blocks(self) -> None:
        """Remember the tables of parameters and children of every module."""
        root: Any = unreplicated(self.network)
        first = first_tensor(root, torch.is_tensor)
        self._first = first if isinstance(first, torch.nn.Parameter) else None
        self._tables: list[dict[str, Any]] = []
        for module in root.modules():
            if not isinstance(
                module, torch.jit.ScriptModule
            ):  # one of those keeps what it has
                self._tables += (module._parameters, module._modules)

    def contents(self) -> tuple[list[int], list[Any]]:
        """Return the sizes of the tables, and the names and objects in them."""
        objects = chain.from_iterable(map(dict.values, self._tables))
        return list(map(len, self._tables)), [
            *chain.from_iterable(self._tables),
            *objects,
        ]

    @property
    def device_name(self) -> str:
        """The device of the network, as of the last `refresh`."""
        if self._first is None:
            return self.network.device_name
        return arrays.name_of_device(self._first.device)

    def first_dtype(self) -> str:
        """Return the name of the first parameter's type; empty where there is none."""
        return "" if self._first is None else arrays.dtype_name(self._first.dtype)
