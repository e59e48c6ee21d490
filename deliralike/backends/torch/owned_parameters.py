"""The parameters of an optimizer, looked up again only after the network has changed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from deliralike.network.base import AbstractNetwork
from deliralike.network.state import each_once


class OwnedParameters:
    """The owned parameters of a network by neutral name.

    Finding them takes many times as long as checking that every module holds the same objects as
    at the last `refresh`.

    Attributes:
        parameters: The owned parameters, ties under each of their names, as of the last `refresh`.
        each_once: The same, with each tied parameter under its first name only.
    """

    parameters: dict[str, torch.nn.Parameter]
    each_once: dict[str, torch.nn.Parameter]

    def __init__(self, network: AbstractNetwork, owns: Callable[[str], bool]) -> None:
        """Find the parameters of `network` whose names `owns` accepts."""
        self._network = network
        self._owns = owns
        # each table of a module (parameters or children), with its names and values
        self._tables: list[tuple[dict, list[str], list[Any]]] = []
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters again if the network's modules have changed."""
        if self._tables and all(_is_unchanged(*entry) for entry in self._tables):
            return
        slots = {}
        for name, slot in self._network.neutral_slots().items():
            if slot.is_parameter and self._owns(name):
                slots[name] = slot
        self.parameters = {name: slot.native for name, slot in slots.items()}
        self.each_once = {name: slot.native for name, slot in each_once(slots).items()}
        root: Any = getattr(self._network, "root", self._network)
        self._tables = []
        for module in root.modules():
            for table in (module._parameters, module._modules):
                self._tables.append((table, list(table), list(table.values())))


def _is_unchanged(table: dict, names: list[str], values: list[Any]) -> bool:
    if len(table) != len(names):
        return False
    # `is`, as tensors compare element by element
    return list(table) == names and all(map(operator.is_, table.values(), values))
