"""Portable random numbers: masks and noise keyed by seed, layer path, step and sample.

They are equal on every backend.

Inside ``with portable(seed, step):`` the random layers (dropout, noise) draw their numbers here, on
the host, with a counter-based generator; masks by a comparison of integers, which does not depend
on rounding. Outside of it they use the framework's own generator, which is faster and never
equal between frameworks.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from numbers import Real
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from deliralike.errors import SettingError
from deliralike.nn import checks, start


class Stream(NamedTuple):
    """A position in the portable stream: `seed`, `step` and the index of the batch's first sample.

    `step` and `first_sample` may be traced values of a compiled program. `draws` counts what each
    layer has drawn since the block, or the loss, began: a layer that is called twice draws twice.
    """

    seed: int
    step: Any = 0
    first_sample: Any = 0
    draws: dict[str, int] | None = None

    def next_draw(self, path: str, framework: str = "") -> int:
        """Return the number of a layer's next draw, and count it.

        Args:
            framework: Networks of several may run in one block, with layers of the same paths.
        """
        if self.draws is None:
            return 0
        key = f"{framework}:{path}"
        number = self.draws.get(key, 0)
        self.draws[key] = number + 1
        return number

    def later(self, samples: Any) -> "Stream":
        """Return the position `samples` later, which counts the same draws."""
        return self._replace(first_sample=self.first_sample + samples)

    def snapshot(self) -> "Stream":
        """Return this position as it is now, whatever is drawn later."""
        return self._replace(draws=dict(self.draws or {}))


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


def position() -> Stream | None:
    """Return the position in force as it is now, whatever is drawn later; None without a stream."""
    stream = current()
    return None if stream is None else stream.snapshot()


def portable(
    seed: int = 0, step: Any = 0, first_sample: Any = 0
) -> AbstractContextManager[Stream]:
    """Make the random layers draw portable masks and noise.

    They are equal on every backend and for every number of replicas.

    Args:
        seed: One whole number for the run.
        step: The number of finished updates.
        first_sample: The index, within the whole batch, of the first sample that this network sees.
    """
    return _Portable(Stream(seed, step, first_sample, {}))


def following(stream: Stream | None) -> AbstractContextManager[Any]:
    """Return a context that draws from a position on; one that changes nothing without."""
    return at(None if stream is None else stream.snapshot())


def at(stream: Stream | None) -> AbstractContextManager[Any]:
    """Return a context at a position, whose draws are counted on."""
    return nullcontext() if stream is None else _Portable(stream)


def shifted(samples: Any) -> AbstractContextManager[Any]:
    """Return a context in which the batch begins `samples` later, if a stream is open."""
    stream = current()
    return at(None if stream is None else stream.later(samples))


def count_draws(of: Stream | None) -> None:
    """Go on after the draws of another position, as of a replica that drew in the same places."""
    stream = current()
    if stream is not None and stream.draws is not None and of is not None:
        stream.draws.update(of.draws or {})


def from_the_first_draw() -> AbstractContextManager[Any]:
    """Return a context in which each layer's next draw is its first one.

    A loss that is computed once more at the same step draws the same.
    """
    stream = current()
    return at(None if stream is None else stream._replace(draws={}))


def drawing_the_same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws the same each time that it is called.

    A body of a loop is traced once, or more often, and the framework repeats what it does.
    """
    start = position()
    if start is None:
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        with following(start):
            return function(*args, **kwargs)

    return call


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
        with suppress(ValueError):  # a replica that was stopped ends in another context
            _stream.reset(self._token)


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
    seed: int,
    path: str,
    step: int,
    first_sample: int,
    shape: tuple[int, ...],
    p: float,
    draw: int = 0,
) -> np.ndarray:
    """Return which elements dropout with probability `p` keeps, for each sample of a batch.

    Args:
        draw: How often the layer has drawn in the step before.

    Shapes:
        ``(samples, ...)``; each sample's row depends on seed, path, step, draw and its own index
        alone.

    Returns:
        A boolean array, True where the element is kept.
    """
    numbers = mask_numbers(seed, path, step, first_sample, shape, draw)
    return numbers >= drop_threshold(p)


def mask_numbers(
    seed: int,
    path: str,
    step: int,
    first_sample: int,
    shape: tuple[int, ...],
    draw: int = 0,
) -> np.ndarray:
    """Return the numbers of 16 bits behind `keep_mask`, which drops those below a threshold."""
    count, *sizes = shape
    per_sample = int(np.prod(sizes, dtype=np.int64))
    values = np.empty((count, per_sample), np.uint16)
    for index in range(count):
        generator = philox(seed, path, step, first_sample + index, draw)
        words = generator.random_raw((per_sample + 3) // 4)
        values[index] = np.asarray(words, dtype="<u8").view(np.uint16)[:per_sample]
    return values.reshape(shape)


def noise(
    seed: int,
    path: str,
    step: int,
    first_sample: int,
    shape: tuple[int, ...],
    kind: str,
    draw: int = 0,
) -> np.ndarray:
    """Return noise for each sample of a batch, in float64.

    Args:
        kind: ``"normal"``, of mean 0 and variance 1, or ``"uniform"``, from 0 to 1.
        draw: How often the layer has drawn in the step before.

    Shapes:
        ``(samples, ...)``; each sample's row depends on seed, path, step, draw and its own index
        alone. ``()`` is one sample.

    Raises:
        SettingError: There is no noise of this kind.
    """
    checks.one_of(kind, ("normal", "uniform"), "noise: kind")
    values = np.empty(shape or (1,))
    for index in range(len(values)):
        words = philox(seed, path, step, first_sample + index, draw)
        generator = np.random.Generator(words)
        sample = generator.standard_normal if kind == "normal" else generator.random
        values[index] = sample(shape[1:])
    return values.reshape(shape)


def numbers(
    stream: Stream,
    path: str,
    shape: tuple[int, ...],
    kind: str,
    p: float,
    draw: int,
) -> np.ndarray:
    """Return what a layer draws at a position of the stream: see `keep_mask` and `noise`.

    Args:
        kind: ``"keep"``, ``"normal"`` or ``"uniform"``.
        p: The probability to drop, of ``"keep"``.
        draw: See `Stream.next_draw`.
    """
    place = (stream.seed, path, int(stream.step), int(stream.first_sample), shape)
    if kind == "keep":
        return keep_mask(*place, p, draw)
    return noise(*place, kind, draw)


def uniform(seed: int, path: str, step: int, sample: int) -> float:
    """Return a number from 0 to 1, without 1, which is the same on every backend.

    Example:
        >>> uniform(0, "", 0, 0) == uniform(0, "", 0, 0) != uniform(0, "", 0, 1)
        True
    """
    (word,) = philox(seed, path, step, sample).random_raw(1)
    return int(word >> np.uint64(11)) / 2**53


def drop_threshold(p: float) -> int:
    """Return the integer of 16 bits below which an element is dropped.

    Raises:
        SettingError: `p` is no probability.
    """
    if not isinstance(p, Real) or not 0.0 <= p <= 1.0:
        raise SettingError(f"a dropout probability lies between 0 and 1, not at {p!r}")
    return round(p * 65536)


def philox(
    seed: int, path: str, step: int, sample: int = 0, draw: int = 0
) -> np.random.Philox:
    """Return the generator of a seed and purpose at a place; its words NumPy promises to keep."""
    # drawing counts the first word up
    counter = np.array([0, draw, sample, step], dtype=np.uint64)
    return np.random.Philox(key=start.key(seed, path), counter=counter)
