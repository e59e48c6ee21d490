"""The native random streams of random layers, and the seed of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled import inner
from deliralike.backends.jax.network import walk
from deliralike.errors import StateError

# Every stream that is still in use, with its number. It keeps that number however many streams
# before it have been forgotten: when those are collected is up to Python.
_numbers: WeakKeyDictionary[RngStream, int] = WeakKeyDictionary()
_seed = 0
_made = 0  # streams since the seed was set
_copied = 0  # copies of streams since the seed was set
_FIRST_COPY = 2**31


def seed(seed: int) -> None:
    """Restart every existing random stream, each by its number since the seed before.

    Streams that are made later follow from this seed too.
    """
    global _seed, _made, _copied
    _seed, _made, _copied = seed, 0, 0
    for stream, number in list(_numbers.items()):
        stream.restart(_key(number))


def _key(number: int) -> jax.Array:
    key = jax.random.key(_seed % 2**63 % 2**32)
    return jax.random.key_data(jax.random.fold_in(key, number))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Number streams that are made afterwards as if none had been made within."""
    global _seed, _made, _copied
    before = _seed, _made, _copied
    try:
        yield
    finally:
        _seed, _made, _copied = before


@contextmanager
def dropping_by(factors: Callable[[tuple[int, ...], float], np.ndarray]) -> Iterator[None]:
    """Let flax's own dropout multiply by given factors; see `Backend`."""
    own = nnx.Dropout.__call__

    def dropout(layer: nnx.Dropout, inputs: Any, **keywords: Any) -> Any:
        given = keywords.get("deterministic")
        if layer.rate == 0.0 or (layer.deterministic if given is None else given):
            return own(layer, inputs, **keywords)
        shape = list(inputs.shape)
        for dim in layer.broadcast_dims:
            shape[dim] = 1
        return inputs * jnp.asarray(factors(tuple(shape), layer.rate), inputs.dtype)

    nnx.Dropout.__call__ = dropout
    try:
        yield
    finally:
        nnx.Dropout.__call__ = own


def state(network: Any) -> dict[str, Any]:
    """Return the positions of a network's random streams, including flax's own.

    The state also has what streams that are made later follow from.
    """
    return {"seed": _seed, "made": _made, "streams": words(network)}


def load_state(network: Any, state: Mapping[str, Any]) -> None:
    """Continue the random streams from a state.

    Raises:
        StateError: The network has other streams; nothing has changed.
    """
    global _seed, _made
    streams = _streams(network)
    if streams.keys() != state["streams"].keys():
        saved, present = ", ".join(state["streams"]), ", ".join(streams)
        raise StateError(
            f"the random state has the streams {saved or '(none)'}, and the "
            f"network has {present or '(none)'}"
        )
    _seed, _made = state["seed"], state["made"]
    follow(network, state["streams"])


def words(network: Any) -> dict[str, np.ndarray]:
    """The positions of a network's random streams, as plain words by path."""
    positions = {}
    for path, stream in _streams(network).items():
        positions[path] = np.array(_words(stream.get_value()))
    return positions


def follow(network: Any, words: Mapping[str, np.ndarray]) -> None:
    """Continue a network's random streams from words of the same paths."""
    for path, stream in _streams(network).items():
        stream.set_value(_like(words[path], stream.get_value()))


def _streams(network: Any) -> dict[str, nnx.RngState]:
    """The keys and counts of a network by path; a replicated one has its root's."""
    root = network.root if network.parallelism.is_replicated else network
    return {path: node for path, node in walk(root) if isinstance(node, nnx.RngState)}


def _is_typed(value: jax.Array) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _words(value: jax.Array) -> jax.Array:
    if _is_typed(value):
        return jax.random.key_data(value)
    return value


def _like(words: np.ndarray, old: jax.Array) -> jax.Array:
    """Words in the form of an older value, on its device."""
    new = arrays.put_like(words, _words(old))
    if _is_typed(old):
        return jax.random.wrap_key_data(new, impl=jax.random.key_impl(old))
    return new


class RngStream(nnx.Pytree):
    """One stream of random keys, which is part of its layer's state.

    So ``nnx.jit`` and the optimizers carry it along.

    Every stream starts differently; which numbers it gives depends on `seed` and on how many were
    made since. The key is kept as plain words, which can be copied and pickled.
    """

    def __init__(self) -> None:
        """Start the next stream of the seed in force."""
        global _made
        self.key = nnx.RngKey(_key(_made), tag="chance")
        self.count = nnx.RngCount(jnp.zeros((), jnp.uint32), tag="chance")
        _numbers[self] = _made
        _made += 1

    def __call__(self) -> jax.Array:
        """The next key."""
        key = jax.random.wrap_key_data(self.key.get_value())
        count = self.count.get_value()
        inner.store(self.count, count + 1)
        return jax.random.fold_in(key, count)

    def restart(self, key: jax.Array) -> None:
        """Begin again from a key."""
        self.key.set_value(key)
        self.count.set_value(jnp.zeros((), jnp.uint32))

    def _graph_node_init(self, attributes: Iterable[tuple[Any, Any]]) -> None:
        super()._graph_node_init(attributes)
        if not isinstance(self.count.get_value(), jax.core.Tracer):
            _number_copy(self)  # nnx.merge or nnx.clone made it

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _number_copy(self)


def _number_copy(stream: RngStream) -> None:
    """Let a copy be seeded like the streams that were made, but never as one of them."""
    global _copied
    _numbers[stream] = _FIRST_COPY + _copied
    _copied += 1
