"""Where the random layers draw from outside of the portable stream: in a replica, from a generator
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.parallel.replicas.context import Replica


class Draws:
    """One replica's draws in one call of a replicated network, in the order of its layers.

    They are keyed by the call's seed and the replica's number, so that threads cannot change them.

    Attributes:
        used: Whether anything was drawn.
    """

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        self.key: tuple[int, int] = (0, 0)
        self._generator: Any = None

    @property
    def used(self) -> bool:
        return self._generator is not None

    def uniform(self, shape: Sequence[int], xp: Any) -> Any:
        """Numbers between 0 and 1."""
        if self._generator is None:
            seed = np.random.SeedSequence(self.key)
            self._generator = (
                np.random.default_rng(seed)
                if xp is np
                else xp.random.RandomState(int(seed.generate_state(1)[0]))
            )
        return self._generator.random(tuple(shape)) if xp is np else self._generator.rand(*shape)


_current: ContextVar[Draws | None] = ContextVar("deliralike_chainer_draws", default=None)


@contextmanager
def drawing(draws: Draws, place: Replica) -> Iterator[None]:
    """Draw for this replica."""
    draws.key = (place.seed, place.index)
    token = _current.set(draws)
    try:
        yield
    finally:
        _current.reset(token)


def uniform(shape: Sequence[int], xp: Any) -> Any:
    """Numbers between 0 and 1: the running replica's own, else from the global generator of
    `xp`.
    """
    draws = _current.get()
    return xp.random.rand(*shape) if draws is None else draws.uniform(shape, xp)


def state(device: str) -> dict[str, Any]:
    """Where the global generators are that layers draw from.

    CuPy's cannot be read, so it is seeded from itself, and the seed is what is kept: a run that
    goes on and one that is resumed from here draw the same, and a run that never looked here draws
    otherwise.
    """
    found: dict[str, Any] = {"numpy": np.random.get_state(legacy=False)}
    if not _on_numpy(device):
        with chainer.using_device(device):
            found["cupy"] = int(arrays.cuda.cupy.random.randint(2**31))
            arrays.cuda.cupy.random.seed(found["cupy"])
    return found


def load_state(device: str, state: Mapping[str, Any]) -> None:
    """Let the generators go on from there; that of a device which is not used here is left out."""
    np.random.set_state(state["numpy"])
    if not _on_numpy(device) and "cupy" in state:
        with chainer.using_device(device):
            arrays.cuda.cupy.random.seed(state["cupy"])


def _on_numpy(device: str) -> bool:
    return chainer.get_device(device).xp is np
