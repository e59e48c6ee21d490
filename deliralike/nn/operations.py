"""Operations of one's own, by name, beside the functions of the vocabulary."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    SettingError,
    UnknownName,
    UnknownOperation,
    suggestion,
)


@dataclass(frozen=True)
class Operation:
    """An operation of a user's own.

    Attributes:
        name: Its name in `nn`.
        composed: A function ``composed(nn, *arrays, **settings)`` that is written with `nn`; None
            where there is none.
        native: Functions ``native(*arrays, **settings)`` on a framework's own arrays, by the
            backend's name. They are taken in place of the composed one.
    """

    name: str
    composed: Callable[..., Any] | None = None
    native: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def has(self, backend: str) -> bool:
        """Return whether a backend of that name has the operation."""
        return self.composed is not None or backend in self.native

    def bind(self, functions: Any, backend: str) -> Callable[..., Any]:
        """Return the function that computes the operation on a backend.

        Where the backend does not have it, a call raises `CapabilityError`.
        """
        if backend in self.native:
            return self.native[backend]
        if self.composed is None:
            return partial(self._refuse, backend)
        return partial(self.composed, functions)

    def _refuse(self, backend: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise CapabilityError(
            f"operation {self.name!r} has no function for backend {backend!r}, only for "
            f"{', '.join(self.native)}: register it with {backend}=..., or with composed=..., "
            "which every backend has"
        )


_registered: dict[str, Operation] = {}


def registered(name: str) -> Operation | None:
    """Return the registered operation of that name, or None."""
    return _registered.get(name)


def register(
    name: str, composed: Callable[..., Any] | None = None, **native: Callable[..., Any]
) -> Operation:
    """Add an operation to `nn`, under a name of its own.

    Registering a name again replaces the operation.

    Args:
        name: The name that it has in `nn`.
        composed: A function ``composed(nn, *arrays, **settings)`` that is written with other
            functions of `nn`: every backend has it.
        native: Functions ``native(*arrays, **settings)`` on a framework's own arrays, by the name
            of the backend: ``torch=``, ``chainer=``, ``jax=``. They take the place of the composed
            one. ``outline=`` gives the result's shape where `deliralike.zoo.outline` draws the
            network: an array with ``shape`` and ``dtype``.

    Returns:
        The operation; `deliralike.conformance.check_operation` compares its backends.

    Raises:
        SettingError: The name is no name of Python's, or `nn` has it already.
        UnknownName: There is no backend of that name.
        ArgumentError: No function is given, or something that is none.

    Example:
        >>> from deliralike import Network, nn
        >>> def swiglu(nn, x, gate):
        ...     return nn.silu(gate) * x
        >>> nn.register("swiglu", composed=swiglu).has("jax")
        True
        >>> class Gated(Network):
        ...     def forward(self, x):
        ...         return self.nn.swiglu(x, x)
    """
    _refuse_taken(name)
    if composed is None and not native:
        raise ArgumentError(
            f"register({name!r}) came without a function: give one for each backend, torch=..., or "
            "one that is written with nn, composed=..."
        )
    known = [*importlib.import_module("deliralike.backends").known(), "outline"]
    for backend in native:
        if backend not in known:
            raise UnknownName(
                f"register({name!r}): there is no backend {backend!r}. {suggestion(backend, known)}"
            )
    for argument, function in {"composed": composed, **native}.items():
        if function is not None and not callable(function):
            raise ArgumentError(
                f"register({name!r}): {argument}={function!r} is not a function of arrays"
            )
    _registered[name] = Operation(name, composed, native)
    return _registered[name]


def _refuse_taken(name: str) -> None:
    """Refuse a name that an operation cannot have.

    Raises:
        SettingError: Says why.
    """
    if not name.isidentifier() or name.startswith("_"):
        raise SettingError(
            f"an operation cannot be called {name!r}: wanted a name of Python's that does not "
            "begin with an underscore"
        )
    functions = importlib.import_module("deliralike.nn.functional").Functions
    layers = importlib.import_module("deliralike.nn.layers").LAYERS
    if hasattr(functions, name) or name in layers:
        raise SettingError(
            f"nn has {name!r} already: register your operation by another name"
        )


class Registered:
    """The part of `nn` that finds registered operations, and says which names there are not.

    Attributes:
        backend_name: The name of the backend whose functions these are.
    """

    backend_name: str = ""

    def __getattr__(self, name: str) -> Any:
        """Return a registered operation.

        Raises:
            UnknownOperation: There is none of that name; the message says the nearest ones, and how
                to add one.
        """
        if name.startswith("_"):
            raise AttributeError(f"nn has no attribute {name!r}")
        operation = _registered.get(name)
        if operation is None:
            raise UnknownOperation(_unknown(self, name))
        return operation.bind(self, self.backend_name)

    def __dir__(self) -> list[str]:
        """Return all names, registered operations among them."""
        return [*super().__dir__(), *_registered]


def _unknown(functions: Registered, name: str) -> str:
    """Return the message for a name that is in no vocabulary."""
    names = [known for known in dir(functions) if not known.startswith("_")]
    near = get_close_matches(name, names, n=3, cutoff=0.6)
    hint = "deliralike's reference lists all names."
    if near:
        hint = f"Did you mean {' or '.join(map(repr, near))}?"
    return (
        f"self.nn has no {name!r}. {hint} A layer of your own is a subclass of "
        f"deliralike.Network; a function of your own is added by deliralike.nn.register({name!r}, "
        "composed=...) or with one function for each backend"
    )
