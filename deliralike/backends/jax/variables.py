"""The arrays of nnx variables, past their hooks: what is saved, copied, moved and updated.

A hook (``on_get_value``, ``on_set_value``) stands between a variable and the code of a network. A
copy of a variable has the hook too, so what is read through it is never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from flax import nnx


def array_of(variable: nnx.Variable) -> Any:
    """Return the array that a variable holds."""
    value = variable.get_raw_value()  # ten times as fast as get_value
    return value if isinstance(value, jax.Array) else variable.get_value()


def set_array(variable: nnx.Variable, value: Any) -> None:
    """Let a variable hold another array."""
    if isinstance(variable.get_raw_value(), jax.Array):
        variable.set_raw_value(value)
    else:
        variable.set_value(value)


def overwrite(variable: nnx.Variable, value: Any) -> None:
    """Let a variable hold another array, also one of another trace, which nnx refuses."""
    object.__setattr__(variable, "_raw_value", value)


@contextmanager
def holding(variables: Sequence[nnx.Variable], values: Sequence[Any]) -> Iterator[None]:
    """Return a block within which variables hold other arrays; then they hold those of before."""
    before = [variable.get_raw_value() for variable in variables]
    for variable, value in zip(variables, values, strict=True):
        overwrite(variable, value)
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            overwrite(variable, value)
