"""The record of the arguments that a network was made with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deliralike.errors import ArgumentError, suggestion
from deliralike.network.construction import current_construction

_OF_ON = ("seed", "dtype", "device")  # arguments of `Network.on`


class InitKwargs(dict):
    """InitKwargs holds the arguments that one network was made with.

    It is hashable, since JAX keeps it among a module's static parts.
    """

    def __hash__(self) -> int:  # type: ignore[override]
        """Hash the names only: values may be unhashable."""
        return hash(tuple(self))

    def __eq__(self, other: object) -> bool:
        """Return whether the names are the same, and the values too or equal.

        Arrays are compared by identity.
        """
        if not isinstance(other, dict) or self.keys() != other.keys():
            return False
        return all(_is_equal(value, other[name]) for name, value in self.items())

    __ne__ = object.__ne__


@dataclass(frozen=True)
class Block:
    """A block describes an argument of a network that is itself a network.

    The record holds neither the network nor its weights: a copy of the outer network, which copies
    its record, shares no weights with it.

    Attributes:
        kind: The name of the inner network's class.
        init_kwargs: The arguments that it was made with; None if they have not been recorded.
    """

    kind: str
    init_kwargs: InitKwargs | None

    def __repr__(self) -> str:
        """Return the block as it was written: ``Linear(in_features=3, out_features=2)``."""
        arguments = [
            f"{name}={value!r}" for name, value in (self.init_kwargs or {}).items()
        ]
        return f"{self.kind}({', '.join(arguments)})"


def bind_arguments(cls: Any, args: tuple, kwargs: Mapping[str, Any]) -> InitKwargs:
    """Return the arguments of a network by name, for the record.

    Defaults are left out, since they may change.

    Raises:
        ArgumentError: The class does not take these arguments; the message lists those it takes.
    """
    constructor = getattr(cls, "written_once", cls).__init__
    if constructor is object.__init__:
        constructor = _without_arguments  # Python's own accepts any at first
    construction = current_construction()
    signature_of = construction.signature if construction else inspect.signature
    signature = signature_of(constructor)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        names = [name for name in signature.parameters if name != "self"]
        unknown = [name for name in kwargs if name not in names]
        hint = f" {suggestion(unknown[0], names)}" if unknown and names else ""
        if unknown and unknown[0] in _OF_ON:
            hint = f" {unknown[0]} is given to {cls.__name__}.on(backend, {unknown[0]}=...)."
        if names:
            known = f"Its arguments are {', '.join(names)}."
        else:
            known = "It takes no arguments."
        raise ArgumentError(f"{cls.__name__}: {error}.{hint} {known}") from None
    _, *own = bound.arguments.items()  # the first one is `self`
    arguments = dict(own)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name, {}))
    return arguments_record(cls, arguments)


def arguments_record(network: Any, arguments: Mapping[str, Any]) -> InitKwargs:
    """Return arguments of a network, or of its class, as they are recorded."""
    return InitKwargs(
        {name: _with_blocks(network, value) for name, value in arguments.items()}
    )


def recorded_arguments(block: Any) -> InitKwargs | None:
    """Return the recorded arguments of a block; None for one of a framework or user without any."""
    arguments = vars(block).get("init_kwargs")
    return arguments if isinstance(arguments, InitKwargs) else None


def in_positions(
    cls: Any, args: tuple, kwargs: Mapping[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Return arguments of a class, defaults included, by position wherever that is possible."""
    bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs)
    bound.apply_defaults()
    return bound.args[1:], bound.kwargs


def _without_arguments(self: Any) -> None:
    pass


def _with_blocks(network: Any, value: Any) -> Any:
    """Return an argument with a `Block` in the place of every network."""
    if network.backend.is_native(value):
        return Block(type(value).__name__, recorded_arguments(value))
    if type(value) in (list, tuple):
        return type(value)(_with_blocks(network, item) for item in value)
    if type(value) is dict:
        return {name: _with_blocks(network, item) for name, item in value.items()}
    return value


def _is_equal(first: Any, second: Any) -> bool:
    """Return whether two values are one object or plainly equal; arrays are not."""
    try:
        return first is second or bool(first == second)
    except Exception:  # noqa: BLE001
        return False
