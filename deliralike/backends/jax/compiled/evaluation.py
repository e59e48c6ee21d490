"""Functions of a network, as outputs in evaluation, compiled where that makes no other difference.

A program is compiled for the structure of a network: two networks of one structure share it. What
was found out about a network is kept until something other than a value of a variable changes.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
from flax import nnx

from deliralike import random
from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.compile_messages import name_program
from deliralike.backends.jax.compiled.host_checks import with_host_checks
from deliralike.backends.jax.compiled.marks import mark_of_setting
from deliralike.backends.jax.compiled.program import (
    Arguments,
    flatten_arguments,
    pack,
    unpack,
)
from deliralike.backends.jax.compiled.snapshot import Snapshot
from deliralike.backends.jax.compiled.surroundings import Surroundings, surroundings_of
from deliralike.network.parallelism import is_replicated

_KEPT_NETWORKS = 16
_KEPT_PROGRAMS = 128


def network_program(function: Callable[..., Any], network: Any) -> Callable[..., Any]:
    """Return ``function(network, ...)``, compiled where that makes no other difference.

    Programs are kept by function, structure and settings. The function is called as it is if it
    changes the network, or if its course depends on the values of arrays.
    """

    def run(*values: Any) -> Any:
        search = _search(network)
        if search.structure is None:
            return function(network, *values)
        arguments = flatten_arguments(values)
        evaluation = _evaluation(
            function,
            surroundings_of((function,), None, _surroundings),
            search.structure,
            arguments.key,
            arrays.is_quick(),
        )
        if evaluation.compiles:
            try:
                return unpack(evaluation.program(search.values(), arguments.arrays))
            except _NOT_COMPILED:
                evaluation.compiles = False
        return function(network, *values)

    return run


class _NetworkChanges(Exception):
    """A function sets attributes or variables of its network, or draws portable masks."""


_NOT_COMPILED = (_NetworkChanges, jax.errors.JAXTypeError)


# What is known of a network
# --------------------------------------------------------------------------------------------------


class _Structure:
    """All of a network but its arrays; equal for networks that one program can serve.

    Attributes:
        graph: As `nnx.split` gives it. Lists and dicts in it are copies.
        tree: That of the network's state.
    """

    def __init__(self, graph: Any, state: Any) -> None:
        """Copy what may be changed in place.

        Raises:
            TypeError: A setting is not hashable, as a list of a native module's.
        """
        self.graph = _with_copied_settings(graph)
        self.tree = jax.tree.structure(state)
        marks = tuple(map(mark_of_setting, _settings(graph)))
        self._key = self.graph, self.tree, marks
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        """Return whether graph, tree and types of settings are equal."""
        return isinstance(other, _Structure) and self._key == other._key

    def __hash__(self) -> int:
        """Return the hash that was computed once."""
        return self._hash

    def merge(self, values: Sequence[Any]) -> Any:
        """Return a network of this structure around other arrays."""
        return nnx.merge(
            _with_copied_settings(self.graph), jax.tree.unflatten(self.tree, values)
        )

    def refuse_changes(self, network: Any, values: Sequence[Any]) -> None:
        """Raise if a merged network has other attributes, or other arrays, than it was made of."""
        graph, state = nnx.split(network)
        if graph != self.graph:
            raise _NetworkChanges
        if any(
            old is not new
            for old, new in zip(values, jax.tree.leaves(state), strict=True)
        ):
            raise _NetworkChanges


class _Search:
    """What was found out about a network, and whether that still holds.

    Attributes:
        structure: None if functions of the network cannot be compiled.
        lasts: Whether a later change would be noticed.
    """

    def __init__(self, network: Any) -> None:
        """Look at all of a network."""
        graph, state = nnx.split(network)
        leaves = jax.tree.leaves(state, is_leaf=_is_variable)
        self._readers = [*map(_reader, leaves)]
        self._shape = jax.tree.structure(self._read())
        self._snapshot = Snapshot(network)
        self.structure: _Structure | None = None
        is_traced = _has_traced(self.values())  # inside of a program
        can_last = self._snapshot.is_complete and not self._snapshot.has_cycle
        self.lasts = can_last and not is_traced
        blocks = [block for _, block in network.named_blocks()]
        if not is_traced and not any(map(is_replicated, blocks)):
            with suppress(TypeError):
                self.structure = _Structure(graph, state)

    def is_current(self, network: Any) -> bool:
        """Return whether no more than values of variables have changed since the search."""
        if not self._snapshot.is_current(network):
            return False
        values, shape = jax.tree.flatten(self._read())
        return shape == self._shape and not _has_traced(values)

    def values(self) -> list[Any]:
        """The arrays of the network as they are now, in the order of the structure's tree."""
        return jax.tree.leaves(self._read())

    def _read(self) -> list[Any]:
        return [read() for read in self._readers]


_surroundings: OrderedDict[Any, Surroundings] = OrderedDict()  # by function
# by the identity of the network, which a search does not keep alive
_searches: dict[int, tuple[weakref.ref, _Search]] = {}


def _search(network: Any) -> _Search:
    """Return what is known of a network, looked for anew where it has changed."""
    place = id(network)
    if place in _searches:
        reference, search = _searches[place]
        if reference() is network and search.is_current(network):
            return search
        del _searches[place]
    search = _Search(network)
    if search.lasts:
        forget = weakref.ref(network, lambda _: _searches.pop(place, None))
        _searches[place] = forget, search
        if len(_searches) > _KEPT_NETWORKS:
            del _searches[next(iter(_searches))]
    return search


def _has_traced(values: Sequence[Any]) -> bool:
    kinds = {*map(type, values)}
    return any(issubclass(kind, jax.core.Tracer) for kind in kinds)


def _reader(leaf: Any) -> Callable[[], Any]:
    return leaf.get_raw_value if _is_variable(leaf) else lambda: leaf


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


# Settings
# --------------------------------------------------------------------------------------------------


def _settings(graph: Any) -> list[Any]:
    return [
        attribute.value
        for _, attribute in graph.attributes
        if hasattr(attribute, "value")
    ]


def _with_copied_settings(graph: Any) -> Any:
    """Return a graph whose lists and dicts no one else changes."""
    attributes = []
    for name, attribute in graph.attributes:
        if hasattr(attribute, "value"):
            attribute = replace(attribute, value=_copied(attribute.value))
        attributes.append((name, attribute))
    return replace(graph, attributes=attributes)


def _copied(setting: Any) -> Any:
    """Return a list or dict as a copy, with what is nested in it; anything else as it is."""
    if isinstance(setting, dict):
        by_name = copy(setting)
        by_name.update((name, _copied(value)) for name, value in setting.items())
        return by_name
    if isinstance(setting, list):
        items = copy(setting)
        items[:] = map(_copied, setting)
        return items
    if type(setting) is tuple:
        return tuple(map(_copied, setting))
    return setting


# Programs
# --------------------------------------------------------------------------------------------------


@dataclass
class _Evaluation:
    """The program of a function of a network: of the network's and the arguments' arrays."""

    program: Callable[..., Any]
    compiles: bool = True


@lru_cache(maxsize=_KEPT_PROGRAMS)
def _evaluation(
    function: Callable[..., Any],
    surroundings: Surroundings,
    structure: _Structure,
    key: tuple,
    quickly: bool,
) -> _Evaluation:
    spec, static = key

    def compute(values: list[Any], batch: list[Any]) -> Any:
        network = structure.merge(values)
        with random.from_the_first_draw() as stream:
            result = function(network, *Arguments(spec, static, []).unflatten(batch))
        if stream is not None and stream.draws:
            raise _NetworkChanges  # the masks would be those of this step for ever
        structure.refuse_changes(network, values)
        return pack(result)

    name_program(compute, "outputs", structure.graph.nodes[0].type)
    compiler = surroundings.compiler(arrays.jit)
    return _Evaluation(with_host_checks(compute, 1, compiler))
