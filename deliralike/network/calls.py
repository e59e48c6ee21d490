"""Follow the calls of a network's blocks and of the functions of `nn`; taps are built on this."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

Interceptor = Callable[
    [str, Any, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any
]


@contextmanager
def intercept_calls(
    blocks: Mapping[str, Any],
    interceptor: Interceptor,
    have_forward: Callable[[Any], bool],
) -> Iterator[None]:
    """Let `interceptor` make the calls of each block, in a ``with`` block.

    See `Backend.intercept_calls`.

    Args:
        blocks: The blocks by path.
        have_forward: Returns whether calls of a block end in its method ``forward``. All other
            blocks are followed by ``__call__`` of their class: Python looks it up nowhere else.
    """
    with ExitStack() as stack:
        by_class: dict[type, dict[int, tuple[str, Any]]] = {}
        for path, block in blocks.items():
            if isinstance(block, FunctionType | BuiltinFunctionType | partial):
                continue  # a sequence may hold functions, which have no class of their own
            if have_forward(block):
                stack.enter_context(_through_instance(path, block, interceptor))
            else:
                by_class.setdefault(type(block), {})[id(block)] = (path, block)
        for kind, known in by_class.items():
            stack.enter_context(_through_class(kind, known, interceptor))
        yield


@contextmanager
def _through_instance(
    path: str, block: Any, interceptor: Interceptor
) -> Iterator[None]:
    """Let `interceptor` make the calls of one block, by an attribute ``forward`` of its own."""
    call = block.forward
    own = vars(block).get("forward")
    vars(block)["forward"] = lambda *args, **kwargs: interceptor(
        path, block, call, args, kwargs
    )
    try:
        yield
    finally:
        vars(block).pop("forward")
        if own is not None:
            vars(block)["forward"] = own


@contextmanager
def _through_class(
    kind: type, known: Mapping[int, tuple[str, Any]], interceptor: Interceptor
) -> Iterator[None]:
    """Let `interceptor` make the calls of the known blocks of a class, by its ``__call__``."""
    original = kind.__call__
    own = vars(kind).get("__call__")

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in known:
            return original(self, *args, **kwargs)
        path, block = known[id(self)]
        return interceptor(
            path, block, lambda *a, **k: original(block, *a, **k), args, kwargs
        )

    kind.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own is None:
            del kind.__call__
        else:
            kind.__call__ = own  # type: ignore[method-assign]


@contextmanager
def intercept_functions(functions: Any, interceptor: Interceptor) -> Iterator[None]:
    """Let `interceptor` make this thread's calls of a vocabulary's functions, in a ``with`` block.

    Args:
        functions: The `nn` of a backend. Functions that compute nothing (`constant`, `cast` …) and
            second names of others are left alone.
        interceptor: As in `Backend.intercept_calls`; the path is the function's name, the block the
            vocabulary.
    """
    thread = threading.get_ident()

    def through(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def follow(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(*args, **kwargs)
            return interceptor(name, functions, call, args, kwargs)

        return follow

    followers = {}
    vocabulary: Any = type(functions)  # whose classes may change
    for name in _names_in(vocabulary, frozenset().union(*map(vars, vocabulary.mro()))):
        followers[name] = through(name, getattr(functions, name))
    vars(functions).update(followers)
    try:
        yield
    finally:
        for name in followers:
            del vars(functions)[name]


@lru_cache
def _names_in(vocabulary: type, _names: frozenset[str]) -> tuple[str, ...]:
    """Return the names of what computes something in a vocabulary."""
    names = []
    for name in dir(vocabulary):
        value = getattr(vocabulary, name)
        is_followed = callable(value) and not getattr(value, "is_other_name", False)
        if is_followed and name[0].islower() and name not in _COMPUTE_NOTHING:
            names.append(name)
    return tuple(names)


_COMPUTE_NOTHING = frozenset(
    {"cast", "concrete", "constant", "gradient", "prepare_rng", "scan", "zeros"}
)
