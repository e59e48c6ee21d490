"""Activation checkpointing on JAX, by flax's own `nnx.remat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from deliralike import nest
from deliralike.backends.jax.variables import array_of, set_array


class _Nest:
    """The structure of a nest, and what in it are no arrays."""

    def __init__(self, values: Any) -> None:
        leaves, self.structure = nest.flatten(values)
        self.arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        self.leaves = [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
        self.places = [
            place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)
        ]

    def filled(self, values: Sequence[Any]) -> Any:
        """The nest with these arrays."""
        leaves = [*self.leaves]
        for place, value in zip(self.places, values, strict=True):
            leaves[place] = value
        return nest.unflatten(self.structure, leaves)


def recomputed(
    block: nnx.Module,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """See `Backend.recomputed`; where no gradients are taken, JAX drops nothing."""
    given = _Nest((args, kwargs))
    found: list[_Nest] = []
    untouched: list[Any] = []

    def run(module: nnx.Module, values: list[Any]) -> list[Any]:
        before = _values(module)
        own_args, own_kwargs = given.filled(values)
        found[:] = [_Nest(call(module, *own_args, **own_kwargs))]
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
    return found[0].filled(outputs)


def _variables(module: nnx.Module) -> dict[Any, nnx.Variable]:
    """The variables of a module by path; a shared one once."""
    nodes = nnx.iter_graph(module)
    return {path: node for path, node in nodes if isinstance(node, nnx.Variable)}


def _values(module: nnx.Module) -> dict[Any, Any]:
    return {path: array_of(variable) for path, variable in _variables(module).items()}
