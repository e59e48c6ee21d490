"""What mean losses were divided by, for those who join the means of several batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# no ContextVar, which torch.compile (2.13) cannot trace
_local = threading.local()


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


@contextmanager
def denominators() -> Iterator[Denominators]:
    """Return a block that notes the denominators of the mean losses computed in it."""
    before = getattr(_local, "noted", None)
    noted = _local.noted = Denominators()
    try:
        yield noted
    finally:
        _local.noted = before


def mean_over(denominator: Callable[[], Any], mean: Any) -> Any:
    """Return a mean loss, whose denominator is noted where somebody asks for it."""
    noted = getattr(_local, "noted", None)
    if noted is not None:
        noted.note(mean, denominator)
    return mean
