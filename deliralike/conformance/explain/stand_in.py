"""Layers of `nn` that run with other weights, settings or steps than they were made with."""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any

from deliralike.conformance.explain.convention import Arguments
from deliralike.nn.layers import LAYERS


class StandIn:
    """In the place of a layer: its methods are those of the class, its attributes what is given.

    What is not given, such as a bias that a layer does not have, is None.
    """

    def __init__(self, kind: str, nn: Any, given: Arguments) -> None:
        """Stand in for a layer of a kind, which computes by `nn`."""
        self.__dict__.update(given)
        self.__dict__.update(nn=nn, _layer=LAYERS[kind])

    def __getattr__(self, name: str) -> Any:
        """A method or property of the layer's class."""
        found = inspect.getattr_static(self.__dict__["_layer"], name, None)
        if isinstance(found, property):
            return found.fget(self)  # type: ignore[misc]
        return MethodType(found, self) if callable(found) else found
