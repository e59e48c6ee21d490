"""Checks of the values that a compiled program is given.

They are recorded while the program is traced, and made on the host before each call.

Only what enters a program and is checked as it is can be followed: labels, say, and not what is
computed of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np

from deliralike.backends.jax import arrays

Check = Callable[[np.ndarray], None]


@dataclass(frozen=True)
class _Call:
    """A call of a program under way.

    Attributes:
        given: The arrays of its batch.
        traced: What stands for them while the program is traced.
        noted: The checks found so far, each with the place of its array.
    """

    given: Sequence[Any]
    noted: dict[tuple[int, Hashable], Check]
    traced: list[Any] = field(default_factory=list)


_call: ContextVar[_Call | None] = ContextVar("deliralike_jax_call", default=None)


def note(traced: Any, check: Check) -> None:
    """Record a check of the value behind a traced value, if it came with the batch.

    The check is made now and at each later call.
    """
    call = _call.get()
    if call is None:
        return
    for place, each in enumerate(call.traced):
        if each is traced:
            call.noted[place, check] = check
            _make(check, call.given[place])


def checked(
    function: Callable[..., Any], place: int, compiled: Callable[[Callable[..., Any]], Any]
) -> Any:
    """Return a function as a compiled program whose checks are made at each call.

    Argument number `place` is the list of a batch.
    """
    by_shapes: dict[tuple, dict[tuple[int, Hashable], Check]] = {}

    @wraps(function)
    def traced(*args: Any) -> Any:
        if (call := _call.get()) is not None:
            call.traced[:] = args[place]
        return function(*args)

    program = compiled(traced)

    def run(*args: Any) -> Any:
        given = args[place]
        noted = by_shapes.setdefault(tuple(map(np.shape, given)), {})
        for (index, _), check in noted.items():
            _make(check, given[index])
        token = _call.set(_Call(given, noted))
        try:
            return program(*args)
        finally:
            _call.reset(token)

    return run


def _make(check: Check, value: Any) -> None:
    values = arrays.at_hand(value)
    if values is not None:
        check(values)
