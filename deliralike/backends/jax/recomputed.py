"""Activation checkpointing on JAX, by flax's own `nnx.remat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from deliralike import nest
from deliralike.backends.jax.variables import array_of, set_array


def recomputed(
    block: nnx.Module,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """See `Backend.recomputed`; where no gradients are taken, JAX drops nothing."""
    given = nest.split((args, kwargs), jax.Array)
    found: list[nest.SplitNest] = []
    untouched: list[Any] = []

    def run(module: nnx.Module, values: list[Any]) -> list[Any]:
        before = _values(module)
        own_args, own_kwargs = given.unflatten(values)
        outputs = call(module, *own_args, **own_kwargs)
        found[:] = [nest.split(outputs, jax.Array)]
        now = _values(module)
        untouched[:] = [
            path for path, value in before.items() if now.get(path) is value
        ]
        return found[0].arrays

    before = _values(block)
    outputs = nnx.remat(run)(block, given.arrays)
    variables = _variables(block)
    for path in untouched:  # `nnx.remat` gives them back as other arrays of the trace
        set_array(variables[path], before[path])
    return found[0].unflatten(outputs)


def _variables(module: nnx.Module) -> dict[Any, nnx.Variable]:
    """The variables of a module by path; a shared one once."""
    nodes = nnx.iter_graph(module)
    return {path: node for path, node in nodes if isinstance(node, nnx.Variable)}


def _values(module: nnx.Module) -> dict[Any, Any]:
    return {path: array_of(variable) for path, variable in _variables(module).items()}
