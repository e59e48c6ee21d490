"""Checks of settings that several families share."""

from collections.abc import Iterable, Sized
from typing import Any

from deliralike.errors import SettingError, suggestion
from deliralike.nn import checks


def positive(what: str, /, **settings: Any) -> None:
    """Check that settings, by their names, are whole numbers of at least one.

    Args:
        what: The network; the error names it, here as in the other checks.

    Raises:
        SettingError: One is not.
    """
    for name, value in settings.items():
        checks.positive(value, name, what)


def one_of(value: Any, known: Iterable[Any], name: str, what: str) -> None:
    """Check that a setting is one of those that are known.

    Raises:
        SettingError: It is not; the message names the nearest.
    """
    if value not in known:
        raise SettingError(
            f"{what}: there is no {name}={value!r}. {suggestion(str(value), known)}"
        )


def numbers(
    values: Any, name: str, what: str, count: int | None = None, least: int = 1
) -> tuple[int, ...]:
    """Return a list of whole numbers of at least one as a tuple.

    Args:
        count: How many are wanted; any number from `least` on when None.

    Raises:
        SettingError: There are more or fewer, or one is no such number.

    Example:
        >>> numbers([64, 128], "widths", "VGG")
        (64, 128)
    """
    length = _length(values)
    is_right = length >= least if count is None else length == count
    if not is_right:
        wanted = f"at least {least}" if count is None else f"exactly {count}"
        raise SettingError(
            f"{what}: {name}={values!r}; wanted a list of numbers, {wanted} of them"
        )
    return tuple(checks.positive(value, name, what) for value in values)


def indices(values: Iterable[int], count: int, name: str, what: str) -> None:
    """Check that values are numbers of blocks.

    Raises:
        SettingError: One is not from 0 to ``count - 1``.
    """
    if not set(values) <= set(range(count)):
        raise SettingError(
            f"{what}: {name}={values!r}; wanted numbers of blocks, from 0 to {count - 1}"
        )


def number_rows(
    rows: Any, columns: str, name: str, what: str
) -> tuple[tuple[int, ...], ...]:
    """Return a table of whole numbers of at least one as tuples.

    Args:
        columns: The names of the columns, with commas between.

    Raises:
        SettingError: There is no row, or one has more or fewer columns, or another entry.

    Example:
        >>> number_rows([[1, 16], [6, 24]], "expansion, channels", "blocks", "MobileNetV2")
        ((1, 16), (6, 24))
    """
    width = columns.count(",") + 1
    if _length(rows) == 0 or any(len(row) != width for row in rows):
        raise SettingError(f"{what}: {name}={rows!r}; wanted rows of {columns}")
    return tuple(numbers(row, name, what) for row in rows)


def paired(what: str, /, **lists: Any) -> list[tuple[int, ...]]:
    """Return lists that each have one whole number for each stage, as tuples.

    Raises:
        SettingError: They differ in length, or one is empty or no such list.
    """
    lengths = {_length(values) for values in lists.values()}
    if len(lengths) > 1 or 0 in lengths:
        came = ", ".join(f"{name}={values!r}" for name, values in lists.items())
        raise SettingError(
            f"{what}: {came}; wanted lists of one length, a number for each stage"
        )
    return [numbers(values, name, what) for name, values in lists.items()]


def _length(values: Any) -> int:
    if isinstance(values, str) or not isinstance(values, Sized):
        return 0
    return len(values)
