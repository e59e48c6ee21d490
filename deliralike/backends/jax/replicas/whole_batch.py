"""Programs that compute on the whole batch, where the replicas share batch statistics.

XLA distributes the work over the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike import nest
from deliralike.backends.jax import arrays

_AXIS = "devices"


class WholeBatch:
    """The distinct devices of a replicated network, over which the samples are distributed.

    Attributes:
        dim: The axis that counts samples.
    """

    def __init__(self, devices: Sequence[str], dim: int) -> None:
        """Take the device of each replica."""
        distinct = [*map(arrays.find_device, dict.fromkeys(devices))]
        self._mesh, self.dim = Mesh(np.array(distinct), (_AXIS,)), dim

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function as one program over the devices; its results are on the first one."""
        everywhere = NamedSharding(self._mesh, PartitionSpec())

        def replicated(*arguments: Any) -> Any:
            with arrays.draw_on_each_device(self._mesh):
                results = function(*arguments)
            return lax.with_sharding_constraint(results, everywhere)

        program = arrays.jit(replicated)

        def run(*arguments: Any) -> Any:
            results = program(*jax.device_put(arguments, everywhere))
            return jax.tree.map(arrays.local_shard, results)

        return run

    def shard(self, arguments: Any) -> Any:
        """Return the arguments with every array sharded along the axis of samples."""
        if arrays.is_op_by_op():  # JAX shards evenly then, or not at all
            return arguments
        return nest.map(self._shard, arguments)

    def _shard(self, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not -leaf.ndim <= self.dim < leaf.ndim:
            return leaf
        spec = PartitionSpec(*[None] * (self.dim % leaf.ndim), _AXIS)
        return lax.with_sharding_constraint(leaf, NamedSharding(self._mesh, spec))


@dataclass(frozen=True)
class OnWholeBatch:
    """A loss function whose network computes on the whole batch; equal ones share a program."""

    function: Callable[..., Any]

    def __call__(self, network: Any, *batch: Any) -> Any:
        """Return the function's result; `network` is the copy in a program."""
        vars(network)["_inside"] = network.whole_batch
        return self.function(network, *batch)
