"""Checks of the values of settings.

Each check takes the key and the value of a setting, and returns the value to keep.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.errors import (
    DeliralikeError,
    SettingError,
    is_number,
    refuse_unknown,
    refuse_unknown_settings,
    whole_number,
)

_MOST = 2**63 - 1
Check = Callable[[str, Any], Any]
Table = dict[str, Any]
NAME = "name"


@contextmanager
def located(where: str) -> Iterator[None]:
    """Prefix an error that is raised inside with a place."""
    try:
        yield
    except DeliralikeError as error:
        raise type(error)(f"{where}: {error}") from error


def plain(key: str, value: Any) -> Any:
    """Return a copy of a value that holds only numbers, texts, flags, tuples and dicts of these.

    Raises:
        SettingError: The value holds something else, which no file of settings could hold.
    """
    if isinstance(value, np.generic):
        return plain(key, value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return _each(plain, key, value)
    if isinstance(value, Mapping):
        copied = {}
        for name, each in value.items():
            checked_name = text(f"a key of {key}", name)
            copied[checked_name] = plain(f"{key}.{name}", each)
        return copied
    raise SettingError(
        f"{key}={value!r} is a {type(value).__name__}: a setting is a number, a text, true or "
        "false, a list or a table"
    )


def text(key: str, value: Any) -> str:
    """Check that a value is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _wrong(key, value, "a text")
    return value


def flag(key: str, value: Any) -> bool:
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def whole(least: int) -> Check:
    """Return a check for whole numbers of at least `least` and below 2 to the power of 63."""

    def check(key: str, value: Any) -> int:
        number = whole_number(key, value, least)
        if number > _MOST:
            raise _wrong(key, value, f"a whole number of at most {_MOST:,}")
        return number

    return check


def between(low: float, high: float = math.inf) -> Check:
    """Return a check for finite numbers above `low` and below `high`."""
    wanted = f"a number above {low:g}"
    if high < math.inf:
        wanted += f" and below {high:g}"

    def check(key: str, value: Any) -> float:
        if not is_number(value) or not low < value < high:
            raise _wrong(key, value, wanted)
        return float(value)

    return check


def one_of(*choices: str) -> Check:
    """Return a check for one of these words."""

    def check(key: str, value: Any) -> str:
        refuse_unknown(value, choices, f"{key}={value!r} is unknown")
        return value

    return check


def known_to(find: Callable[[str], Any]) -> Check:
    """Return a check for names that `find` knows; it raises its own error for other names."""

    def check(key: str, value: Any) -> str:
        with located(key):
            find(text(NAME, value))
        return value

    return check


def table(key: str, value: Any) -> Table:
    """Check that a value is a table of values by name."""
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "a table, {key = value}")
    return plain(key, value)


def tables(key: str, value: Any) -> Table:
    """Check that a value is a table of tables."""
    checked = {}
    for name, each in table(key, value).items():
        checked[name] = table(f"{key}.{name}", each)
    return checked


def texts(key: str, value: Any) -> tuple[str, ...]:
    """Check that a value is a list of texts."""
    return _each(text, key, _listed(key, value))


def named(key: str, value: Any) -> tuple[Table, ...]:
    """Check that a value is a list of names, each alone or in a table with its numbers.

    An example is ``["loss", {name = "top-k", k = 3}]``.
    """
    return _each(_entry, key, _listed(key, value))


def _each(check: Check, key: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the results of a check for each value, whose key has its place."""
    results = []
    for place, value in enumerate(values):
        results.append(check(f"{key}[{place}]", value))
    return tuple(results)


def arguments_of(make: Callable[..., Any], *unwanted: str) -> Check:
    """Return a check for a table of arguments of `make`, except those in `unwanted`."""
    allowed = []
    required = []
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD and name not in unwanted:
            allowed.append(name)
            if parameter.default is parameter.empty:
                required.append(name)

    def check(key: str, value: Any) -> Table:
        settings = table(key, value)
        refuse_unknown_settings(key, settings, allowed)
        for name in required:
            if name not in settings:
                raise SettingError(f"{key} needs {name!r}: {key} = {{{name} = ...}}")
        return settings

    return check


def _entry(key: str, value: Any) -> Table:
    entry = {NAME: value} if isinstance(value, str) else table(key, value)
    if NAME not in entry:
        raise SettingError(
            f"{key}={value!r} names nothing: give a name, or a table with one, "
            '{name = "top-k", k = 3}'
        )
    text(f"{key}.{NAME}", entry[NAME])
    return entry


def _listed(key: str, value: Any) -> Iterable[Any]:
    if not isinstance(value, list | tuple):
        raise _wrong(key, value, "a list, [one, another]")
    return value


def _wrong(key: str, value: Any, wanted: str) -> SettingError:
    return SettingError(f"{key}={value!r} must be {wanted}")
