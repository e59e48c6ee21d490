"""The replicas beside the root.

They are copies with storage of their own that follow the changes on the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from deliralike.backends.jax import arrays
from deliralike.backends.jax.compiled.program import copied_around
from deliralike.backends.jax.network import walk

_BOOKKEEPING = "_pytree__"


class Mirror:
    """One replica: a copy of the root on a device.

    Blocks, settings, training mode and frozen parameters follow the root by `follow`; values do
    not. What a replica's blocks set on themselves stays theirs.

    Attributes:
        network: The copy.
    """

    def __init__(self, root: Any, device: str, index: int) -> None:
        """Copy a network; its values and random state stay as they are."""
        self.device, self.index = arrays.find_device(device), index
        self._copies: dict[int, Any] = {}
        self._seen: dict[
            int, tuple[Any, dict[str, Any]]
        ] = {}  # holds the originals, so that no id is used twice
        self._streams: dict[int, Any] = {}
        self.network = self._copy(root)
        self.follow(root)

    def of(self, variable: nnx.Variable) -> nnx.Variable:
        """The replica's own variable in the place of one of the root's."""
        return self._copies[id(variable)]

    def follow(self, root: Any) -> None:
        """Copy the blocks, settings and flags that have changed on the root.

        The changes are those since the last call.
        """
        for _, node in walk(root):
            now = node.get_metadata() if isinstance(node, nnx.Variable) else _settings(node)
            before = self._seen.get(id(node), (None, {}))[1]
            if not _same(now, before):
                self._take_over(node, now, before)
            self._seen[id(node)] = (node, dict(now))

    def streams(self) -> list[nnx.Variable]:
        """The root's random keys and counts."""
        return [node for node, _ in self._seen.values() if isinstance(node, nnx.RngState)]

    def store(self, variables: Sequence[nnx.Variable], values: Sequence[Any]) -> None:
        """Copy values into the replica's own variables in the places of these, all at once."""
        moved = jax.device_put(list(values), self.device, may_alias=False)
        for variable, value in zip(variables, moved, strict=True):
            self.of(variable).set_value(value)

    def draw_otherwise(self, variables: Iterable[nnx.Variable]) -> None:
        """Let random streams follow the root's, with different keys for each replica.

        The counts are the root's; the keys are derived from the root's.
        """
        new = [
            variable
            for variable in variables
            if self._streams.get(id(variable)) is not variable.get_value()
        ]
        self._streams |= {id(variable): variable.get_value() for variable in new}
        self.store(new, [self._stream(variable) for variable in new])

    def _stream(self, variable: nnx.Variable) -> Any:
        value = variable.get_value()
        return derived_key(value, self.index) if isinstance(variable, nnx.RngKey) else value

    def _take_over(self, node: Any, now: dict[str, Any], before: dict[str, Any]) -> None:
        if isinstance(node, nnx.Variable):
            self._flag(self.of(node), now, before)
            return
        held = vars(self._copies[id(node)])
        for name in (name for name in before if name not in now):
            held.pop(name, None)
        held.update(
            {
                name: self._copy(value)
                for name, value in now.items()
                if before.get(name, held) is not value
            }
        )

    def _flag(self, variable: nnx.Variable, now: dict[str, Any], before: dict[str, Any]) -> None:
        for name in (name for name in before if name not in now and variable.has_metadata(name)):
            variable.del_metadata(name)
        changed = {
            name: value for name, value in now.items() if before.get(name, self) is not value
        }
        if changed:
            variable.set_metadata(**changed)

    def _copy(self, value: Any) -> Any:
        return copied_around(value, self._copies, self._own)

    def _own(self, variable: nnx.Variable) -> nnx.Variable:
        return variable.copy(jax.device_put(variable.get_value(), self.device, may_alias=False))


def _settings(node: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(node).items() if name != f"{_BOOKKEEPING}state"}


def _same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    return now.keys() == before.keys() and all(now[name] is before[name] for name in now)


def derived_key(key: jax.Array, index: int) -> jax.Array:
    """Another key, in the form of the first: plain words, or a typed key."""
    is_typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    other = jax.random.fold_in(key if is_typed else jax.random.wrap_key_data(key), np.uint32(index))
    return other if is_typed else jax.random.key_data(other)
