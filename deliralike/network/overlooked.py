"""Find layers and parameters that a network holds where its framework does not look for them.

They would not be trained.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from deliralike.errors import BackendUnavailable, ConstructionError

_NOT_SEARCHED = "init_kwargs"  # a record, not a place for layers


def refuse_overlooked(network: Any, blocks: Mapping[str, Any]) -> None:
    """Refuse a finished network that holds a layer or parameter that would not be trained.

    Layers of another framework are refused anywhere, those of the network's own framework in a
    container that the framework does not look into. A container whose name begins with an
    underscore may hold layers of the network's own framework on purpose.

    Args:
        blocks: Every block of the network by its path; those of the framework's own are not
            searched.

    Raises:
        ConstructionError: Names the path, the layer, and what to do.
    """
    for path, block in blocks.items():
        if not isinstance(block, network.backend.network_base):
            continue
        for name, value in vars(block).items():
            if name != _NOT_SEARCHED:
                _refuse_in(network, blocks, f"{path}.{name}".lstrip("."), value)


def refuse_plain_container(owner: Any, name: str, value: Any) -> None:
    """Refuse an attribute that is a plain list, tuple or dict of networks.

    A framework would overlook the networks in it.

    Raises:
        ConstructionError: Names the attribute, and the container to use instead.
    """
    if type(value) not in (list, tuple, dict) or name.startswith("_"):
        return
    items, instead = value, "nn.ModuleList"
    if isinstance(value, dict):
        items, instead = value.values(), "nn.ModuleDict"
    if any(owner.backend.is_native(item) for item in items):
        raise ConstructionError(
            f"{type(owner).__name__}: attribute {name!r} is a plain {type(value).__name__} of "
            f"layers, whose parameters would be overlooked: use {instead}"
        )


def _refuse_in(network: Any, blocks: Mapping[str, Any], path: str, value: Any) -> None:
    """Refuse layers and parameters in one attribute; see `refuse_overlooked`.

    Raises:
        ConstructionError: Names the path, the layer, and what to do.
    """
    is_private = path.rpartition(".")[2].startswith("_")
    for place, leaf in _leaves(path, value, ()):
        owner = _backend_of(leaf, network.backend)
        if owner is None:
            continue
        if owner is not network.backend:
            raise ConstructionError(_foreign(network.backend, owner, place, leaf))
        if place != path and not is_private and not _is_kept(network, blocks, leaf):
            raise ConstructionError(
                f"{place!r} is a {type(leaf).__name__} in a plain {type(value).__name__}, where "
                "its parameters would be overlooked: hold layers in nn.ModuleList or "
                "nn.ModuleDict, and parameters under their own names"
            )


def _is_kept(network: Any, blocks: Mapping[str, Any], leaf: Any) -> bool:
    """Return whether a layer or parameter is a part of the network by another name."""
    if any(block is leaf for block in blocks.values()):
        return True
    return any(slot.native is leaf for slot in network.neutral_slots().values())


def _foreign(backend: Any, owner: Any, place: str, leaf: Any) -> str:
    """Return the message for a layer of another backend, its owner."""
    kind = type(leaf).__name__
    instead = "a layer of self.nn"
    if hasattr(backend.nn, kind):
        instead = f"self.nn.{kind}"
    return (
        f"{place!r} is a {kind} of backend {owner.name!r} in a network of backend "
        f"{backend.name!r}, which would overlook its parameters: use {instead}, or write the whole "
        f"network for {owner.name!r} and wrap it, deliralike.wrap(network)"
    )


def _leaves(path: str, value: Any, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Yield what a nest of plain containers holds, with the path of each.

    A container within itself is not entered again.
    """
    if id(value) in above:
        return
    inner = (*above, id(value))
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(f"{path}[{key!r}]", each, inner)
    elif isinstance(value, list | tuple | deque | set | frozenset):
        for index, each in enumerate(value):
            yield from _leaves(f"{path}[{index}]", each, inner)
    else:
        yield path, value


def _backend_of(value: Any, own: Any) -> Any:
    """Return the backend whose layer or parameter a value is.

    `own` is tried before any other; None stands for anything else.
    """
    kind: Any = type(value)
    name = _framework_of(kind)
    if name is None:
        return None
    if _belongs_to(own, value):
        return own
    try:
        backend = importlib.import_module("deliralike.backends").get(name)
    except BackendUnavailable:  # the framework is installed, but cannot be used
        return None
    if _belongs_to(backend, value):
        return backend
    return None


def _belongs_to(backend: Any, value: Any) -> bool:
    return backend.is_native(value) or backend.is_parameter(value)


@cache
def _framework_of(kind: type) -> str | None:
    """Return the name of the backend among whose packages a class has a base.

    No framework is imported to find out.
    """
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return importlib.import_module("deliralike.backends").backend_of_packages(packages)
