"""The announcement of a compilation that takes long, and of its end.

It goes to the logger ``"deliralike"`` as a warning, which Python prints on standard error unless
told otherwise: ``logging.getLogger("deliralike").setLevel(logging.ERROR)`` keeps it quiet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Timer
from time import perf_counter
from typing import Any

import numpy as np

from deliralike.errors import listed

_LOGGER = logging.getLogger("deliralike")
PATIENCE = 5.0  # seconds
_MOST = 6  # shapes of a batch that are said: a proof has one for each layer


class _Call:
    """A call of a program, which may compile it first.

    Attributes:
        name: Of the program.
        batch: The arrays of the batch.
        largest: The most samples of a batch that the program was compiled for before.
    """

    def __init__(self, name: str, batch: Sequence[Any], largest: int) -> None:
        self.name, self.batch, self.largest = name, batch, largest
        self.timer: Timer | None = None
        self.is_announced = False

    def begin(self) -> None:
        """Announce the compilation in a while, unless it ends before."""
        self.begun = perf_counter()
        shapes = listed((np.shape(value) for value in self.batch), _MOST)
        text = f"compiling {self.name} for arrays of {shapes or 'no shape'}; it is compiled once"
        if 0 < samples_of(self.batch) < self.largest:
            text += (
                f", and was for {self.largest} samples: drop_last=True leaves a smaller last batch "
                "out of training, inferer=PaddedBatchInferer(batch_size) fills it up elsewhere"
            )
        self.timer = Timer(PATIENCE, self._announce, [text])
        self.timer.daemon = True
        self.timer.start()

    def end(self) -> None:
        """Say how long it took, if it was announced."""
        if self.timer is None:
            return
        self.timer.cancel()
        if self.is_announced:
            _LOGGER.warning(
                "compiled %s in %.1f s", self.name, perf_counter() - self.begun
            )

    def _announce(self, text: str) -> None:
        self.is_announced = True
        _LOGGER.warning("%s", text)


def samples_of(batch: Sequence[Any]) -> int:
    """Return the number of samples of a batch; 0 where its first array has no axis."""
    shape = np.shape(batch[0]) if batch else ()
    return shape[0] if shape else 0


_call: ContextVar[_Call | None] = ContextVar("deliralike_jax_compiling", default=None)


def begin() -> None:
    """Say in a while that the program called here is being compiled, unless that ends before."""
    call = _call.get()
    if call is not None and call.timer is None:
        call.begin()


@contextmanager
def suspended() -> Iterator[None]:
    """Return a context in which programs are traced that may not have to be compiled."""
    token = _call.set(None)
    try:
        yield
    finally:
        _call.reset(token)


@contextmanager
def announced(name: str, batch: Sequence[Any], largest: int = 0) -> Iterator[None]:
    """Return a context for a call of a program, whose compilation is announced if it takes long.

    Args:
        name: Of the program.
        batch: The arrays of the batch.
        largest: The most samples of a batch that it was compiled for before.
    """
    call = _Call(name, batch, largest)
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)
        call.end()


def name_program(function: Callable[..., Any], what: str, kind: type) -> None:
    """Name the function of a program, as it is called in announcements and in JAX's logs.

    Args:
        kind: The class of the network.
    """
    function.__name__ = f"{what}_of_{kind.__name__}"
