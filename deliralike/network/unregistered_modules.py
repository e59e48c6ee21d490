"""Find layers and parameters that a network holds where its framework does not look for them.

They would not be trained.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any

from deliralike.errors import BackendUnavailable, ConstructionError

_NOT_SEARCHED = "init_kwargs"  # a record, not a place for layers
_PLAIN_TYPES = (int, float, str, bool, NoneType)
_DEPTH = 6  # of containers and objects within one another
_OWN_PACKAGE = __name__.partition(".")[0]


def refuse_unregistered(network: Any, blocks: Mapping[str, Any]) -> None:
    """Refuse a finished network that holds a layer or parameter that would not be trained.

    Layers of another framework are refused anywhere, those of the network's own framework in a
    container or object that the framework does not look into. An attribute whose name begins with
    an underscore may hold layers of the network's own framework on purpose.

    Args:
        blocks: Every block of the network by its path; those of the framework's own are not
            searched.

    Raises:
        ConstructionError: Names the path, the layer, and what to do.
    """
    for path, block in blocks.items():
        is_ours = isinstance(block, network.backend.network_base)
        if not is_ours or hasattr(type(block), "enclosed"):
            continue
        for name, value in vars(block).items():
            # most attributes are numbers, texts or (on PyTorch) dicts for hooks that are empty
            is_empty = isinstance(value, dict) and not value
            if (
                name != _NOT_SEARCHED
                and type(value) not in _PLAIN_TYPES
                and not is_empty
            ):
                refuse_in(network, blocks, f"{path}.{name}".lstrip("."), value)


def refuse_without_init(owner: Any, name: str, attribute: str) -> None:
    """Refuse an attribute of an object whose base's ``__init__``, which sets another, has not run.

    Raises:
        ConstructionError: Names the attribute.
    """
    if attribute not in vars(owner):
        raise ConstructionError(
            f"{type(owner).__name__}: call super().__init__() before assigning {name!r}"
        )


def refuse_plain_container(owner: Any, name: str, value: Any) -> None:
    """Refuse an attribute that is a plain list, tuple or dict of networks.

    A framework would overlook the networks in it.

    Raises:
        ConstructionError: Names the attribute, and the container to use instead.
    """
    if type(value) not in (list, tuple, dict) or name.startswith("_"):
        return
    items = value
    instead = "nn.ModuleList"
    if isinstance(value, dict):
        items = value.values()
        instead = "nn.ModuleDict"
    if any(owner.backend.is_native(item) for item in items):
        raise ConstructionError(
            f"{type(owner).__name__}: attribute {name!r} is a plain {type(value).__name__} of "
            f"layers, whose parameters would be overlooked: use {instead}"
        )


def refuse_in(network: Any, blocks: Mapping[str, Any], path: str, value: Any) -> None:
    """Refuse layers and parameters in one attribute; see `refuse_unregistered`.

    Raises:
        ConstructionError: Names the path, the layer, and what to do.
    """
    is_private = path.rpartition(".")[2].startswith("_")
    for place, leaf in _leaves(path, value, set(), network.backend):
        owner = _backend_of(leaf, network.backend)
        if owner is None:
            continue
        if owner is not network.backend:
            backend = network.backend
            raise ConstructionError(
                f"{place!r} is a {type(leaf).__name__} of backend {owner.name!r} in a network of "
                f"backend {backend.name!r}, which would overlook its parameters: use "
                f"{_instead(backend, leaf)}, or write the whole network for {owner.name!r} and "
                "wrap it, deliralike.wrap(network)"
            )
        how_to_bind = owner.how_to_bind(leaf)
        if how_to_bind:
            raise ConstructionError(
                f"{place!r} is a {type(leaf).__name__} that holds no parameters by itself, so the "
                f"network would have none of it: {how_to_bind}, or use {_instead(owner, leaf)}"
            )
        is_allowed = place == path or is_private
        if not is_allowed and not _is_part(network, blocks, leaf):
            raise ConstructionError(
                f"{place!r} is a {type(leaf).__name__} in a plain {type(value).__name__}, where "
                "its parameters would be overlooked: hold layers in nn.ModuleList or "
                "nn.ModuleDict, parameters under their own names, and write classes that hold "
                "layers as networks (deliralike.Network)"
            )


def _is_part(network: Any, blocks: Mapping[str, Any], leaf: Any) -> bool:
    """Return whether a layer or parameter is a part of the network by another name."""
    if any(block is leaf for block in blocks.values()):
        return True
    return any(slot.native is leaf for slot in network.neutral_slots().values())


def _instead(backend: Any, leaf: Any) -> str:
    """Return what to use in the place of a framework's layer."""
    kind = type(leaf).__name__
    if hasattr(backend.nn, kind):
        return f"self.nn.{kind}"
    return "a layer of self.nn"


def _leaves(
    path: str, value: Any, visited: set[int], backend: Any, depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield what plain containers and objects hold, with the path of each.

    A layer is a leaf, even if it is a dict, as in some frameworks.
    """
    is_leaf = depth == _DEPTH or backend.is_native(value)
    parts = None if is_leaf else _parts(value)
    if parts is None:
        yield path, value
    elif id(value) not in visited:
        visited.add(id(value))
        for step, part in parts:
            place = f"{path}{step}"
            yield from _leaves(place, part, visited, backend, depth + 1)


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return what a value holds, each with the step of the path to it; None for a leaf."""
    if isinstance(value, dict):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, list | tuple | deque | set | frozenset):
        return [(f"[{index}]", part) for index, part in enumerate(value)]
    if _is_plain_object(value):
        return [(f".{name}", part) for name, part in vars(value).items()]
    return None


def _is_plain_object(value: Any) -> bool:
    """Return whether a value is an object of a class that no framework nor this package has."""
    kind: Any = type(value)
    if issubclass(kind, type) or not hasattr(value, "__dict__"):
        return False
    package = kind.__module__.partition(".")[0]
    return (
        package not in ("builtins", "numpy", _OWN_PACKAGE)
        and _framework_of(kind) is None
    )


def _backend_of(value: Any, own: Any) -> Any:
    """Return the backend whose layer or parameter a value is.

    `own` is tried before any other; None stands for anything else.
    """
    if _belongs_to(own, value):
        return own
    kind: Any = type(value)
    name = _framework_of(kind)
    if name is None:
        return None
    try:
        backend = importlib.import_module("deliralike.backends").get(name)
    except BackendUnavailable:  # the framework is installed, but cannot be used
        return None
    if _belongs_to(backend, value):
        return backend
    return None


def _belongs_to(backend: Any, value: Any) -> bool:
    is_part = backend.is_native(value) or backend.is_parameter(value)
    return is_part or bool(backend.how_to_bind(value))


@cache
def _framework_of(kind: type) -> str | None:
    """Return the name of the backend among whose packages a class has a base.

    No framework is imported to find out.
    """
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return importlib.import_module("deliralike.backends").backend_of_packages(packages)
