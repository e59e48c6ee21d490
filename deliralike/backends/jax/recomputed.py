"""Activation checkpointing on JAX, by flax's own `nnx.remat`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from deliralike import nest


class _Nest:
    """The structure of a nest, and what in it are no arrays."""

    def __init__(self, values: Any) -> None:
        leaves, self.structure = nest.flatten(values)
        self.arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        self.leaves = [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def filled(self, values: Sequence[Any]) -> Any:
        """The nest with these arrays."""
        leaves = [*self.leaves]
        for place, value in zip(self.places, values, strict=True):
            leaves[place] = value
        return nest.unflatten(self.structure, leaves)


def recomputed(
    block: nnx.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """See `Backend.recomputed`; where no gradients are taken, JAX drops nothing."""
    given = _Nest((args, kwargs))
    found: list[_Nest] = []

    def run(module: nnx.Module, values: list[Any]) -> list[Any]:
        own_args, own_kwargs = given.filled(values)
        found[:] = [_Nest(call(module, *own_args, **own_kwargs))]
        return found[0].arrays

    outputs = nnx.remat(run)(block, given.arrays)
    return found[0].filled(outputs)
