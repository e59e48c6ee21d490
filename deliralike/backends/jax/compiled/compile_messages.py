"""Messages of a compilation that takes long, and of its end.

They go to the logger ``"deliralike"`` as warnings, which Python prints on standard error unless
told otherwise: ``logging.getLogger("deliralike").setLevel(logging.ERROR)`` keeps it quiet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from time import perf_counter
from typing import Any

import jax
import numpy as np

from deliralike.errors import listed

_LOGGER = logging.getLogger("deliralike")
PATIENCE = 5.0  # seconds
_MOST = 6  # shapes of a batch that are said: a proof has one for each layer


@contextmanager
def announced(name: str, batch: Sequence[Any], largest: int = 0) -> Iterator[None]:
    """Return a context for the first call of a program with such a batch, which compiles it.

    Args:
        name: Of the program.
        batch: The arrays of the batch.
        largest: The most samples of a batch that it was compiled for before.
    """
    messages: list[str] = []

    def announce() -> None:
        messages.append(_message(name, batch, largest))
        _LOGGER.warning("%s", messages[0])

    timer = Timer(PATIENCE, announce)
    timer.daemon = True
    start = perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if messages:
            folder = jax.config.jax_compilation_cache_dir
            place = f", kept in {folder}" if folder else ""
            seconds = perf_counter() - start
            _LOGGER.warning("compiled %s in %.1f s%s", name, seconds, place)


def _message(name: str, batch: Sequence[Any], largest: int) -> str:
    shapes = listed((np.shape(value) for value in batch), _MOST)
    text = f"compiling {name} for arrays of {shapes or 'no shape'}; it is compiled once"
    if 0 < samples_of(batch) < largest:
        text += (
            f", and was for {largest} samples: drop_last=True leaves a smaller last batch "
            "out of training, a batch size that divides the samples elsewhere"
        )
    return text


def samples_of(batch: Sequence[Any]) -> int:
    """Return the number of samples of a batch; 0 where its first array has no axis."""
    shape = np.shape(batch[0]) if batch else ()
    return shape[0] if shape else 0


def name_program(function: Any, what: str, kind: type) -> None:
    """Name the function of a program, as it is called in messages and in JAX's logs.

    Args:
        kind: The class of the network.
    """
    function.__name__ = f"{what}_of_{kind.__name__}"
