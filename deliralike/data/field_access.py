"""Reading and replacing an entry of a sample or batch by its key, position or field name."""

import copy
from typing import Any

from deliralike import nest
from deliralike.errors import ArgumentError

Entry = str | int


def entry(nested: Any, key: Entry) -> Any:
    """Return an entry: of a dict by key, of a sequence by position, of a named tuple by either.

    Raises:
        ArgumentError: There is no such entry.
    """
    if isinstance(key, str) and key in getattr(nested, "_fields", ()):
        return getattr(nested, key)
    try:
        return nested[key]
    except (LookupError, TypeError) as error:
        raise ArgumentError(
            f"there is no entry {key!r} in {nest.described(nested)}"
        ) from error


def with_entries(nested: Any, new: dict[Entry, Any]) -> Any:
    """Return a shallow copy with new entries.

    Example:
        >>> with_entries((1, 2), {1: "two"})
        (1, 'two')
    """
    if hasattr(nested, "_replace"):
        return nested._replace(**_by_field_name(nested, new))
    if isinstance(nested, tuple):
        return tuple(with_entries(list(nested), new))
    changed = copy.copy(nested)
    for key, value in new.items():
        changed[key] = value
    return changed


def _by_field_name(named_tuple: Any, entries: dict[Entry, Any]) -> dict[str, Any]:
    named = {}
    for key, value in entries.items():
        if not isinstance(key, str):
            key = named_tuple._fields[key]
        named[key] = value
    return named
