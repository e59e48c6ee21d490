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
from deliralike.backends.jax.compiled.copies import copy_around
from deliralike.backends.jax.compiled.program import (
    ModuleVariables,
    Named,
    Values,
)
from deliralike.backends.jax.network import walk
from deliralike.backends.jax.unstable import NNX_STATE
from deliralike.backends.jax.variables import array_of, set_array


class ReplicaCopy:
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
        # holds the originals, so that no id is used twice
        self._records: dict[int, tuple[Any, Named]] = {}
        self._streams: dict[int, Any] = {}
        self.network = self._copy(root)
        self.follow(root)

    def of(self, variable: nnx.Variable) -> nnx.Variable:
        """The replica's own variable in the place of one of the root's."""
        return self._copies[id(variable)]

    def values(self, variables: ModuleVariables) -> Values:
        """The replica's own values in the places of the root's."""

        def read(named: dict[str, nnx.Variable]) -> Named:
            return {name: array_of(self.of(each)) for name, each in named.items()}

        others = [array_of(self.of(each)) for each in variables.others]
        return read(variables.parameters), read(variables.frozen), others

    def follow(self, root: Any) -> None:
        """Copy the blocks, settings and flags that have changed on the root.

        The changes are those since the last call.
        """
        for _, node in walk(root):
            now = _settings(node)
            _, before = self._records.get(id(node), (None, {}))
            if not _is_same(now, before):
                self._apply_changes(node, now, before)
            self._records[id(node)] = (node, now)

    def store(self, variables: Sequence[nnx.Variable], values: Sequence[Any]) -> None:
        """Copy values into the replica's own variables in the places of these, all at once."""
        if not variables:
            return
        copies = jax.device_put(list(values), self.device, may_alias=False)
        for variable, value in zip(variables, copies, strict=True):
            set_array(self.of(variable), value)

    def derive_streams(self, variables: Iterable[nnx.Variable]) -> None:
        """Let random streams follow the root's, with different keys for each replica.

        The counts are the root's; the keys are derived from the root's.
        """
        changed, values = [], []
        for variable in variables:
            value = array_of(variable)
            if self._streams.get(id(variable)) is value:
                continue
            self._streams[id(variable)] = value
            if isinstance(variable, nnx.RngKey):
                value = _derived_key(value, self.index)
            changed.append(variable)
            values.append(value)
        self.store(changed, values)

    def _apply_changes(self, node: Any, now: Named, before: Named) -> None:
        removed = [name for name in before if name not in now]
        changed = {}
        for name, value in now.items():
            if name not in before or before[name] is not value:
                changed[name] = value
        if isinstance(node, nnx.Variable):
            _set_metadata(self.of(node), changed, removed)
            return
        attributes = vars(self._copies[id(node)])
        for name in removed:
            attributes.pop(name, None)
        for name, value in changed.items():
            attributes[name] = self._copy(value)

    def _copy(self, value: Any) -> Any:
        return copy_around(value, self._copies, self._copy_variable)

    def _copy_variable(self, variable: nnx.Variable) -> nnx.Variable:
        value = jax.device_put(array_of(variable), self.device, may_alias=False)
        return variable.copy(value)


def _set_metadata(variable: nnx.Variable, changed: Named, removed: list[str]) -> None:
    for name in removed:
        if variable.has_metadata(name):
            variable.del_metadata(name)
    if changed:
        variable.set_metadata(**changed)


def _settings(node: Any) -> Named:
    """A copy of a variable's metadata, or of a module's attributes."""
    if isinstance(node, nnx.Variable):
        return dict(node.get_metadata())
    settings = dict(vars(node))
    settings.pop(NNX_STATE, None)
    return settings


def _is_same(now: Named, before: Named) -> bool:
    if now.keys() != before.keys():
        return False
    return all(value is before[name] for name, value in now.items())


def _derived_key(key: jax.Array, index: int) -> jax.Array:
    """Another key, in the form of the first: plain words, or a typed key."""
    if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key):
        return jax.random.fold_in(key, np.uint32(index))
    typed = jax.random.wrap_key_data(key)
    other = jax.random.fold_in(typed, np.uint32(index))
    return jax.random.key_data(other)
