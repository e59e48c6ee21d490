"""The parameters of an optimizer, looked up again only after the network has changed."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from deliralike.network.state import Slot, each_once, owned_slots

_WIDE = ("float32", "float64")  # no other parameter has a wider type than these


class OwnedParameters(ABC):
    """The owned parameters of a network by neutral name.

    A lookup takes many times as long as a check whether every block still holds the same objects.

    Attributes:
        slots: The slots of the owned parameters as of the last `refresh`, each under its first
            name.
        parameters: The same as the framework's own objects.

    It stands for the network where a batch is prepared: its type is found in less time.
    """

    slots: dict[str, Slot]
    parameters: dict[str, Any]

    def __init__(self, network: Any, owns: Callable[[str], bool]) -> None:
        """Find the parameters of `network` of which `owns` accepts some name."""
        self.network = network
        self._owns = owns
        self._contents: tuple[list[int], list[Any]] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters again if the network's blocks have changed."""
        if self._contents is not None and self._is_unchanged(*self._contents):
            return
        self.slots = each_once(owned_slots(self.network.neutral_slots(), self._owns))
        self.parameters = {name: slot.native for name, slot in self.slots.items()}
        self.find_blocks()
        self._contents = self.contents()

    @abstractmethod
    def find_blocks(self) -> None:
        """Remember where `contents` looks, and what the properties need."""

    @abstractmethod
    def contents(self) -> tuple[list[int], list[Any]]:
        """Return how many parameters and children each block has, and these objects."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """The device of the network."""

    @abstractmethod
    def first_dtype(self) -> str:
        """Return the name of the first parameter's type; empty where there is none."""

    @property
    def dtype_name(self) -> str:
        """The floating type of the network, as of the last `refresh`."""
        name = self.first_dtype()
        return name if name in _WIDE else self.network.dtype_name

    def _is_unchanged(self, sizes: list[int], objects: list[Any]) -> bool:
        sizes_now, objects_now = self.contents()
        # by identity, as tensors compare element by element
        return sizes == sizes_now and all(map(operator.is_, objects, objects_now))
