"""What a network consists of, by identity: the quickest way to tell that nothing was changed.

A call of a compiled program has to know whether the network is still the one that was compiled.
Looking at every attribute takes half a microsecond each; building a description of the network to
compare with an earlier one takes twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, is_
from types import FunctionType
from typing import Any

import jax
import numpy as np
from flax import nnx

# a few types that hold nothing, told by a look at the type alone
_PLAIN = frozenset((bool, int, float, str, type(None), type, FunctionType))
_metadata = attrgetter("_var_metadata")  # `get_metadata` copies it


class Snapshot:
    """The objects that a network consisted of when the snapshot was taken.

    These are the attributes of modules, the items of lists and dicts among them, however deeply
    nested, and the metadata of variables. Values of variables are no part of it, nor what other
    objects among the settings hold: a program is compiled for such an object, as in ``jax.jit``.

    The network itself is not kept alive, unless it is part of a part of itself.

    Attributes:
        is_complete: Whether everything that may hold a variable could be looked at. Containers that
            are no modules, lists, tuples or dicts can not.
        has_cycle: Whether the network is part of a part of itself.
    """

    def __init__(self, network: Any) -> None:
        """Look at a network; nothing is copied."""
        self.is_complete = True
        self.has_cycle = False
        self._modules: list[nnx.Pytree] = []  # below the network
        self._variables: list[nnx.Variable] = []
        self._dicts: list[dict] = []
        self._lists: list[list] = []
        visited: set[int] = set()
        for child in _parts(network):
            self._visit(child, visited)
        self.has_cycle = id(network) in visited
        self._sizes, self._objects = self._consists_of(network)

    def is_current(self, network: Any) -> bool:
        """Return whether the network consists of the very same objects."""
        sizes, objects = self._consists_of(network)
        return sizes == self._sizes and all(map(is_, objects, self._objects))

    def _consists_of(self, network: Any) -> tuple[list[int], list[Any]]:
        """Return the size of each module, variable and container, and the objects in all of them.

        One list of all objects is compared in two thirds of the time of one for each container.
        """
        modules = [network, *self._modules]
        dicts = [*map(vars, modules), *map(_metadata, self._variables), *self._dicts]
        names = chain.from_iterable(dicts)
        values = chain.from_iterable(map(dict.values, dicts))
        items = chain.from_iterable(self._lists)
        sizes = [*map(len, dicts), *map(len, self._lists)]
        return sizes, [*map(type, modules), *names, *values, *items]

    def _visit(self, node: Any, visited: set[int]) -> None:
        if type(node) in _PLAIN or id(node) in visited:
            return
        visited.add(id(node))
        children: Iterable[Any] = ()
        if isinstance(node, nnx.Pytree):
            self._modules.append(node)
            children = _parts(node)
        elif isinstance(node, nnx.Variable):
            self._variables.append(node)
            children = node.get_metadata().values()
        elif isinstance(node, dict):
            self._dicts.append(node)
            children = node.values()
        elif isinstance(node, list):
            self._lists.append(node)
            children = node
        elif isinstance(node, tuple):
            children = node  # whose own items stay
        elif not _is_leaf(node):
            self.is_complete = False
        for child in children:
            self._visit(child, visited)


def _parts(module: Any) -> list[Any]:
    """Return the attributes of a module without flax's own."""
    return [
        value
        for name, value in vars(module).items()
        if not name.startswith("_pytree__")
    ]


def _is_leaf(node: Any) -> bool:
    """Return whether nnx takes an object for an array, or for a setting that holds no variable."""
    if isinstance(node, jax.Array | np.ndarray | np.generic):
        return True
    return not nnx.is_data(node) and jax.tree_util.all_leaves([node])
