"""Random numbers that a network draws on the host, of which a compiled program has the first."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flax.nnx.tracers import current_jax_trace

from deliralike.network.core import unwrap
from deliralike.terminal import warn

_OUTSIDE = current_jax_trace()  # of every transformation
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
# the global states after the last warning: a block within another is warned of alone
_reported: list[Any] = [None]


def watched(block: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a block's forward pass, and warn if it draws on the host while it is traced."""
    if current_jax_trace() == _OUTSIDE:
        return forward(*args, **kwargs)
    native = unwrap(block)
    generators = [*vars(native).values()]
    with warning(
        f"{type(native).__name__} draws random numbers of NumPy or Python in its forward pass",
        "as an input of the network, or take a layer of nn, such as nn.Dropout, which draws anew",
        generators,
    ):
        return forward(*args, **kwargs)


@contextmanager
def warning(what: str, remedy: str, values: Sequence[Any]) -> Iterator[None]:
    """Return a block of traced code that warns if random numbers are drawn on the host.

    Args:
        what: Says who draws them.
        remedy: What to do, after "draw them with the data".
        values: What may hold other generators than the global ones.
    """
    generators = [each for each in values if isinstance(each, _GENERATORS)]
    own = [*map(pickle.dumps, generators)]
    before = _global_states()
    yield
    after = _global_states()
    if after not in (before, _reported[0]) or own != [*map(pickle.dumps, generators)]:
        _reported[0] = after
        warn(
            f"{what}: the program that JAX compiles has those of its first call in every step. "
            f"Draw them with the data, {remedy}",
            RuntimeWarning,
        )


def _global_states() -> tuple[Any, ...]:
    return pickle.dumps(np.random.get_state(legacy=False)), random.getstate()
