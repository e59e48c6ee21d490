"""The compiled programs of a replicated network.

Values are joined over the network's devices, one program runs, and values are split again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deliralike import nest
from deliralike.backends.base import Gradients
from deliralike.backends.jax.arrays import compiling_quickly
from deliralike.backends.jax.compiled.host_checks import checked
from deliralike.backends.jax.compiled.program import (
    Members,
    Plain,
    ProgramCache,
    differentiated,
    in_neutral_layouts,
    loss_in,
    packed,
    taken_apart,
    unpacked,
    where,
)
from deliralike.backends.jax.replicas.mesh import Seats
from deliralike.backends.jax.replicas.shard_map import Mapped, Values

Named = dict[str, Any]


class Whole:
    """A replicated network inside a program that computes on the whole batch.

    XLA distributes the work.

    Attributes:
        seats: Where the replicas are.
        dim: The axis that counts samples.
    """

    def __init__(self, seats: Seats, dim: int) -> None:
        """Share out over these devices."""
        self.seats, self.dim = seats, dim

    def shared_out(self, arguments: Any) -> Any:
        """The arguments with every array laid out over the devices along the axis of samples."""
        return nest.map(self._laid_out, arguments)

    def _laid_out(self, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not -leaf.ndim <= self.dim < leaf.ndim:
            return leaf
        return self.seats.laid_out(leaf, self.dim % leaf.ndim)


def run_gradients(
    network: Any,
    programs: ProgramCache,
    members: Members,
    loss_function: Callable,
    batch: tuple,
    of_inputs: bool,
) -> tuple[Any, Any, list[Named], list[Any]]:
    """One compiled forward and backward over all replicas; buffers change.

    Returns:
        What the loss function returned, the loss, each replica's gradients, the gradients of the
        batch's arrays.
    """
    network.parallelism.prepare_run()
    seats, is_whole, here = network.seats, network.whole, where()
    arguments = taken_apart(batch)
    in_arrays = tuple(
        isinstance(x, jax.Array | np.ndarray) for x in arguments.arrays
    )  # and not in a plain float

    def make() -> Callable:
        inside = _inside_whole if is_whole else _inside_mapped

        def body(by_slot: list[Values], given: list[Any], numbers: tuple) -> tuple:
            floating = [
                of_inputs and is_array and jnp.issubdtype(x.dtype, jnp.floating)
                for is_array, x in zip(in_arrays, given, strict=True)
            ]
            chosen = [
                x if is_floating else None for x, is_floating in zip(given, floating, strict=True)
            ]

            def of(at: tuple) -> tuple:
                inputs = [
                    x if other is None else other for x, other in zip(given, at[1], strict=True)
                ]
                values = [
                    (named, *values[1:]) for named, values in zip(at[0], by_slot, strict=True)
                ]
                result, *beside = inside(
                    network, members, loss_function, values, arguments.together(inputs)
                )
                return loss_in(result), (packed(result), *beside, loss_in(result))

            with here.entered(numbers):
                beside, gradients = differentiated(of, ([values[0] for values in by_slot], chosen))
            return (beside, seats.replicated(gradients)) if is_whole else (beside, gradients)

        return checked(body, 1, lambda traced: seats.compiled(traced, is_whole))

    key = (
        "over the mesh",
        loss_function,
        id(members),
        arguments.key,
        here.seed,
        of_inputs,
        in_arrays,
        is_whole,
    )
    program = programs.compiled(key, make)
    by_slot = [_of_root(network, members)] if is_whole else _by_slot(network, members)
    (result, changed, counts, value), (gradients, given) = program(
        by_slot, seats.spread(arguments.arrays), here.numbers
    )
    taking_part, sizes = counts.value
    _store(network, members, changed, is_whole)
    network.parallelism.synchronize_buffers(sizes)
    replicas = (
        [0] if is_whole else range(max(taking_part, 1))
    )  # a loss of the parameters alone calls none but the root
    return (
        unpacked(_brought_home(network, result)),
        value,
        _parted(seats, members, gradients, replicas),
        [None if gradient is None else seats.parted(gradient)[0] for gradient in given],
    )


def run_forward(network: Any, programs: ProgramCache, function: Callable, *arguments: Any) -> Any:
    """Run ``function(network, *arguments)`` as one compiled program over all replicas.

    Buffers change.
    """
    network.parallelism.prepare_run()
    members, here, taken = programs.members(), where(), taken_apart(arguments)
    seats, is_whole = network.seats, network.whole

    def make() -> Callable:
        inside = _inside_whole if is_whole else _inside_mapped

        def body(by_slot: list[Values], given: list[Any], numbers: tuple) -> tuple:
            with here.entered(numbers):
                result, changed, counts = inside(
                    network, members, function, by_slot, taken.together(given)
                )
            return packed(result), changed, counts

        return seats.compiled(body, is_whole)

    program = programs.compiled(
        ("forward", function, id(members), taken.key, here.seed, is_whole), make
    )
    by_slot = [_of_root(network, members)] if is_whole else _by_slot(network, members)
    result, changed, counts = program(by_slot, seats.spread(taken.arrays), here.numbers)
    _store(network, members, changed, is_whole)
    network.parallelism.synchronize_buffers(counts.value[1])
    return unpacked(_brought_home(network, result))


def summed_gradients(loss_function: Callable, network: Any, inputs: tuple) -> Gradients:
    """Return the loss, and the gradients in PyTorch's layouts.

    Gradients of parameters are the sum over the replicas. The program is compiled anew at each
    call.
    """
    programs = ProgramCache(network)
    members = programs.members()
    with compiling_quickly():
        result, value, by_replica, given = run_gradients(
            network, programs, members, loss_function, inputs, of_inputs=True
        )
    total = dict(by_replica[0])
    for gradients in by_replica[1:]:
        for name in (name for name, gradient in gradients.items() if gradient is not None):
            total[name] = network.backend.add(total[name], gradients[name], network.device_name)
    return in_neutral_layouts(network, members, taken_apart(inputs), value, total, given, result)


# Traced
# --------------------------------------------------------------------------------------------------


def _inside_mapped(
    network: Any, members: Members, function: Callable, by_slot: Sequence[Values], batch: tuple
) -> tuple:
    """Return a function's result, the changed buffers, and the replicas' counts.

    The counts are how many replicas ran, on how many samples.
    """
    mapped = Mapped(network.seats, members, by_slot, network.settings)
    inside = members.rebuilt(*mapped.of_root())[0]
    vars(inside)["_inside"] = mapped
    result = function(inside, *batch)
    return result, mapped.others_changed(), Plain((mapped.taking_part, mapped.sizes))


def _inside_whole(
    network: Any, members: Members, function: Callable, by_slot: Sequence[Values], batch: tuple
) -> tuple:
    inside, others = members.rebuilt(*by_slot[0])
    vars(inside)["_inside"] = Whole(network.seats, network.settings.dim)
    result = function(inside, *batch)
    return result, _changed(others, by_slot[0][2]), Plain((1, ()))


def _changed(others: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    return [
        None if new.get_value() is old else new.get_value()
        for new, old in zip(others, before, strict=True)
    ]


# Into a program and out of it
# ----------------------------------------------------------------------------------------


def _by_slot(network: Any, members: Members) -> list[Values]:
    rows = network.seats.rows
    columns = [
        [row[slot] if slot < len(row) else row[0] for row in rows]
        for slot in range(network.seats.slots)
    ]
    return [_joined(network, members, column) for column in columns]


def _of_root(network: Any, members: Members) -> Values:
    """Each device's copy of the parameters, and the root's buffers and random states for all."""
    parameters, frozen, _ = _joined(network, members, [row[0] for row in network.seats.rows])
    others = [variable.get_value() for variable in members.others]
    leaves, tree = jax.tree.flatten(others)
    return parameters, frozen, jax.tree.unflatten(tree, network.seats.spread(leaves))


def _joined(network: Any, members: Members, column: Sequence[int]) -> Values:
    def value(variable: Any) -> Any:
        each = [network.own(replica, variable).get_value() for replica in column]
        return jax.tree.map(lambda *leaves: network.seats.joined(leaves), *each)

    both = (members.parameters, members.frozen)
    named = ({name: value(variable) for name, variable in held.items()} for held in both)
    return (*named, [value(variable) for variable in members.others])  # type: ignore[return-value]


def _store(network: Any, members: Members, changed: Sequence[Any], is_whole: bool) -> None:
    seats = network.seats
    for variable, values in zip(members.others, changed, strict=True):
        if values is None:
            continue
        if is_whole:
            variable.set_value(
                jax.tree.map(lambda leaf: _on(seats, leaf, seats.devices[0]), values)
            )
            continue
        for slot, value in enumerate(values):
            if value is not None:
                _store_slot(network, variable, slot, value)


def _store_slot(network: Any, variable: Any, slot: int, value: Any) -> None:
    leaves, tree = jax.tree.flatten(value)
    by_device = zip(*map(network.seats.parted, leaves), strict=True)
    for row, own in zip(network.seats.rows, by_device, strict=True):
        if slot < len(row):
            network.own(row[slot], variable).set_value(jax.tree.unflatten(tree, own))


def _parted(
    seats: Seats, members: Members, by_slot: Sequence[Named], replicas: Sequence[int]
) -> list[Named]:
    parted = [
        {
            name: None if slot[name] is None else seats.parted(slot[name])
            for name in members.parameters
        }
        for slot in by_slot
    ]  # JAX sorts dicts
    places = map(seats.seat, replicas)
    return [
        {name: None if each is None else each[device] for name, each in parted[slot].items()}
        for device, slot in places
    ]


def _brought_home(network: Any, packed_result: Any) -> Any:
    device = network.settings.output_device or network.seats.devices[0]
    return jax.tree.map(lambda leaf: _on(network.seats, leaf, device), packed_result)


def _on(seats: Seats, value: Any, device: str) -> Any:
    """An array that is the same on all devices, on one of them."""
    for shard in value.addressable_shards if value.is_fully_replicated else ():
        if shard.device == seats.find(device):
            return shard.data
    return jax.device_put(value, seats.find(device))
