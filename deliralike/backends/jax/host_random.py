"""Random numbers that a network draws on the host, of which a compiled program has the first."""

from __future__ import annotations

import dis
import inspect
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flax.nnx.tracers import current_jax_trace

from deliralike.network.core import innermost
from deliralike.terminal import warn

_OUTSIDE = current_jax_trace()  # of every transformation
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_PACKAGES = ("deliralike", "flax")
_GLOBAL = "random"  # the module's name, in NumPy as in Python
_told: list[Any] = [
    None
]  # the global states after the last warning, of a block in another


def watched(block: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a block's forward pass, and warn if it draws on the host while it is traced."""
    if current_jax_trace() == _OUTSIDE:
        return forward(*args, **kwargs)
    before = _states(block)
    outputs = forward(*args, **kwargs)
    after = _states(block)
    draws_globally = after[:2] not in (before[:2], _told[0])
    if draws_globally or after[2:] != before[2:]:
        _told[0] = after[:2]
        native = innermost(block)
        places = ", ".join(_lines(native)) or "in what it calls"
        warn(
            f"{type(native).__name__} draws random numbers of NumPy or Python in its forward pass "
            f"({places}): the program that JAX compiles has those of its first call in every step. "
            "Draw them with the data, as an input of the network, or take a layer of nn, such as "
            "nn.Dropout, which draws anew",
            RuntimeWarning,
        )
    return outputs


def _states(block: Any) -> tuple[Any, ...]:
    """The states of the global generators, and those of the block's own."""
    own = [
        value
        for value in vars(innermost(block)).values()
        if isinstance(value, _GENERATORS)
    ]
    shared = pickle.dumps(np.random.get_state(legacy=False)), random.getstate()
    return (*shared, *map(pickle.dumps, own))


def _lines(block: Any) -> Iterator[str]:
    """The lines of a block's own methods that name a generator: ``"net.py:31, in forward"``."""
    own = {
        name for name, value in vars(block).items() if isinstance(value, _GENERATORS)
    }
    for name, function in inspect.getmembers(type(block), inspect.isfunction):
        code = function.__code__
        if name == "__init__" or function.__module__.partition(".")[0] in _PACKAGES:
            continue
        lines: dict[int | None, None] = {}
        for each in dis.get_instructions(code):
            if each.argval in {_GLOBAL, *own} and each.positions is not None:
                lines[each.positions.lineno] = None
        for line in lines:
            yield f"{Path(code.co_filename).name}:{line}, in {name}"
