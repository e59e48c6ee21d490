"""What a value of a setting may be: each check takes the setting's key and a value, and gives the value to keep."""

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
    UnknownName,
    refuse_unknown_settings,
    suggestion,
)

_MOST = 2**63 - 1
Check = Callable[[str, Any], Any]
NAME = "name"


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put the place that is looked at in front of an error that is raised inside."""
    try:
        yield
    except DeliralikeError as error:
        raise type(error)(f"{where}: {error}") from error


def plain(key: str, value: Any) -> Any:
    """A value of its own that shares nothing with the given one: numbers, texts, flags, tuples and dicts of these.

    Raises:
        SettingError: It holds something else, which no file of settings could hold.
    """
    if isinstance(value, np.generic):
        return plain(key, value.item())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(plain(f"{key}[{place}]", each) for place, each in enumerate(value))
    if isinstance(value, Mapping):
        return {
            text(f"a key of {key}", name): plain(f"{key}.{name}", each)
            for name, each in value.items()
        }
    raise SettingError(
        f"{key}={value!r} is a {type(value).__name__}: a setting is a number, a text, true or "
        "false, a list or a table"
    )


def text(key: str, value: Any) -> str:
    """Some text."""
    if not isinstance(value, str) or not value:
        raise _wrong(key, value, "a text")
    return value


def flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def whole(least: int) -> Check:
    """A whole number of at least so many, which a computer counts with: below 2 to the power of 63."""

    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _wrong(key, value, f"a whole number of at least {least}")
        if value > _MOST:
            raise _wrong(key, value, f"a whole number of at most {_MOST:,}")
        return value

    return check


def between(low: float, high: float = math.inf) -> Check:
    """A finite number above `low` and below `high`."""
    wanted = f"a number above {low:g}" + (f" and below {high:g}" if high < math.inf else "")

    def check(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value < high:
            raise _wrong(key, value, wanted)
        return float(value)

    return check


def one_of(*choices: str) -> Check:
    """One of these words."""

    def check(key: str, value: Any) -> str:
        if value not in choices:
            raise UnknownName(f"{key}={value!r} is unknown. {suggestion(str(value), choices)}")
        return value

    return check


def known_to(find: Callable[[str], Any]) -> Check:
    """A name that `find` knows; it raises an error of its own for another."""

    def check(key: str, value: Any) -> str:
        with located(key):
            find(text(NAME, value))
        return value

    return check


def optional(check: Check) -> Check:
    """None, or what the check takes."""
    return lambda key, value: None if value is None else check(key, value)


def table(key: str, value: Any) -> dict[str, Any]:
    """Values by name."""
    if not isinstance(value, Mapping):
        raise _wrong(key, value, "a table, {key = value}")
    return plain(key, value)


def tables(key: str, value: Any) -> dict[str, Any]:
    """Tables by name."""
    return {name: table(f"{key}.{name}", each) for name, each in table(key, value).items()}


def texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text(f"{key}[{place}]", each) for place, each in enumerate(_listed(key, value)))


def named(key: str, value: Any) -> tuple[dict[str, Any], ...]:
    """A list of names, each alone or in a table with its numbers: ``["loss", {name = "top-k", k = 3}]``."""
    return tuple(_entry(f"{key}[{place}]", each) for place, each in enumerate(_listed(key, value)))


def made_by(make: Callable[..., Any], *unwanted: str) -> Check:
    """A table of settings that `make` has; those in `unwanted` are given by someone else."""
    allowed = [name for name in inspect.signature(make).parameters if name not in unwanted]

    def check(key: str, value: Any) -> dict[str, Any]:
        settings = table(key, value)
        refuse_unknown_settings(key, settings, allowed)
        return settings

    return check


def _entry(key: str, value: Any) -> dict[str, Any]:
    entry = {NAME: value} if isinstance(value, str) else table(key, value)
    if NAME not in entry:
        raise SettingError(
            f'{key}={value!r} names nothing: give a name, or a table with one, {{name = "top-k", k = 3}}'
        )
    text(f"{key}.{NAME}", entry[NAME])
    return entry


def _listed(key: str, value: Any) -> Iterable[Any]:
    if not isinstance(value, list | tuple):
        raise _wrong(key, value, "a list, [one, another]")
    return value


def _wrong(key: str, value: Any, wanted: str) -> SettingError:
    return SettingError(f"{key}={value!r} must be {wanted}")
