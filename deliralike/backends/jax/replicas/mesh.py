"""The mesh of a replicated network's distinct devices.

This module defines what enters a program over the mesh, and what its devices exchange.

In such a program every device runs the same code on values of its own. A *local* value belongs to
one device (the parameters of a replica, its share); all other values are the same everywhere (the
batch, gathered outputs, the loss). `gather` and `take` lead from one kind to the other, and each
is the other's transpose: so gradients, and gradients of gradients, are those of one device, and
come out local where the values are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike.backends.jax import arrays
from deliralike.backends.jax.unstable import Primitive, ad, mlir

AXIS = "devices"


@dataclass(frozen=True)
class ReplicaMesh:
    """The device of each replica, and its slot among those that share the device.

    Replicas are assigned to the distinct devices.

    Attributes:
        device_names: The device of each replica.
    """

    device_names: tuple[str, ...]

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The distinct devices, in the order of their first replica."""
        return tuple(dict.fromkeys(self.device_names))

    @cached_property
    def replicas_by_device(self) -> list[list[int]]:
        """The replicas on each of the distinct devices."""
        replicas: dict[str, list[int]] = {device: [] for device in self.devices}
        for replica, device in enumerate(self.device_names):
            replicas[device].append(replica)
        return list(replicas.values())

    @property
    def slot_count(self) -> int:
        """The most replicas on one device."""
        return max(map(len, self.replicas_by_device))

    def replicas_in_slot(self, slot: int) -> list[int | None]:
        """The replica in a slot of each device; None where the device has fewer."""
        replicas: list[int | None] = []
        for on_device in self.replicas_by_device:
            replicas.append(on_device[slot] if slot < len(on_device) else None)
        return replicas

    def position(self, replica: int) -> tuple[int, int]:
        """The device and the slot of a replica, as numbers."""
        device = self.devices.index(self.device_names[replica])
        return device, self.replicas_by_device[device].index(replica)

    @cached_property
    def device_mesh(self) -> Mesh:
        """The distinct devices as a mesh of JAX's."""
        devices = [*map(arrays.find_device, self.devices)]
        return Mesh(np.array(devices), (AXIS,))

    @cached_property
    def everywhere(self) -> NamedSharding:
        """One array on each device."""
        return NamedSharding(self.device_mesh, PartitionSpec())

    def join(self, values: Sequence[jax.Array]) -> jax.Array:
        """An array of each device as one local value of a program; nothing is copied."""
        shape = values[0].shape
        return jax.make_array_from_single_device_arrays(
            shape, self.everywhere, list(values)
        )

    def split(self, value: jax.Array) -> list[jax.Array]:
        """The array of each device that a program gave as one local value; nothing is copied."""
        shards = {shard.device: shard.data for shard in value.addressable_shards}
        return [shards[device] for device in self.device_mesh.devices.flat]

    def put_everywhere(self, values: Sequence[Any]) -> list[jax.Array]:
        """Values for every device alike."""
        return jax.device_put(list(values), self.everywhere)

    def compile(
        self, body: Callable[..., Any], is_whole: bool = False
    ) -> Callable[..., Any]:
        """Compile one program over all devices.

        Arguments and results are local values, or the same everywhere.

        Args:
            is_whole: Whether it computes on whole arrays instead, which XLA distributes as `shard`
                says.
        """
        # on one device a local value is one that is the same everywhere
        if is_whole or len(self.devices) == 1:
            return arrays.jit(body)
        spec = PartitionSpec()
        mapped = jax.shard_map(
            body, mesh=self.device_mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        return arrays.jit(mapped)

    # Inside of a program
    # ----------------------------------------------------------------------------------------------

    def local_number(self, numbers: Sequence[int]) -> jax.Array:
        """The number that belongs to the device that computes."""
        device = 0 if len(self.devices) == 1 else lax.axis_index(AXIS)
        return jnp.asarray(numbers)[device]

    def shard(self, value: jax.Array, dim: int) -> jax.Array:
        """An array of a program that computes on whole arrays, sharded along an axis."""
        spec = PartitionSpec(*[None] * dim, AXIS)
        return lax.with_sharding_constraint(
            value, NamedSharding(self.device_mesh, spec)
        )

    def replicate(self, values: Any) -> Any:
        """Whole arrays, one on each device."""
        return lax.with_sharding_constraint(values, self.everywhere)

    def gather(self, value: jax.Array) -> jax.Array:
        """A local value of every device, along a new first axis, on all of them."""
        if len(self.devices) == 1:
            return value[None]
        return _gather.bind(value, axis=AXIS)

    def all_reduce(
        self, by_slot: Sequence[jax.Array], positions: Sequence[tuple[int, int]]
    ) -> list[jax.Array]:
        """Return for each slot the sum of local values over some replicas, in their order.

        Gradients are summed in the same way.

        Args:
            positions: The device and the slot of each of these replicas.
        """
        axis = None if len(self.devices) == 1 else AXIS
        return _sum.bind(*by_slot, positions=tuple(positions), axis=axis)

    def take(self, values: jax.Array) -> jax.Array:
        """Each device's own along the first axis, as a local value."""
        if len(self.devices) == 1:
            return values[0]
        return _take.bind(values, axis=AXIS)


def _compute_sum(
    *by_slot: jax.Array, positions: tuple[tuple[int, int], ...], axis: str | None
) -> list[jax.Array]:
    gathered = []
    for value in by_slot:
        gathered.append(value[None] if axis is None else lax.all_gather(value, axis))
    each = [gathered[slot][device] for device, slot in positions]
    return [sum(each[1:], start=each[0])] * len(by_slot)


def _sum_type(*by_slot: Any, positions: tuple, axis: str | None) -> list[Any]:
    return [jax.core.ShapedArray(x.shape, x.dtype) for x in by_slot]


def _transpose_sum(
    cotangents: Sequence[Any], *by_slot: Any, positions: tuple, axis: str | None
) -> list[jax.Array]:
    # the map is its own transpose
    return _sum.bind(
        *map(ad.instantiate_zeros, cotangents), positions=positions, axis=axis
    )


_sum = Primitive("sum_of_replicas")
_sum.multiple_results = True
_sum.def_abstract_eval(_sum_type)
mlir.register_lowering(_sum, mlir.lower_fun(_compute_sum, multiple_results=True))
ad.deflinear2(_sum, _transpose_sum)


def _compute_gather(value: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(value, axis)


def _gather_type(value: Any, *, axis: str) -> Any:
    return jax.core.ShapedArray((lax.axis_size(axis), *value.shape), value.dtype)


def _transpose_gather(cotangent: Any, value: Any, *, axis: str) -> tuple[Any]:
    return (_take.bind(cotangent, axis=axis),)


_gather = Primitive("gather_replicas")
_gather.def_abstract_eval(_gather_type)
mlir.register_lowering(_gather, mlir.lower_fun(_compute_gather, multiple_results=False))
ad.deflinear2(_gather, _transpose_gather)


def _compute_take(values: jax.Array, *, axis: str) -> jax.Array:
    device = lax.axis_index(axis)
    return lax.dynamic_index_in_dim(values, device, 0, keepdims=False)


def _take_type(values: Any, *, axis: str) -> Any:
    return jax.core.ShapedArray(values.shape[1:], values.dtype)


def _transpose_take(cotangent: Any, values: Any, *, axis: str) -> tuple[Any]:
    return (_gather.bind(cotangent, axis=axis),)


_take = Primitive("take_replica")
_take.def_abstract_eval(_take_type)
mlir.register_lowering(_take, mlir.lower_fun(_compute_take, multiple_results=False))
ad.deflinear2(_take, _transpose_take)
