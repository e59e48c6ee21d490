"""The generators of the random layers outside of the portable stream: one for each replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.context import context_value


class Draws:
    """The random numbers of one replica in one call of a replicated network, layer by layer.

    They are keyed by the call's seed and the replica's number, so that the order of threads does
    not change them.

    Attributes:
        generator: The generator of the numbers; None before the first draw.
    """

    def __init__(self, key: tuple[int, int]) -> None:
        """Start without any draw.

        Args:
            key: The call's seed and the replica's number.
        """
        self.key = key
        self.generator: Any = None

    def started(self, xp: Any) -> Any:
        """Return the generator of numbers of NumPy or CuPy."""
        if self.generator is None:
            self.generator = _generator(self.key, xp)
        return self.generator


def _generator(key: tuple[int, int], xp: Any) -> Any:
    seed = np.random.SeedSequence(key)
    if xp is np:
        return np.random.default_rng(seed)
    return xp.random.RandomState(int(seed.generate_state(1)[0]))


_current: ContextVar[Draws | None] = ContextVar(
    "deliralike_chainer_draws", default=None
)


def drawing(draws: Draws) -> AbstractContextManager[Any]:
    """Draw from a replica's own generator for a ``with`` block."""
    return context_value(_current, draws)


def numbers(kind: str, shape: Sequence[int], xp: Any) -> Any:
    """Return random numbers of mean 0 and variance 1 (``"normal"``), else between 0 and 1.

    They come from the running replica's generator, else from the global generator of `xp`.
    """
    draws = _current.get()
    source = xp.random if draws is None else draws.started(xp)
    if kind == "normal":
        return source.standard_normal(tuple(shape))
    if isinstance(source, np.random.Generator):
        return source.random(tuple(shape))
    return source.rand(*shape)


def state(device: str) -> dict[str, Any]:
    """Return the states of the global generators that layers draw from.

    CuPy's state cannot be read, so the generator is seeded from itself, and the seed is returned: a
    run that continues and one that is resumed from here draw the same, and a run whose state was
    never read draws differently.
    """
    states: dict[str, Any] = {"numpy": np.random.get_state(legacy=False)}
    if not _on_numpy(device):
        with chainer.using_device(device):
            states["cupy"] = int(arrays.cuda.cupy.random.randint(2**31))
            arrays.cuda.cupy.random.seed(states["cupy"])
    return states


def load_state(device: str, state: Mapping[str, Any]) -> None:
    """Restore the states of the generators; that of a device which is not used here is ignored."""
    np.random.set_state(state["numpy"])
    if not _on_numpy(device) and "cupy" in state:
        with chainer.using_device(device):
            arrays.cuda.cupy.random.seed(state["cupy"])


def _on_numpy(device: str) -> bool:
    return chainer.get_device(device).xp is np
