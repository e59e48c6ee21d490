"""Checks of the values that enter a compiled program.

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
from deliralike.backends.jax.compiled.compile_messages import announced, samples_of
from deliralike.context import context_value

Check = Callable[[np.ndarray], None]


@dataclass(frozen=True)
class _Call:
    """A call of a program under way.

    Attributes:
        arrays: The arrays of its batch.
        checks: The checks recorded so far, each with the place of its array.
        traced: What stands for the arrays while the program is traced.
    """

    arrays: Sequence[Any]
    checks: dict[tuple[int, Hashable], Check]
    traced: list[Any] = field(default_factory=list)


_call: ContextVar[_Call | None] = ContextVar("deliralike_jax_call", default=None)


def record_check(traced: Any, check: Check) -> None:
    """Record a check of the value behind a traced value, if it came with the batch.

    The check is made now and at each later call.
    """
    call = _call.get()
    if call is None:
        return
    for place, each in enumerate(call.traced):
        if each is traced:
            call.checks[place, check] = check
            _make(check, call.arrays[place])


def with_host_checks(
    function: Callable[..., Any],
    place: int,
    compiler: Callable[[Callable[..., Any]], Any],
) -> Any:
    """Return a function as a compiled program whose checks are made at each call.

    Args:
        place: The number of the argument that is the list of a batch's arrays.
        compiler: What compiles the function.
    """
    checks_by_kind: dict[tuple, dict[tuple[int, Hashable], Check]] = {}
    known: set[tuple] = (
        set()
    )  # the kinds of batches for which the program has been traced
    largest = [0]  # samples in one of them

    @wraps(function)
    def traced(*args: Any) -> Any:
        call = _call.get()
        if call is not None:
            call.traced[:] = args[place]
        return function(*args)

    program = compiler(traced)

    def run(*args: Any) -> Any:
        batch = args[place]
        kind = tuple(
            [(getattr(x, "shape", ()), getattr(x, "dtype", float)) for x in batch]
        )
        checks = checks_by_kind.setdefault(kind, {})
        for (index, _), check in checks.items():
            _make(check, batch[index])
        if kind in known:
            return program(*args)
        announcement = announced(function.__name__, batch, largest[0])
        with context_value(_call, _Call(batch, checks)), announcement:
            result = program(*args)
        known.add(kind)
        largest[0] = max(largest[0], samples_of(batch))
        return result

    return run


def _make(check: Check, value: Any) -> None:
    values = arrays.host_values(value)
    if values is not None:
        check(values)
