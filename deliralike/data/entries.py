"""The one place where an entry of a sample or batch is read and replaced: by key, position or field name."""

import copy
from typing import Any

from deliralike import nest
from deliralike.errors import ArgumentError

Entry = str | int


def entry(nested: Any, key: Entry) -> Any:
    """What stands at `key`: of a dict by key, of a tuple or list by position, of a named tuple by either.

    Raises:
        ArgumentError: There is no such entry.
    """
    try:
        return getattr(nested, key) if isinstance(key, str) and _is_field(nested, key) else nested[key]
    except (LookupError, TypeError) as error:
        raise ArgumentError(f"there is no entry {key!r} in {nest.described(nested)}") from error


def with_entries(nested: Any, new: dict[Entry, Any]) -> Any:
    """A shallow copy with new entries.

    Example:
        >>> with_entries((1, 2), {1: "two"})
        (1, 'two')
    """
    if hasattr(nested, "_replace"):
        return nested._replace(**{key if isinstance(key, str) else nested._fields[key]: new[key] for key in new})
    changed: Any = list(nested) if isinstance(nested, tuple) else copy.copy(nested)
    for key, value in new.items():
        changed[key] = value
    return tuple(changed) if isinstance(nested, tuple) else changed


def _is_field(nested: Any, name: str) -> bool:
    return name in getattr(nested, "_fields", ())
