"""Random numbers that a network draws on the host, of which a compiled program has the first."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
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
    shared, own = _global_states(), _own_states(native)
    outputs = forward(*args, **kwargs)
    after = _global_states()
    if after not in (shared, _reported[0]) or _own_states(native) != own:
        _reported[0] = after
        warn(
            f"{type(native).__name__} draws random numbers of NumPy or Python in its forward pass: "
            "the program that JAX compiles has those of its first call in every step. Draw them "
            "with the data, as an input of the network, or take a layer of nn, such as nn.Dropout, "
            "which draws anew",
            RuntimeWarning,
        )
    return outputs


def _global_states() -> tuple[Any, ...]:
    return pickle.dumps(np.random.get_state(legacy=False)), random.getstate()


def _own_states(block: Any) -> list[bytes]:
    """Return the states of the generators among a block's attributes."""
    values = vars(block).values()
    return [pickle.dumps(each) for each in values if isinstance(each, _GENERATORS)]
