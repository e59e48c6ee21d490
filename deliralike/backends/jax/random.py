"""The native random streams of random layers, and the seed of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled import nested_gradients
from deliralike.backends.jax.network import walk
from deliralike.errors import StateError
from deliralike.network.core import unreplicated

# Every stream that is still in use, with a number of its own.
_streams_in_use: WeakKeyDictionary[RngStream, int] = WeakKeyDictionary()
# Those that have drawn nothing since the seed was set: their first draw starts them.
waiting: WeakSet[RngStream] = WeakSet()
_seed = 0
_started = 0  # streams since the seed was set
_FIRST_UNSTARTED = 2**31
_next_number = count()


def seed(seed: int) -> None:
    """Restart every existing random stream in the order in which they draw from now on.

    So masks depend on the draws since the seed alone, and not on what was built before it. Streams
    that are made later follow from this seed too.
    """
    global _seed, _started
    _seed, _started = seed, 0
    for stream, number in list(_streams_in_use.items()):
        _wait(stream, number)


def _wait(stream: RngStream, number: int) -> None:
    """Let a stream start at its first draw; a program of the user's own may draw from it before."""
    _streams_in_use[stream] = number
    stream.restart(_key(_FIRST_UNSTARTED + number))
    waiting.add(stream)


def start(streams: Iterable[RngStream]) -> None:
    """Start those of the streams that are about to draw for the first time since the seed."""
    global _started
    for stream in streams:
        if stream in waiting and not arrays.is_traced(stream.key.get_value()):
            waiting.discard(stream)
            stream.restart(_key(_started))
            _started += 1


def _key(number: int) -> jax.Array:
    key = jax.random.key(_seed % 2**63 % 2**32)
    return jax.random.key_data(jax.random.fold_in(key, number))


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Start streams afterwards as if none had been started within."""
    global _seed, _started
    before = _seed, _started
    waiting_before = list(waiting)
    try:
        yield
    finally:
        _seed, _started = before
        waiting.update(waiting_before)


def state(network: Any) -> dict[str, Any]:
    """Return the positions of a network's random streams, including flax's own.

    The state also has what streams that are made later follow from.
    """
    positions = words(network)
    return {"seed": _seed, "made": _started, "streams": positions}


def load_state(network: Any, state: Mapping[str, Any]) -> None:
    """Continue the random streams from a state.

    Raises:
        StateError: The network has other streams; nothing has changed.
    """
    global _seed, _started
    streams = _streams(network)
    if streams.keys() != state["streams"].keys():
        saved, present = ", ".join(state["streams"]), ", ".join(streams)
        raise StateError(
            f"the random state has the streams {saved or '(none)'}, and the "
            f"network has {present or '(none)'}"
        )
    _seed, _started = state["seed"], state["made"]
    follow(network, state["streams"])


def words(network: Any) -> dict[str, np.ndarray]:
    """The positions of a network's random streams, as plain words by path."""
    start(own_streams(unreplicated(network)))
    positions = {}
    for path, stream in _streams(network).items():
        positions[path] = np.array(_words(stream.get_value()))
    return positions


def follow(network: Any, words: Mapping[str, np.ndarray]) -> None:
    """Continue a network's random streams from words of the same paths."""
    for stream in own_streams(unreplicated(network)):
        waiting.discard(stream)
    for path, stream in _streams(network).items():
        stream.set_value(_like(words[path], stream.get_value()))


def _streams(network: Any) -> dict[str, nnx.RngState]:
    """The keys and counts of a network by path; a replicated one has its root's."""
    nodes = walk(unreplicated(network))
    return {path: node for path, node in nodes if isinstance(node, nnx.RngState)}


def own_streams(network: Any) -> list[RngStream]:
    """The streams of the random layers of this package in a network."""
    return [node for _, node in walk(network) if isinstance(node, RngStream)]


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

    Every stream starts differently; which numbers it gives depends on `seed` and on how many have
    started to draw since. The key is kept as plain words, which can be copied and pickled. A deep
    copy is a stream of its own.
    """

    def __init__(self) -> None:
        """Make a stream that starts at its first draw."""
        number = next(_next_number)
        self.key = nnx.RngKey(_key(_FIRST_UNSTARTED + number), tag="chance")
        self.count = nnx.RngCount(jnp.zeros((), jnp.uint32), tag="chance")
        _streams_in_use[self] = number
        waiting.add(self)

    def __call__(self) -> jax.Array:
        """The next key."""
        start([self])
        key = jax.random.wrap_key_data(self.key.get_value())
        count = self.count.get_value()
        nested_gradients.store(self.count, count + 1)
        return jax.random.fold_in(key, count)

    def restart(self, key: jax.Array) -> None:
        """Begin again from a key, on the device of the former one."""
        for variable, value in ((self.key, key), (self.count, np.zeros((), np.uint32))):
            variable.set_value(arrays.put_like(value, variable.get_value()))

    def _graph_node_init(self, attributes: Iterable[tuple[Any, Any]]) -> None:
        super()._graph_node_init(attributes)
        if not arrays.is_traced(self.count.get_value()):
            _streams_in_use[self] = next(_next_number)  # nnx.merge or nnx.clone made it

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _streams_in_use[self] = next(_next_number)

    def __deepcopy__(self, memo: dict[int, Any]) -> RngStream:
        """Return another stream, on the same device."""
        twin = RngStream()
        for own, other in ((self.key, twin.key), (self.count, twin.count)):
            other.set_value(arrays.put_like(other.get_value(), own.get_value()))
            memo[id(own)] = other
        memo[id(self)] = twin
        return twin
