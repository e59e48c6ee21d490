"""The parameters of an optimizer, looked up again only after the network has changed."""

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


class OwnedParameters:
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
        self._network = network
        self._owns = owns
        self._counts: list[tuple[chainer.Link, int, int]] = []  # of parameters and of children
        self._attributes: list[tuple[dict, str, Any]] = []
        self.refresh()

    def refresh(self) -> None:
        """Look the parameters up again if the network's parts have changed."""
        if self._counts and self._is_unchanged():
            return
        slots = self._network.neutral_slots().items()
        self.slots = {name: slot for name, slot in slots if slot.is_parameter and self._owns(name)}
        self.parameters = {name: slot.native for name, slot in self.slots.items()}
        self.replicated = []
        if not self._network.parallelism.is_replicated:
            self.replicated += replicated_networks(self._network)
        self._remember()

    def _remember(self) -> None:
        """Record what `_is_unchanged` compares."""
        root: Any = getattr(self._network, "root", self._network)
        links = [*root.links(), *getattr(root, "native", root).links()]
        self._counts = [(link, len(link._params), _child_count(link)) for link in links]
        self._attributes = []
        for link in links:
            attributes = vars(link)
            self._attributes += [(attributes, name, attributes.get(name)) for name in _names(link)]

    def _is_unchanged(self) -> bool:
        for link, parameters, children in self._counts:
            if len(link._params) != parameters or _child_count(link) != children:
                return False
        return all(attributes.get(name) is value for attributes, name, value in self._attributes)


def _child_count(link: chainer.Link) -> int:
    return len(getattr(link, "_children", ()))


def _names(link: chainer.Link) -> list[str]:
    # Children are names in a Chain, and links in a ChainList, which only grows.
    children = getattr(link, "_children", ())
    return [*link._params, *(name for name in children if isinstance(name, str))]
