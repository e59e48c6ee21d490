"""What a loss function reads beside its network and batch.

A compiled program would keep what it was traced with. Here it is compiled anew where a number, a
text or an object is another one, and is passed the arrays of other networks, such as the critic in
the loss of a generator.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from deliralike.backends.jax import host_random
from deliralike.backends.jax import random as native_random
from deliralike.backends.jax.compiled.marks import (
    Identity,
    mark_of_nodes,
    mark_of_setting,
)
from deliralike.backends.jax.compiled.snapshot import Snapshot
from deliralike.backends.jax.network import walk
from deliralike.backends.jax.variables import array_of, holding
from deliralike.errors import CapabilityError
from deliralike.references import LONGEST, References, items

CACHE_SIZE = 16
_MISSING = object()  # in the place of an item that is gone


class OtherNetwork:
    """A network beside the one that is trained.

    Attributes:
        variables: Its variables by path.
        mark: A key of its structure and settings.
    """

    def __init__(self, module: nnx.Module) -> None:
        self._module, self._snapshot = module, Snapshot(module)
        self.variables: dict[str, nnx.Variable] = {}
        nodes = []
        for path, node in walk(module):
            if not isinstance(node, nnx.Variable):
                nodes.append(node)
            elif isinstance(node.get_raw_value(), jax.Array):
                self.variables[path] = node
        self._streams = [
            node for node in nodes if isinstance(node, native_random.RngStream)
        ]
        self.mark = mark_of_nodes(nodes, [*self.variables.values()])

    def is_current(self) -> bool:
        """Return whether nothing but values of variables has changed."""
        return self._snapshot.is_current(self._module)

    def start_streams(self) -> None:
        """Start the random streams that draw for the first time since the seed."""
        if native_random.waiting:
            native_random.start(self._streams)


class Surroundings:
    """What a loss function reads beside its network and batch, at one time.

    Attributes:
        key: Equal for surroundings that share a program.
        changed: The names whose values are others than in the surroundings before.
    """

    def __init__(
        self, functions: Sequence[Callable[..., Any]], network: nnx.Module | None
    ) -> None:
        """Look at functions and at the networks that they read, one aside that they are given."""
        self.changed: list[str] = []
        nodes = [] if network is None else [node for _, node in walk(network)]
        classes = {type(node) for node in nodes if _is_module(node)}
        self._references = References(functions, _is_module, classes)
        values = self._values()
        known = set(map(id, nodes))
        self._networks: list[OtherNetwork] = []
        self._variables: list[nnx.Variable] = []
        self._paths: list[str] = []
        for module in _modules(values):
            if id(module) in known:
                continue
            known.add(id(module))
            other = OtherNetwork(module)
            self._networks.append(other)
            for path, variable in other.variables.items():
                if id(variable) not in known:
                    known.add(id(variable))
                    self._variables.append(variable)
                    self._paths.append(path)
        self._marks = self._present_marks()
        self.key = (tuple(self._marks), tuple(each.mark for each in self._networks))

    def __eq__(self, other: object) -> bool:
        """Return whether both share a program."""
        return isinstance(other, Surroundings) and self.key == other.key

    def __hash__(self) -> int:
        """Return the hash of the key."""
        return hash(self.key)

    def is_current(self) -> bool:
        """Return whether a program of these surroundings may be run."""
        if not all(map(_has_mark, self._values(), self._marks)):
            return False
        return all(each.is_current() for each in self._networks)

    def _changed_since(self, before: Surroundings) -> list[str]:
        """Return the names that lead to other values than before."""
        old = dict(zip(before._references.names, before._marks, strict=True))
        now = dict(zip(self._references.names, self._marks, strict=True))
        return [name for name in now if name in old and now[name] != old[name]]

    def compiler(
        self, compiler: Callable[[Callable[..., Any]], Any]
    ) -> Callable[[Callable[..., Any]], Any]:
        """Return a compiler of programs that are passed the other networks' arrays, too."""

        def compile_with(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def traced(*arguments: Any) -> Any:
                *own, arrays = arguments
                values = self._values()
                drawn = "a loss draws random numbers of NumPy or Python"
                with (
                    holding(self._variables, arrays),
                    host_random.warning(drawn, "as a part of the batch", values),
                ):
                    result = function(*own)
                    self._refuse_written(arrays)
                # what the function itself has changed, such as a list of its calls, stands
                self._marks = self._present_marks()
                return result

            program = compiler(traced)
            return lambda *arguments: program(*arguments, self._arrays())

        return compile_with

    def _present_marks(self) -> list[Any]:
        return [*map(_mark, self._values())]

    def _values(self) -> list[Any]:
        return [read() for read in self._references.reads]

    def _arrays(self) -> list[Any]:
        for each in self._networks:
            each.start_streams()
        return [array_of(variable) for variable in self._variables]

    def _refuse_written(self, arrays: list[Any]) -> None:
        rows = zip(self._paths, self._variables, arrays, strict=True)
        for path, variable, array in rows:
            if variable.get_raw_value() is not array:
                raise CapabilityError(
                    f"the loss sets {path} of a network beside the one that is trained: put that "
                    "network into evaluation mode, or make both blocks of one"
                )


def surroundings_of(
    functions: tuple[Callable[..., Any], ...],
    network: nnx.Module | None,
    known: OrderedDict[Any, Surroundings],
) -> Surroundings:
    """Return what functions read as it is now; what is known already is looked up.

    Args:
        known: The latest surroundings by functions, at most sixteen; the result is one of them.
    """
    before = known.get(functions)
    if before is not None and before.is_current():
        return before
    found = Surroundings(functions, network)
    if before is not None:
        found.changed = found._changed_since(before)
    keep(known, functions, found)
    return found


def keep(latest: OrderedDict, key: Any, value: Any) -> None:
    """Keep a value as the latest one, and no more than sixteen of them."""
    latest[key] = value
    latest.move_to_end(key)
    if len(latest) > CACHE_SIZE:
        latest.popitem(last=False)


def _is_module(value: Any) -> bool:
    return isinstance(value, nnx.Module)


def _modules(values: list[Any]) -> Iterator[nnx.Module]:
    """Yield the networks among values, and in containers among them."""
    for value in values:
        if _is_module(value):
            yield value
        elif isinstance(value, list | tuple | dict):
            yield from _modules(items(value))


class Contents(NamedTuple):
    """The mark of a container: what it held."""

    kind: type
    names: tuple | None  # of a dict
    items: tuple


def _mark(value: Any) -> Any:
    """Return a key that is equal for values with which a function computes the same."""
    if isinstance(value, np.ndarray) and value.size <= LONGEST:
        return value.dtype, value.shape, value.tobytes()
    if not isinstance(value, list | tuple | dict):
        return mark_of_setting(value)
    if len(value) > LONGEST:
        return Identity(value)
    names = tuple(value) if isinstance(value, dict) else None
    return Contents(type(value), names, tuple(map(_mark, items(value))))


def _has_mark(value: Any, mark: Any) -> bool:
    """Return whether a value is as it was marked; a container may hold more, as a log does."""
    if not isinstance(mark, Contents) or mark.kind is not type(value):
        return bool(_mark(value) == mark)
    members: Any = value
    if len(members) < len(mark.items):
        return False
    if mark.names is not None:
        members = [members.get(name, _MISSING) for name in mark.names]
    return all(map(_has_mark, members, mark.items))
