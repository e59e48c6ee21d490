"""The types of settings, as the arguments of the class or function that takes them state them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from deliralike.errors import SettingError, is_number


def refuse_other_types(
    name: str, target: Callable[..., Any], settings: Mapping[str, Any]
) -> None:
    """Raise an error for a setting of another type than the argument of a class or function.

    NumPy's numbers and whole numbers for floats are fine, and so are 0 and 1 for a flag, and lists
    and arrays for sequences.

    Raises:
        SettingError: A text came for a flag, say, which would be taken for true.
    """
    hints = _hints(target)
    for setting, value in settings.items():
        hint = hints.get(setting, Any)
        if not _fits(value, hint):
            raise SettingError(f"{name}: {setting}={value!r} must be {_words(hint)}")


class TypedSettings:
    """The base of dataclasses that refuse a setting of another type than it is annotated with."""

    def __post_init__(self) -> None:
        """Check the types.

        Raises:
            SettingError: A setting is of another type.
        """
        refuse_other_types(type(self).__name__, type(self), vars(self))


@cache
def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    if isinstance(target, partial):
        return _hints(target.func)
    if not isinstance(target, type):
        return get_type_hints(target)
    # A dataclass repeats the annotations of its bases, which are of other modules.
    names: dict[str, Any] = {}
    for base in reversed(target.__mro__):
        names |= vars(sys.modules[base.__module__])
    try:
        return get_type_hints(target.__init__, names)  # type: ignore[misc]
    except NameError:  # of a type that is imported for type checkers alone
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a type; of types that settings do not have, any value has."""
    arguments = get_args(hint)
    kind = get_origin(hint) or hint
    if kind is Literal:
        return isinstance(value, str) and value in arguments
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if kind is Sequence or (kind is tuple and ... in arguments):
        return _is_sequence(value) and all(_fits(each, arguments[0]) for each in value)
    if kind is tuple:
        is_right_length = _is_sequence(value) and len(value) == len(arguments)
        return is_right_length and all(map(_fits, value, arguments))
    return kind not in _TESTS or _TESTS[kind](value)


def _is_sequence(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, int | np.bool_) and value in (0, 1)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


_TESTS: dict[Any, Callable[[Any], bool]] = {
    bool: _is_flag,
    int: _is_whole,
    float: is_number,
    str: lambda value: isinstance(value, str),
    NoneType: lambda value: value is None,
    Mapping: lambda value: isinstance(value, Mapping),
    Iterable: lambda value: isinstance(value, Iterable) and not isinstance(value, str),
    Callable: callable,
}
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "None",
    Mapping: "a mapping",
    Iterable: "a list",
    Callable: "a function",
}


def _words(hint: Any) -> str:
    """Describe a type.

    Example:
        >>> _words(int | Sequence[int] | None)
        'a whole number, or a list, each entry a whole number, or None'
    """
    arguments = get_args(hint)
    kind = get_origin(hint) or hint
    if kind is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if kind in (Union, UnionType):
        return ", or ".join(map(_words, arguments))
    if kind is Sequence or (kind is tuple and ... in arguments):
        return f"a list, each entry {_words(arguments[0])}"
    if kind is tuple:
        return f"a row of {len(arguments)}: {', '.join(map(_words, arguments))}"
    return _WORDS.get(kind, str(kind))
