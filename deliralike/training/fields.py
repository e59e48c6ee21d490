"""The fields that a state in a checkpoint may have, and their types, checked before loading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deliralike.errors import CheckpointError


def refuse_wrong_fields(
    where: str,
    value: Any,
    types: Mapping[str, Any],
    optional: Mapping[str, Any] | None = None,
) -> None:
    """Raise an error if a nest has other fields than these, lacks one, or has one of another type.

    Args:
        where: The nest's own name, for the error.
        types: The type of each field, or a union of types; a truth value is no number.
        optional: Fields that may be left out.

    Raises:
        CheckpointError: The fields are wrong; the message names the field, its value and its type.

    Example:
        >>> refuse_wrong_fields("position", {"step": "7"}, {"step": int})
        Traceback (most recent call last):
        ...
        deliralike.errors.CheckpointError: position['step'] is '7', wanted int
    """
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{where} is {_shown(value)}, wanted a nest by name")
    known = {**types, **(optional or {})}
    for name in value:
        if name not in known:
            raise CheckpointError(
                f"{where} has a field {name!r}, wanted {', '.join(known)}"
            )
    for name in types:
        if name not in value:
            raise CheckpointError(f"{where} lacks the field {name!r}")
    for name, each in value.items():
        kind = known[name]
        if isinstance(each, bool) or not isinstance(each, kind):
            words = kind.__name__ if isinstance(kind, type) else str(kind)
            raise CheckpointError(
                f"{where}[{name!r}] is {_shown(each)}, wanted {words}"
            )


def _shown(value: Any, most: int = 60) -> str:
    text = repr(value)
    if len(text) > most:
        return f"{text[:most]}…"
    return text
