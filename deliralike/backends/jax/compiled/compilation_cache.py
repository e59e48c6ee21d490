"""Programs that are compiled once, however often they are traced.

A function is traced anew whenever it is made anew, so whatever its code reads (closures, settings
of a network, modes, contexts) is as it is at the call. The trace is lowered to the text of a
program, which has every operation, constant, shape and type of it, and the compiled program is
taken from an earlier call whose text was the same. So nothing stale can run, and a loss function
need not be the same object for its program to be found.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

import jax
from flax.nnx.tracers import current_jax_trace

from deliralike.backends.jax.unstable import (
    ClosedJaxpr,
    Jaxpr,
    drop_lowered_traces,
)

_CACHE_SIZE = 64
_programs: OrderedDict[Any, Any] = OrderedDict()
_lock = Lock()
_OUTSIDE = current_jax_trace()  # of every transformation


def compile_once(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function as ``jax.jit`` does, unless its program has been compiled before.

    Within another transformation of JAX the function becomes a part of that program, which has the
    compiler's options for all of it.

    Args:
        options: Those of ``jax.jit``.
    """
    inner = jax.jit(function)
    # the text of a program must tell which arguments it uses
    jitted = jax.jit(function, keep_unused=True, **options)
    of_traces: dict[Any, tuple[Any, Any]] = {}  # with the trace, which keeps its id

    def run(*arguments: Any) -> Any:
        if jax.config.jax_disable_jit or current_jax_trace() != _OUTSIDE:
            return inner(*arguments)
        leaves = jax.tree.leaves(arguments)
        traced = jitted.trace(*arguments)
        key = (id(traced.jaxpr), *_places(leaves))
        if key not in of_traces:
            of_traces[key] = traced.jaxpr, _compiled(traced, leaves, repr(options))
        _, program = of_traces[key]
        # the tree of the results is this trace's: it has values that are no arrays
        results = jax.tree.leaves(program(*arguments))
        return jax.tree.unflatten(traced.out_tree, results)

    return run


def _compiled(traced: Any, leaves: Sequence[Any], options: str) -> Any:
    """Return the compiled program of a trace, from an earlier one where that is the same."""
    lowered = traced.lower()
    drop_lowered_traces()
    text = lowered.as_text()
    callbacks = [*_callbacks(traced.jaxpr.jaxpr)]
    if not _is_all_in_text(traced, text, callbacks):
        return lowered.compile()
    key = (
        hashlib.sha256(text.encode()).digest(),
        traced.in_tree,
        *jax.tree.leaves((traced.in_avals, traced.out_avals)),
        *_places(leaves),
        *((id(each.callback_func), each.in_tree) for each in callbacks),
        options,
    )
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return _programs[key][0]
    program = lowered.compile()
    with _lock:
        _programs[key] = program, callbacks  # which keep their ids
        if len(_programs) > _CACHE_SIZE:
            _programs.popitem(last=False)
    return program


def _is_all_in_text(traced: Any, text: str, callbacks: Sequence[Any]) -> bool:
    """Return whether nothing but its text and its callbacks decides what a program does."""
    # constants that JAX passes as arguments beside ours
    if getattr(jax.config, "jax_use_simplified_jaxpr_constants", True):
        return False
    return not traced.jaxpr.effects and ("callback" in text) == bool(callbacks)


def _places(leaves: Sequence[Any]) -> Iterator[Any]:
    """Yield what decides on which devices a program runs."""
    yield jax.config.jax_default_device
    for leaf in leaves:
        yield leaf.sharding if isinstance(leaf, jax.Array) else None


def _callbacks(jaxpr: Jaxpr) -> Iterator[Any]:
    """Yield the functions on the host that a program without effects calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pure_callback":
            yield equation.params["callback"]
        for value in jax.tree.leaves(equation.params, is_leaf=_is_program):
            if isinstance(value, ClosedJaxpr):
                yield from _callbacks(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _callbacks(value)


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)
