"""The parameters of an optimizer on Chainer, and what a batch is prepared for."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.network.core import unreplicated, unwrap
from deliralike.optim import owned_parameters


class OwnedParameters(owned_parameters.OwnedParameters):
    """See `deliralike.optim.owned_parameters.OwnedParameters`.

    Attributes:
        replicated: The replicated networks inside a network that is not replicated itself, and so
            has no hooks for them.
    """

    replicated: list[DataParallelChainerNetwork]

    def find_blocks(self) -> None:
        """Remember which attributes of every link hold parameters and children."""
        network: Any = self.network
        self.replicated = []
        if not network.parallelism.is_replicated:
            self.replicated += replicated_networks(network)
        self._first = next(network.params(include_uninit=False), None)
        root: Any = unreplicated(network)
        # the names of parameters and children of every link
        self._registered: list[Any] = []
        # the attributes of links that hold them, and the names in these
        self._attributes: list[dict[str, Any]] = []
        self._names: list[str] = []
        for link in (*root.links(), *unwrap(root).links()):
            self._registered += (link._params, getattr(link, "_children", ()))
            names = _names(link)
            self._attributes += [vars(link)] * len(names)
            self._names += names

    def contents(self) -> tuple[list[int], list[Any]]:
        """Return the numbers of names, and the objects in the attributes."""
        return [*map(len, self._registered)], [
            *map(dict.get, self._attributes, self._names)
        ]

    @property
    def device_name(self) -> str:
        """The device of the network."""
        return self.network.device_name

    def first_dtype(self) -> str:
        """Return the name of the first parameter's type; empty where there is none."""
        return "" if self._first is None else arrays.dtype_name(self._first.dtype)


def _names(link: chainer.Link) -> list[str]:
    # Children are names in a Chain, and links in a ChainList, which only grows.
    children = getattr(link, "_children", ())
    names = [name for name in children if isinstance(name, str)]
    return ["_params", "_children", *link._params, *names]
