"""The native random streams of random layers, and how they are all seeded at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
from flax import nnx

_alive: WeakKeyDictionary[Chance, None] = WeakKeyDictionary()
_seed = 0
_numbers = itertools.count()


def seed(value: int) -> None:
    """Restart every stream that exists, in the order of creation; streams made later follow from this seed too."""
    global _seed, _numbers
    _seed, _numbers = value, itertools.count()
    for number, stream in enumerate(list(_alive)):
        stream.restart(_key(number))


def _key(number: int) -> jax.Array:
    return jax.random.key_data(jax.random.fold_in(jax.random.key(_seed % 2**63 % 2**32), number))


class Chance(nnx.Pytree):
    """One stream of keys, part of its layer's state, so that ``nnx.jit`` and the optimizers carry it along.

    Every stream starts differently; which numbers it gives depends on `seed` and on how many were made since.
    The key is kept as plain words, which can be copied and pickled.
    """

    def __init__(self) -> None:
        """Start the next stream of the seed in force."""
        self.key = nnx.RngKey(_key(next(_numbers)), tag="chance")
        self.count = nnx.RngCount(jnp.zeros((), jnp.uint32), tag="chance")
        _alive[self] = None

    def __call__(self) -> jax.Array:
        """The next key."""
        key = jax.random.fold_in(jax.random.wrap_key_data(self.key.get_value()), self.count.get_value())
        self.count.set_value(self.count.get_value() + 1)
        return key

    def restart(self, key: jax.Array) -> None:
        """Begin again from a key."""
        self.key.set_value(key)
        self.count.set_value(jnp.zeros((), jnp.uint32))

    def _graph_node_init(self, attributes: Iterable[tuple[Any, Any]]) -> None:
        super()._graph_node_init(attributes)
        if not isinstance(self.count.get_value(), jax.core.Tracer):
            _alive[self] = None  # a copy made by nnx.merge or nnx.clone is seeded like the others

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _alive[self] = None
