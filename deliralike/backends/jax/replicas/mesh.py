"""The mesh of a replicated network's distinct devices.

This module defines what enters a program over the mesh, and what its devices exchange.

In such a program every device runs the same code on values of its own. A *local* value belongs to
one device (the parameters of a replica, its share); all other values are the same everywhere (the
batch, gathered outputs, the loss). `gathered` and `taken` lead from one kind to the other, and each
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
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike.backends.jax import arrays

AXIS = "devices"


@dataclass(frozen=True)
class Seats:
    """The device of each replica, and its position among those that share the device.

    Replicas are assigned to the distinct devices.

    Attributes:
        places: The device of each replica by name.
    """

    places: tuple[str, ...]

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The distinct devices, in the order of their first replica."""
        return tuple(dict.fromkeys(self.places))

    @cached_property
    def rows(self) -> list[list[int]]:
        """Replicas by device: row d lists those on device d."""
        return [
            [r for r, place in enumerate(self.places) if place == device] for device in self.devices
        ]

    @property
    def slots(self) -> int:
        """The most replicas on one device."""
        return max(map(len, self.rows))

    def column(self, slot: int) -> list[int | None]:
        """The replica of each device that has a number there; None where the device has fewer."""
        return [row[slot] if slot < len(row) else None for row in self.rows]

    def seat(self, replica: int) -> tuple[int, int]:
        """The device and the slot of a replica."""
        device = self.devices.index(self.places[replica])
        return device, self.rows[device].index(replica)

    @cached_property
    def mesh(self) -> Mesh:
        """The distinct devices."""
        return Mesh(np.array([arrays.find_device(name) for name in self.devices]), (AXIS,))

    @cached_property
    def everywhere(self) -> NamedSharding:
        """One array on each device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def joined(self, values: Sequence[jax.Array]) -> jax.Array:
        """An array of each device as one local value of a program; nothing is copied."""
        return jax.make_array_from_single_device_arrays(
            values[0].shape, self.everywhere, list(values)
        )

    def spread(self, values: Sequence[Any]) -> list[jax.Array]:
        """Values for every device alike."""
        return jax.device_put(list(values), self.everywhere)

    def find(self, device: str) -> jax.Device:
        """The device of a name."""
        return arrays.find_device(device)

    def parted(self, value: jax.Array) -> list[jax.Array]:
        """The array of each device that a program gave as one local value; nothing is copied."""
        by_device = {shard.device: shard.data for shard in value.addressable_shards}
        return [by_device[device] for device in self.mesh.devices.flat]

    def compiled(self, body: Callable[..., Any], is_whole: bool = False) -> Callable[..., Any]:
        """Compile one program over all devices.

        Arguments and results are local values, or the same everywhere.

        Args:
            is_whole: Whether it computes on whole arrays instead, which XLA shares out as
                `laid_out` says.
        """
        if (
            is_whole or len(self.devices) == 1
        ):  # on one device a local value is one that is the same everywhere
            return arrays.jit(body)
        spec = PartitionSpec()
        return arrays.jit(
            jax.shard_map(body, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)
        )

    # Inside of a program
    # ---------------------------------------------------------------------------------------------

    def of_this_device(self, numbers: Sequence[int]) -> jax.Array:
        """The number that belongs to the device that computes."""
        return jnp.asarray(numbers)[0 if len(self.devices) == 1 else lax.axis_index(AXIS)]

    def laid_out(self, value: jax.Array, dim: int) -> jax.Array:
        """An array of a program that computes on whole arrays, shared out along an axis."""
        return lax.with_sharding_constraint(
            value, NamedSharding(self.mesh, PartitionSpec(*[None] * dim, AXIS))
        )

    def replicated(self, values: Any) -> Any:
        """Whole arrays, one on each device."""
        return lax.with_sharding_constraint(values, self.everywhere)

    def gathered(self, value: jax.Array) -> jax.Array:
        """A local value of every device, along a new first axis, on all of them."""
        return value[None] if len(self.devices) == 1 else _gather.bind(value, axis=AXIS)

    def totals(
        self, by_slot: Sequence[jax.Array], seats: Sequence[tuple[int, int]]
    ) -> list[jax.Array]:
        """Return for each slot the sum of local values over some seats, in their order.

        Gradients are summed in the same way.
        """
        axis = None if len(self.devices) == 1 else AXIS
        return _sum.bind(*by_slot, seats=tuple(seats), axis=axis)

    def taken(self, values: jax.Array) -> jax.Array:
        """Each device's own along the first axis, as a local value."""
        return values[0] if len(self.devices) == 1 else _take.bind(values, axis=AXIS)


def _summing(
    *by_slot: jax.Array, seats: tuple[tuple[int, int], ...], axis: str | None
) -> list[jax.Array]:
    gathered = [value[None] if axis is None else lax.all_gather(value, axis) for value in by_slot]
    each = [gathered[slot][device] for device, slot in seats]
    return [sum(each[1:], start=each[0])] * len(by_slot)


def _sum_of_cotangents(
    cotangents: Sequence[Any], *by_slot: Any, seats: tuple, axis: str | None
) -> list[jax.Array]:
    return _sum.bind(
        *map(ad.instantiate_zeros, cotangents), seats=seats, axis=axis
    )  # the map is its own transpose


_sum = Primitive("sum_of_replicas")
_sum.multiple_results = True
_sum.def_abstract_eval(
    lambda *xs, seats, axis: [jax.core.ShapedArray(x.shape, x.dtype) for x in xs]
)
mlir.register_lowering(_sum, mlir.lower_fun(_summing, multiple_results=True))
ad.deflinear2(_sum, _sum_of_cotangents)


def _gathering(value: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(value, axis)


def _taking(values: jax.Array, *, axis: str) -> jax.Array:
    return lax.dynamic_index_in_dim(values, lax.axis_index(axis), 0, keepdims=False)


def _primitive(
    name: str, compute: Callable[..., Any], shape: Callable[[Any, str], tuple[int, ...]]
) -> Primitive:
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x, *, axis: jax.core.ShapedArray(shape(x, axis), x.dtype))
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    return primitive


_gather = _primitive("gather_replicas", _gathering, lambda x, axis: (lax.axis_size(axis), *x.shape))
_take = _primitive("take_replica", _taking, lambda x, axis: x.shape[1:])
ad.deflinear2(_gather, lambda ct, x, *, axis: (_take.bind(ct, axis=axis),))
ad.deflinear2(_take, lambda ct, x, *, axis: (_gather.bind(ct, axis=axis),))
