"""Gradients within a loss, and the variables that a network sets meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import jax
from flax import nnx

from deliralike.backends.jax.variables import array_of, overwrite
from deliralike.context import context_value

_Changed = dict[
    int, tuple[nnx.Variable, Any]
]  # by identity: a variable and its value before
_changed: ContextVar[_Changed | None] = ContextVar(
    "deliralike_inner_changes", default=None
)


def store(variable: nnx.Variable, value: Any) -> None:
    """Set a variable, also one of an outer trace within `gradient`.

    nnx itself refuses to set a variable of an outer trace.
    """
    changed = _changed.get()
    if changed is None:
        variable.set_value(value)
    else:
        changed.setdefault(id(variable), (variable, array_of(variable)))
        overwrite(variable, value)


def unchecked() -> AbstractContextManager[_Changed | None]:
    """Return a block in which `store` sets variables of outer traces, whose values others keep."""
    return context_value(_changed, {})


def gradient(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Return the gradient of a scalar function.

    Variables that the function stores have their new values afterwards.
    """
    changed: _Changed = {}

    def value_and_stored(at: jax.Array) -> tuple[jax.Array, list[Any]]:
        try:
            with context_value(_changed, changed):
                value = function(at)
            stored = [array_of(variable) for variable, _ in changed.values()]
            return value, stored
        finally:
            # no value may leave the trace but through the result
            for variable, before in changed.values():
                overwrite(variable, before)

    derivative, stored = jax.grad(value_and_stored, has_aux=True)(x)
    for (variable, _), value in zip(changed.values(), stored, strict=True):
        store(variable, value)
    return derivative
