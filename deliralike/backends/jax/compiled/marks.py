"""Keys that are equal for networks and settings with which a program computes the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flax import nnx

BY_VALUE = (bool, int, float, str, type(None))
_BY_ITEMS = (tuple, frozenset)


class Identity:
    """A key that is equal for one and the same object, which it keeps alive.

    A number of ``id`` may be that of another object, once the first is gone.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def mark_of_setting(value: Any) -> Any:
    """Return a key that is equal for two settings with which a network computes the same."""
    kind = type(value)
    if kind in BY_VALUE:
        return kind, value  # as 1, 1.0 and True are equal, and do not compute the same
    if kind in _BY_ITEMS:
        return kind, kind(map(mark_of_setting, value))
    if isinstance(value, list):
        return kind, tuple(map(mark_of_setting, value))
    if isinstance(value, dict):
        return (
            kind,
            tuple(map(mark_of_setting, value)),
            tuple(map(mark_of_setting, value.values())),
        )
    return Identity(value)


def mark_of_nodes(nodes: Iterable[Any], variables: Iterable[nnx.Variable]) -> tuple:
    """Return a key of settings, blocks and frozen parameters, which does not depend on values."""
    marks: list[Any] = []
    for node in nodes:
        marks.append(type(node))
        for name, value in vars(node).items():
            if is_setting(name):
                marks.append((name, mark_of_setting(value)))
    for variable in variables:
        # hooks, and whether it is frozen
        marks.append(mark_of_setting(variable.get_metadata()))
    return tuple(marks)


def is_setting(name: str) -> bool:
    """Return whether an attribute is not one of flax's own."""
    return not name.startswith("_pytree_")
