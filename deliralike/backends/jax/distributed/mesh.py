"""The mesh of all processes' devices: what enters a program over it, and what comes out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import tree_map_with_path as map_with_path

from deliralike.backends.jax import arrays
from deliralike.backends.jax.distributed.process_group import AXIS, JaxProcessGroup
from deliralike.backends.jax.update_rules import parameter_of


class ProcessMesh:
    """One device of each process.

    What is the same in all processes each of them holds by itself, as an ordinary array; only in a
    program it is one array of the mesh. The parameters of a spread network, and what goes with
    them, are arrays of the mesh always.

    Attributes:
        mesh: The devices, along the axis ``"processes"``.
        spread: The shape and the place of each parameter of a spread network, by its name.
    """

    def __init__(self, processes: JaxProcessGroup, device: str) -> None:
        """Every process names its device."""
        self.count, self.own = processes.count, arrays.find_device(device)
        by_number = {each.id: each for each in jax.devices(self.own.platform)}
        numbers = processes.all_gather_object("the number of the device", self.own.id)
        self.mesh = Mesh(np.array([by_number[number] for number in numbers]), (AXIS,))
        self.everywhere = self.sharding(())
        self.spread: dict[str, tuple[tuple[int, ...], NamedSharding]] = {}

    def sharding(self, spec: Sequence[str | None]) -> NamedSharding:
        """The place of an array of which the axes named in the spec are spread."""
        return NamedSharding(self.mesh, PartitionSpec(*spec))

    def rows(self, dim: int) -> NamedSharding:
        """The place of an array whose samples are spread."""
        return self.sharding([None] * dim + [AXIS])

    def joined(self, share: jax.Array, dim: int) -> jax.Array:
        """Shares of equal size as one array, one after another along an axis; nothing is sent."""
        shape = tuple(
            size * self.count if axis == dim else size for axis, size in enumerate(share.shape)
        )
        return jax.make_array_from_single_device_arrays(
            shape, self.rows(dim), [arrays.moved(share, self.own)]
        )

    def compiled(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """A function as one program over the mesh, with the meaning that it has on whole arrays."""
        program = arrays.jit(
            lambda *given: map_with_path(self._laid_out, function(*given)), **options
        )

        def run(*given: Any) -> Any:
            results = program(*jax.tree.map(self._entered, given))
            if self.own.platform == "cpu":
                jax.block_until_ready(
                    results
                )  # gloo mixes up the messages of programs that run at the same time
            return map_with_path(self._left, results)

        return run

    def _entered(self, value: Any) -> Any:
        if not isinstance(value, jax.Array) or not value.is_fully_addressable:
            return value  # numbers of the host are the same everywhere
        own = arrays.moved(value, self.own)
        return jax.make_array_from_single_device_arrays(value.shape, self.everywhere, [own])

    def _laid_out(self, path: tuple, value: Any) -> Any:
        """Place a result on the mesh.

        What belongs to a sharded parameter is placed as the parameter is; all else is replicated.
        """
        return lax.with_sharding_constraint(value, self._place(path, value) or self.everywhere)

    def _left(self, path: tuple, value: Any) -> Any:
        return value if self._place(path, value) else value.addressable_shards[0].data

    def _place(self, path: tuple, value: Any) -> NamedSharding | None:
        shape, place = self.spread.get(parameter_of(path) or "", (None, None))
        return place if jnp.shape(value) == shape else None
