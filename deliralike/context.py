"""Values that hold for a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Give a context variable a value for a ``with`` block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
