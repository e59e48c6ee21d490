"""The parameters that an optimizer steps on, looked up anew only when the network's parts have
changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deliralike.network.base import AbstractNetwork


class Members:
    """Parameters of a network by neutral name.

    Finding them takes many times as long as a look at whether every module still holds what it
    held.

    Attributes:
        parameters: Those that are owned, ties under each of their names; as of the last look.
        each_once: The same, a tied one under its first name only.
    """

    parameters: dict[str, torch.nn.Parameter]
    each_once: dict[str, torch.nn.Parameter]

    def __init__(self, network: AbstractNetwork, owns: Callable[[str], bool]) -> None:
        """Look for the first time."""
        self._network, self._owns = network, owns
        self._held: list[tuple[dict, list, list]] = []
        self.look()

    def look(self) -> None:
        """Look again if the network's parts are others than before."""
        if self._held and all(_same(part, names, ids) for part, names, ids in self._held):
            return
        slots = self._network.neutral_slots().items()
        self.parameters = {
            name: slot.native for name, slot in slots if slot.is_parameter and self._owns(name)
        }
        names = {id(parameter): name for name, parameter in reversed(self.parameters.items())}
        self.each_once = {name: p for name, p in self.parameters.items() if names[id(p)] == name}
        root: Any = getattr(self._network, "root", self._network)
        parts = [
            part for module in root.modules() for part in (module._parameters, module._modules)
        ]
        self._held = [(part, [*part], [*map(id, part.values())]) for part in parts]
        self._alive = [[*part.values()] for part in parts]  # an identity is that of what is alive


def _same(part: dict, names: list[str], ids: list[int]) -> bool:
    return len(part) == len(names) and (
        not names or ([*map(id, part.values())] == ids and [*part] == names)
    )
