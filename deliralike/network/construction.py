"""The settings that hold while a network is being built.

They are the backend, seed, data type and device, and the declared start values.

Layers ask `current_construction` when they create parameters; the outermost network then draws all
values, once every parameter's path is known.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from deliralike.context import context_value
from deliralike.errors import ConstructionError
from deliralike.network.interface import Networks
from deliralike.nn.start import Distribution


@dataclass
class Construction:
    """The settings and declared start values of a network that is being built."""

    backend: Networks[Any]
    seed: int = 0
    dtype: str = "float32"
    device: Any = None
    _starts: dict[int, tuple[Any, Distribution]] = field(default_factory=dict)
    _signatures: dict[Any, inspect.Signature] = field(default_factory=dict)

    def declare(self, parameter: Any, start: Distribution) -> Any:
        """Record the distribution of a native parameter, and return the parameter."""
        self._starts[id(parameter)] = (parameter, start)
        return parameter

    def start_of(self, parameter: Any) -> Distribution | None:
        """Return the distribution declared for a native parameter.

        It is None when the value of the parameter is to be kept.
        """
        _, start = self._starts.get(id(parameter), (None, None))
        return start

    def signature(self, function: Any) -> inspect.Signature:
        """Return a function's signature; it is cached: many blocks are of few classes."""
        if function not in self._signatures:
            self._signatures[function] = inspect.signature(function)
        return self._signatures[function]


_current: ContextVar[Construction | None] = ContextVar(
    "deliralike_construction", default=None
)


def current_construction() -> Construction | None:
    """Return the construction in progress, or None."""
    return _current.get()


def require_construction(what: str) -> Construction:
    """Return the construction in progress.

    Args:
        what: What is to be created, for the message.

    Raises:
        ConstructionError: No network is being built.
    """
    construction = _current.get()
    if construction is None:
        raise ConstructionError(
            f"{what} can only be created inside the __init__ of a network"
        )
    return construction


def constructing(construction: Construction) -> AbstractContextManager[Any]:
    """Make a construction the current one for a ``with`` block."""
    return context_value(_current, construction)
