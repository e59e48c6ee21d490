"""The parameters of an optimizer, looked up again only after the network has changed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import innermost, unreplicated
from deliralike.network.state import Slot, each_once, owned_slots


class OwnedParameters:
    """Parameters of a network by neutral name.

    A lookup takes many times as long as a check whether every link still holds the same objects.

    Attributes:
        slots: The slots of the owned parameters as of the last lookup, each under its first name.
        parameters: The same as Chainer's parameters.
        replicated: The replicated networks inside a network that is not replicated itself, and so
            has no hooks for them.

    It stands for the network where a batch is prepared: its type is found in less time.
    """

    slots: dict[str, Slot]
    parameters: dict[str, chainer.Parameter]
    replicated: list[DataParallelChainerNetwork]

    def __init__(self, network: AbstractNetwork, owns: Callable[[str], bool]) -> None:
        """Look the parameters up for the first time."""
        self._network = network
        self._owns = owns
        # the names of parameters and children of every link, and how many there were
        self._registered: list[Any] = []
        self._sizes: list[int] = []
        # the attributes of links that hold them, the names in these, and what was there
        self._attributes: list[dict[str, Any]] = []
        self._names: list[str] = []
        self._values: list[Any] = []
        self.refresh()

    def refresh(self) -> None:
        """Look the parameters up again if the network's parts have changed."""
        if self._registered and self._is_unchanged():
            return
        self.slots = each_once(owned_slots(self._network.neutral_slots(), self._owns))
        self.parameters = {name: slot.native for name, slot in self.slots.items()}
        self.replicated = []
        if not self._network.parallelism.is_replicated:
            self.replicated += replicated_networks(self._network)
        network: Any = self._network
        self._first = next(network.params(include_uninit=False), None)
        self._remember()

    @property
    def device_name(self) -> str:
        """The device of the network."""
        return self._network.device_name

    @property
    def dtype_name(self) -> str:
        """The floating type of the network, as of the last `refresh`."""
        dtype = None if self._first is None else self._first.dtype
        is_known = dtype is not None and dtype.kind == "f" and dtype.itemsize >= 4
        return arrays.dtype_name(dtype) if is_known else self._network.dtype_name

    def _remember(self) -> None:
        """Record what `_is_unchanged` compares."""
        root: Any = unreplicated(self._network)
        links = [*root.links(), *innermost(root).links()]
        self._registered, self._attributes, self._names = [], [], []
        for link in links:
            self._registered += (link._params, getattr(link, "_children", ()))
            names = _names(link)
            self._attributes += [vars(link)] * len(names)
            self._names += names
        self._sizes = [*map(len, self._registered)]
        self._values = [*map(dict.get, self._attributes, self._names)]

    def _is_unchanged(self) -> bool:
        if [*map(len, self._registered)] != self._sizes:
            return False
        values = map(dict.get, self._attributes, self._names)
        return all(map(operator.is_, values, self._values))


def _names(link: chainer.Link) -> list[str]:
    # Children are names in a Chain, and links in a ChainList, which only grows.
    children = getattr(link, "_children", ())
    names = [name for name in children if isinstance(name, str)]
    return ["_params", "_children", *link._params, *names]
