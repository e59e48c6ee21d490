"""The parameters of an optimizer, looked up anew only when the network's parts have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot


class Members:
    """Parameters of a network by neutral name.

    A lookup takes many times as long as a check whether every link still holds the same objects.

    Attributes:
        slots: The slots of the owned parameters, tied ones under each of their names, as of the
            last lookup.
        parameters: The same as Chainer's parameters.
        replicated: The replicated networks inside a network that is not replicated itself, and so
            has no hooks for them.
    """

    slots: dict[str, Slot]
    parameters: dict[str, chainer.Parameter]
    replicated: list[DataParallelChainerNetwork]

    def __init__(self, network: AbstractNetwork, owns: Callable[[str], bool]) -> None:
        """Look the parameters up for the first time."""
        self._network, self._owns = network, owns
        self._links: list[tuple[chainer.Link, int, int]] = []
        self._held: list[tuple[dict, str, Any]] = []
        self.look()

    def look(self) -> None:
        """Look the parameters up again if the network's parts have changed."""
        if self._links and self._is_as_before():
            return
        slots = self._network.neutral_slots().items()
        self.slots = {name: slot for name, slot in slots if slot.is_parameter and self._owns(name)}
        self.parameters = {name: slot.native for name, slot in self.slots.items()}
        inside = (
            [] if self._network.parallelism.is_replicated else replicated_networks(self._network)
        )
        self.replicated = list(inside)
        root: Any = getattr(self._network, "root", self._network)
        links = [*root.links(), *getattr(root, "native", root).links()]
        self._links = [(link, len(link._params), _children(link)) for link in links]
        self._held = [
            (vars(link), name, vars(link).get(name)) for link in links for name in _names(link)
        ]

    def _is_as_before(self) -> bool:
        counts = all(
            len(link._params) == own and _children(link) == below
            for link, own, below in self._links
        )
        return counts and all(
            attributes.get(name) is value for attributes, name, value in self._held
        )


def _children(link: chainer.Link) -> int:
    return len(getattr(link, "_children", ()))


def _names(link: chainer.Link) -> list[str]:
    children = getattr(
        link, "_children", ()
    )  # names in a Chain; links in a ChainList, which only grows
    return [*link._params, *(name for name in children if isinstance(name, str))]
