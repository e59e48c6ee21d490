"""Portable random numbers: masks keyed by seed, layer path, step and sample.

The masks are equal on every backend.

Inside ``with portable(seed, step):`` the random layers (dropout and similar ones) draw their masks
here, on the host, with a counter-based generator and a comparison of integers, which does not
depend on rounding. Outside of it they use the framework's own generator, which is faster and never
equal between frameworks.
"""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from deliralike.errors import SettingError
from deliralike.nn import start


class Stream(NamedTuple):
    """A position in the portable stream: `seed`, `step` and the index of the batch's first sample.

    `step` and `first_sample` may be traced values of a compiled program.
    """

    seed: int
    step: Any = 0
    first_sample: Any = 0


_stream: ContextVar[Stream | None] = ContextVar(
    "deliralike_portable_stream", default=None
)
# The number of `portable` blocks that are open in all threads. It is a plain number, since
# torch.compile can guard on one and not on a context variable: programs are compiled anew inside.
_open = 0
_counting = Lock()


def current() -> Stream | None:
    """Return the stream in force, or None where the framework's own generator is used."""
    return _stream.get() if _open else None


def is_open() -> bool:
    """Return whether any thread is in a `portable` block."""
    return _open > 0


def portable(
    seed: int = 0, step: Any = 0, first_sample: Any = 0
) -> AbstractContextManager[Stream]:
    """Make the random layers draw portable masks.

    They are equal on every backend and for every number of replicas.

    Args:
        seed: One whole number for the run.
        step: The number of finished updates.
        first_sample: The index, within the whole batch, of the first sample that this network sees.
    """
    return _Portable(Stream(seed, step, first_sample))


def following(stream: Stream | None) -> AbstractContextManager[Any]:
    """Return a context with a stream; one that changes nothing without."""
    if stream is None:
        return nullcontext()
    return _Portable(stream)


class _Portable:
    """A block with a stream; as a generator it would take three times as long in each step."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __enter__(self) -> Stream:
        global _open
        self._token = _stream.set(self._stream)
        with _counting:
            _open += 1
        return self._stream

    def __exit__(self, *error: object) -> None:
        global _open
        with _counting:
            _open -= 1
        _stream.reset(self._token)


@contextmanager
def shifted(samples: Any) -> Iterator[None]:
    """Start the batch `samples` later in the portable stream, if one is open.

    A replica uses it for its share of a batch.
    """
    stream = current()
    if stream is None:
        yield
        return
    token = _stream.set(stream._replace(first_sample=stream.first_sample + samples))
    try:
        yield
    finally:
        # A replica that was stopped just here ends in another context.
        with suppress(ValueError):
            _stream.reset(token)


@contextmanager
def unchanged_generators() -> Iterator[None]:
    """Restore the generators of Python and NumPy at the end of a ``with`` block."""
    of_python, of_numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def keep_mask(
    seed: int, path: str, step: int, first_sample: int, shape: tuple[int, ...], p: float
) -> np.ndarray:
    """Return which elements dropout with probability `p` keeps, for each sample of a batch.

    Shapes:
        ``(samples, ...)``; each sample's row depends on seed, path, step and its own index alone.

    Returns:
        A boolean array, True where the element is kept.
    """
    return mask_numbers(seed, path, step, first_sample, shape) >= drop_threshold(p)


def mask_numbers(
    seed: int, path: str, step: int, first_sample: int, shape: tuple[int, ...]
) -> np.ndarray:
    """Return the numbers of 16 bits behind `keep_mask`, which drops those below a threshold."""
    count, *sizes = shape
    per_sample = int(np.prod(sizes, dtype=np.int64))
    values = np.empty((count, per_sample), np.uint16)
    for index in range(count):
        values[index] = _draw_u16(seed, path, step, first_sample + index, per_sample)
    return values.reshape(shape)


def uniform(seed: int, path: str, step: int, sample: int) -> float:
    """Return a number from 0 to 1, without 1, which is the same on every backend.

    Example:
        >>> uniform(0, "", 0, 0) == uniform(0, "", 0, 0) != uniform(0, "", 0, 1)
        True
    """
    (word,) = _generator(seed, path, step, sample).random_raw(1)
    return int(word >> np.uint64(11)) / 2**53


def drop_threshold(p: float) -> int:
    """Return the integer of 16 bits below which an element is dropped.

    Raises:
        SettingError: `p` is no probability.
    """
    if not 0.0 <= p <= 1.0:
        raise SettingError(f"a dropout probability lies between 0 and 1, not at {p!r}")
    return round(p * 65536)


def _draw_u16(seed: int, path: str, step: int, sample: int, count: int) -> np.ndarray:
    words = _generator(seed, path, step, sample).random_raw((count + 3) // 4)
    return np.asarray(words, dtype="<u8").view(np.uint16)[:count]


def _generator(seed: int, path: str, step: int, sample: int) -> np.random.Philox:
    counter = np.array([0, 0, sample, step], dtype=np.uint64)
    return np.random.Philox(key=start.key(seed, path), counter=counter)
