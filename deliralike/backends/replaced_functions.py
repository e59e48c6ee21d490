"""Replace a framework's functions wherever code holds them: in modules, closures and blocks.

For frameworks that have no hook of their own. Nothing is replaced outside of a ``with`` block.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
)
from contextlib import AbstractContextManager, contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

from deliralike.backends.native_calls import Follower, Table
from deliralike.references import is_user_code

# known functions and what takes their places, by the id of the function
Replacements = Mapping[int, tuple[Any, Callable[..., Any]]]
_lock = threading.RLock()  # one thread at a time: what is replaced is seen by all
_active: list[Follower] = []


def replacements_of(table: Table) -> Replacements:
    """Return each function of a table with the one that takes its place, by the function's id.

    To be made once: what takes a function's place is the same in every ``with`` block.
    """
    found = {}
    for function, (name, neutral) in table.items():
        found[id(function)] = (function, _in_place_of(function, name, neutral))
    return found


def _in_place_of(function: Any, name: str, neutral: Any) -> Callable[..., Any]:
    def follow(*args: Any, **kwargs: Any) -> Any:
        call = function
        for follower in _active:
            call = functools.partial(_through, follower, name, neutral, call)
        return call(*args, **kwargs)

    return functools.update_wrapper(follow, function)


def _through(
    follower: Follower, name: str, neutral: Any, call: Any, *args: Any, **kwargs: Any
) -> Any:
    return follower(name, neutral, call, args, kwargs)


@contextmanager
def replaced_by_name(functions: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Put functions in the place of others for a ``with`` block.

    Args:
        functions: By the module or class that has the other, and the name that it has there.
    """
    before = {place: getattr(*place) for place in functions}
    for place, function in functions.items():
        setattr(*place, function)
    try:
        yield
    finally:
        for place, function in before.items():
            setattr(*place, function)


def wrapped_by_name(
    functions: Mapping[tuple[Any, str], Callable[..., Any]],
) -> AbstractContextManager[None]:
    """Let functions be called in the place of others, each with the other as first argument.

    Args:
        functions: As in `replaced_by_name`.
    """
    replacements = {}
    for place, function in functions.items():
        replacements[place] = _wrapped(getattr(*place), function)
    return replaced_by_name(replacements)


def _wrapped(original: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    return call


@contextmanager
def intercept_calls(
    follower: Follower,
    known: Replacements,
    blocks: Iterable[Any],
    spaces: Iterable[Any],
) -> Iterator[None]:
    """Let a follower make the calls of known functions, in a ``with`` block.

    Args:
        follower: What makes them.
        known: From `replacements_of`.
        blocks: Those of a network: their attributes, and the modules of their classes.
        spaces: The framework's modules and classes that have the functions as attributes.
    """
    with _lock:
        _active.append(follower)
        try:
            with replaced(known, blocks, spaces):
                yield
        finally:
            _active.remove(follower)


@contextmanager
def replaced(
    known: Replacements,
    blocks: Iterable[Any],
    spaces: Iterable[Any],
) -> Iterator[None]:
    """Let others take the place of known functions for a ``with`` block; see `intercept_calls`."""
    changes: list[tuple[Any, str, Any]] = []
    try:
        with _lock:
            _replace(known, blocks, spaces, changes)
        yield
    finally:
        with _lock:
            for holder, name, value in reversed(changes):
                _put(holder, name, value)


def _replace(
    known: Replacements,
    blocks: Iterable[Any],
    spaces: Iterable[Any],
    changes: list[tuple[Any, str, Any]],
) -> None:
    for holder, attributes in _holders(list(blocks), spaces):
        for name, value in list(attributes.items()):
            replacement = _replacement_of(known, value)
            if replacement is not value:
                changes.append((holder, name, value))
                _put(holder, name, replacement)


def _replacement_of(known: Replacements, value: Any) -> Any:
    """Return what takes the place of a function, or of a list that has some."""
    if id(value) in known:
        return known[id(value)][1]
    if type(value) in (list, tuple) and any(id(item) in known for item in value):
        return type(value)(_replacement_of(known, item) for item in value)
    return value


def _put(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, CellType):
        holder.cell_contents = value
    elif isinstance(holder, MutableMapping):
        holder[name] = value
    else:
        setattr(holder, name, value)


def _holders(
    blocks: list[Any], spaces: Iterable[Any]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield everything that may hold a function, with what it holds by name."""
    for space in spaces:
        yield space, dict(vars(space))
    classes = {cls for block in blocks for cls in type(block).__mro__}
    names = {cls.__module__ for cls in classes}
    names |= set(filter(_is_of_user, sys.modules))
    for name in names:
        is_module = isinstance(sys.modules.get(name), ModuleType)
        if is_module and not _is_framework(name):
            yield vars(sys.modules[name]), vars(sys.modules[name])
    for cls in classes:
        if not _is_framework(cls.__module__):
            yield from _cells(cls)
    for block in blocks:
        yield vars(block), vars(block)
        for value in list(vars(block).values()):
            if isinstance(value, MutableSequence) and hasattr(value, "__dict__"):
                yield vars(value), vars(value)  # a framework's own kind of list


def _cells(cls: type) -> Iterator[tuple[CellType, Mapping[str, Any]]]:
    """Yield the variables that a class's methods have from a function around them."""
    for method in vars(cls).values():
        if isinstance(method, FunctionType):
            for cell in method.__closure__ or ():
                try:
                    yield cell, {"": cell.cell_contents}
                except ValueError:
                    continue  # not filled yet


def _is_framework(name: str) -> bool:
    return name.partition(".")[0] in _FRAMEWORKS


_is_of_user = functools.cache(is_user_code)
_FRAMEWORKS = frozenset(
    {
        "builtins",
        "chainer",
        "deliralike",
        "flax",
        "jax",
        "jaxlib",
        "numpy",
        "optax",
        "torch",
    }
)
