"""Tensors and blocks by name: those of one block, those of some names, and all others."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TypeVar

from deliralike.network.base import AbstractNetwork

K = TypeVar("K")
T = TypeVar("T")


def start(path: str) -> str:
    """What the names of all that is in a block begin with; nothing for the network itself."""
    return f"{path}." if path else ""


def below(path: str, named: Mapping[str, T]) -> dict[str, T]:
    """What is in a block, by its names there.

    Example:
        >>> below("fc", {"fc.weight": 1, "fc2.weight": 2}), below("", {"fc.weight": 1})
        ({'weight': 1}, {'fc.weight': 1})
    """
    begin = start(path)
    return {
        n.removeprefix(begin): one for n, one in named.items() if n.startswith(begin)
    }


def holds(path: str, paths: Iterable[str]) -> bool:
    """Whether some of the paths are those of blocks within a block."""
    return any(one.startswith(f"{path}.") for one in paths)


def owner(name: str) -> str:
    """The path of the block that a tensor or block is in.

    Example:
        >>> owner("body.fc.weight"), owner("scale")
        ('body.fc', '')
    """
    return name.rpartition(".")[0]


def block_kinds(network: AbstractNetwork) -> dict[str, str]:
    """The class of each block by its path, that of the network itself under an empty one."""
    return {path: type(block).__name__ for path, block in network.named_blocks()}


def only(named: Mapping[K, T], names: Container[K]) -> dict[K, T]:
    """What has one of some names."""
    return {name: one for name, one in named.items() if name in names}


def without(named: Mapping[K, T], names: Container[K]) -> dict[K, T]:
    """What has none of some names."""
    return {name: one for name, one in named.items() if name not in names}
