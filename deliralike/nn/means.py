"""What mean losses were divided by, for those who join the means of several batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Denominators:
    """The denominators of the mean losses that were computed in a block."""

    def __init__(self) -> None:
        """Begin without a loss."""
        self._noted: list[tuple[Any, Callable[[], Any]]] = []

    def note(self, mean: Any, denominator: Callable[[], Any]) -> None:
        """Note the denominator of a mean: a whole number of Python if shapes alone decide it."""
        self._noted.append((mean, denominator))

    def of(self, value: Any) -> Any:
        """Return the denominator of a value; None where it is no mean of a loss itself."""
        for mean, denominator in self._noted:
            if mean is value:
                return denominator()
        return None


class _Noted(threading.local):
    """The block of each thread; in each it is there from the first call on.

    A program of torch.compile (2.13), which cannot trace a ContextVar, would be compiled again
    where an attribute appears.
    """

    def __init__(self) -> None:
        self.noted: Denominators | None = None


_local = _Noted()


@contextmanager
def denominators() -> Iterator[Denominators]:
    """Return a block that notes the denominators of the mean losses computed in it."""
    before = _local.noted
    noted = _local.noted = Denominators()
    try:
        yield noted
    finally:
        _local.noted = before


def with_denominator_of(mean: Any, value: Any) -> Any:
    """Return what a loss became, whose denominator is that of the loss."""
    noted = _local.noted
    if noted is not None and noted.of(mean) is not None:
        noted.note(value, lambda: noted.of(mean))
    return value


def mean_over(denominator: Callable[[], Any], mean: Any) -> Any:
    """Return a mean loss, whose denominator is noted where somebody asks for it."""
    noted = _local.noted
    if noted is not None:
        noted.note(mean, denominator)
    return mean
