"""The parameters of an optimizer on PyTorch, and what a batch is prepared for."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.network import first_tensor
from deliralike.optim import owned_parameters


class OwnedParameters(owned_parameters.OwnedParameters):
    """See `deliralike.optim.owned_parameters.OwnedParameters`."""

    def find_blocks(self) -> None:
        """Remember the tables of parameters and children of every module."""
        root: Any = getattr(self.network, "root", self.network)
        first = first_tensor(root, torch.is_tensor)
        self._first = first if isinstance(first, torch.nn.Parameter) else None
        self._tables: list[dict[str, Any]] = []
        for module in root.modules():
            self._tables += (module._parameters, module._modules)

    def contents(self) -> tuple[list[int], list[Any]]:
        """Return the sizes of the tables, and the names and objects in them."""
        objects = chain.from_iterable(map(dict.values, self._tables))
        return list(map(len, self._tables)), [*chain.from_iterable(self._tables), *objects]

    @property
    def device_name(self) -> str:
        """The device of the network, as of the last `refresh`."""
        if self._first is None:
            return self.network.device_name
        return arrays.name_of_device(self._first.device)

    @property
    def dtype_name(self) -> str:
        """The floating type of the network, as of the last `refresh`."""
        if self._first is None or not self._first.is_floating_point():
            return self.network.dtype_name
        return arrays.dtype_name(self._first.dtype)
