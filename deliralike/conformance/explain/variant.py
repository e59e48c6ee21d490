"""A known convention that can be executed: the output of the reference's block under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call of a block, in the arrays of a backend.

    Attributes:
        nn: The vocabulary of the backend.
        weights: Parameters and buffers by name within the block.
        args, kwargs: The inputs.
        settings: Those of the reference, defaults filled in.
        training: The mode.
        path: Of the block, which keys its random masks.
        after: What a formula puts here are buffers after the call.
    """

    nn: Any
    weights: Mapping[str, Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    training: bool
    path: str = ""
    after: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> Call:
        """The same with other parts; buffers after it are written to the same place."""
        return replace(self, **changes)


Formula = Callable[..., Any]


@dataclass(frozen=True)
class Variant:
    """A convention that a candidate may follow instead of the reference's.

    Attributes:
        cause: What a report says; for a fitted one a text with a place for the number, or a
            function of it.
        formula: ``formula(call)``, or ``formula(call, value)`` for a fitted one, gives the outputs.
        starts: For a fitted one: where the search begins, in the order of likelihood; empty for all
            others.
        least, most: The bounds of a fitted number.
    """

    cause: str | Callable[[float], str]
    formula: Formula
    starts: tuple[float, ...] = ()
    least: float = -1e6
    most: float = 1e6

    def at(self, value: float) -> Variant:
        """A fitted one with its number."""
        text = self.cause(value) if callable(self.cause) else self.cause.format(number(value))
        return Variant(text, lambda call: self.formula(call, value))


Variants = Iterator[Variant]


def number(value: Any) -> str:
    """How a report writes a number: ``2e-05``, ``0.37``.

    Example:
        >>> number(0.30000000000000004)
        '0.3'
    """
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def instead(name: str, value: Any, usual: Any) -> str:
    """``"stride=1 instead of 2"``."""
    return f"{name}={number(value)} instead of {number(usual)}"


def fitted(name: str, usual: Any) -> str:
    """The same with a place for a number that is searched for."""
    return f"{name}={{}} instead of {number(usual)}"
