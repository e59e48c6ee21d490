"""The fields that a state in a checkpoint may have, and their types, checked before loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deliralike.errors import CheckpointError, is_number

_SHOWN = 60  # characters of a value, in an error

State = dict[str, Any]  # numbers, texts and arrays by name, as a checkpoint has them


@dataclass(frozen=True)
class Kind:
    """The type of a field: in words, and as a function that tests a value."""

    words: str
    fits: Callable[[Any], bool]

    def or_none(self) -> Kind:
        """Return the same kind, with None allowed."""

        def fits(value: Any) -> bool:
            return value is None or self.fits(value)

        return Kind(f"{self.words}, or None", fits)


def _is_list_of(kind: type, value: Any) -> bool:
    return type(value) is list and all(isinstance(each, kind) for each in value)


def _is_texts_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_list_of(str, list(value.values()))


COUNT = Kind(
    "a whole number of at least 0", lambda value: type(value) is int and value >= 0
)
NUMBER = Kind("a number", is_number)
TEXT = Kind("a text", lambda value: isinstance(value, str))
TEXTS = Kind("a list of texts", lambda value: _is_list_of(str, value))
NEST = Kind("a nest by name", lambda value: isinstance(value, Mapping))
NESTS = Kind("a list of nests", lambda value: _is_list_of(Mapping, value))
TEXTS_BY_NAME = Kind("texts by name", _is_texts_by_name)


def refuse_wrong_fields(
    where: str,
    value: Any,
    kinds: Mapping[str, Kind],
    optional: Mapping[str, Kind] | None = None,
) -> None:
    """Raise an error if a nest has other fields than these, lacks one, or has one of another type.

    Args:
        where: The nest's own name, for the error.
        optional: Fields that may be left out.

    Raises:
        CheckpointError: The fields are wrong; the message names the field, its value and its type.

    Example:
        >>> refuse_wrong_fields("position", {"step": "7"}, {"step": COUNT})
        Traceback (most recent call last):
        ...
        deliralike.errors.CheckpointError: position['step'] is '7', wanted a whole number of at
        least 0
    """
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where} is {_shown(value)}, wanted {NEST.words}")
    known = {**kinds, **(optional or {})}
    for name in value:
        if name not in known:
            raise CheckpointError(
                f"{where} has a field {name!r}, wanted {', '.join(known)}"
            )
    for name in kinds:
        if name not in value:
            raise CheckpointError(f"{where} lacks the field {name!r}")
    for name, each in value.items():
        if not known[name].fits(each):
            raise CheckpointError(
                f"{where}[{name!r}] is {_shown(each)}, wanted {known[name].words}"
            )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
