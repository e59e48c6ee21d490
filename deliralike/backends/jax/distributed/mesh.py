"""The mesh of all processes' devices, and the arrays that enter and leave programs over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike.backends.jax import arrays
from deliralike.backends.jax.distributed.process_group import AXIS, JaxProcessGroup


class ProcessMesh:
    """One device of each process.

    Each process holds values that are the same in all processes as ordinary arrays; they are arrays
    of the mesh within a program only.

    Attributes:
        device_mesh: The devices, along the axis ``"processes"``.
    """

    def __init__(self, processes: JaxProcessGroup, device: str) -> None:
        """Build the mesh of the devices that the processes name."""
        self.count, self.own = processes.count, arrays.find_device(device)
        by_number = {each.id: each for each in jax.devices(self.own.platform)}
        numbers = processes.all_gather_object("the number of the device", self.own.id)
        devices = [by_number[number] for number in numbers]
        self.device_mesh = Mesh(np.array(devices), (AXIS,))
        self.everywhere = self.sharding(())

    def sharding(self, spec: Sequence[str | None]) -> NamedSharding:
        """The sharding of an array along the axes that the spec names."""
        return NamedSharding(self.device_mesh, PartitionSpec(*spec))

    def rows(self, dim: int) -> NamedSharding:
        """The sharding of an array along its axis of samples."""
        return self.sharding([None] * dim + [AXIS])

    def join(self, share: jax.Array, dim: int) -> jax.Array:
        """Shares of equal size as one array, one after another along an axis; nothing is sent."""
        shape = list(share.shape)
        shape[dim] *= self.count
        return jax.make_array_from_single_device_arrays(
            tuple(shape), self.rows(dim), [arrays.move(share, self.own)]
        )

    def compile(
        self, function: Callable[..., Any], **options: Any
    ) -> Callable[..., Any]:
        """A function as one program over the mesh, with the meaning that it has on whole arrays."""

        def with_constraints(*arguments: Any) -> Any:
            return lax.with_sharding_constraint(function(*arguments), self.everywhere)

        program = arrays.jit(with_constraints, **options)

        def run(*arguments: Any) -> Any:
            results = program(*jax.tree.map(self._to_mesh, arguments))
            if self.own.platform == "cpu":
                # gloo mixes up the messages of programs that run at the same time
                jax.block_until_ready(results)
            return jax.tree.map(arrays.local_shard, results)

        return run

    def _to_mesh(self, value: Any) -> Any:
        if not isinstance(value, jax.Array) or not value.is_fully_addressable:
            return value  # numbers of the host are the same everywhere
        own = arrays.move(value, self.own)
        return jax.make_array_from_single_device_arrays(
            value.shape, self.everywhere, [own]
        )
