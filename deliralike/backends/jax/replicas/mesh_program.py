"""The compiled programs of a replicated network.

Values are joined over the network's devices, one program runs, and values are split again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from deliralike import nest
from deliralike.backends.base import Gradients
from deliralike.backends.jax.arrays import compiling_quickly, find_device
from deliralike.backends.jax.compiled.host_checks import with_host_checks
from deliralike.backends.jax.compiled.program import (
    ModuleVariables,
    Named,
    ProgramCache,
    StaticValue,
    Values,
    aux_and_gradient,
    changed_values,
    flatten_arguments,
    floating_inputs,
    neutral_gradients,
    pack,
    replace_present,
    scalar_loss,
    stream_position,
    unpack,
)
from deliralike.backends.jax.replicas.mesh import ReplicaMesh
from deliralike.backends.jax.replicas.shard_map import ShardMap


class WholeBatch:
    """A replicated network inside a program that computes on the whole batch.

    XLA distributes the work.

    Attributes:
        mesh: The devices of the replicas.
        dim: The axis that counts samples.
    """

    def __init__(self, mesh: ReplicaMesh, dim: int) -> None:
        """Shard arrays over these devices."""
        self.mesh, self.dim = mesh, dim

    def shard(self, arguments: Any) -> Any:
        """The arguments with every array sharded over the devices along the axis of samples."""
        return nest.map(self._shard, arguments)

    def _shard(self, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not -leaf.ndim <= self.dim < leaf.ndim:
            return leaf
        return self.mesh.shard(leaf, self.dim % leaf.ndim)


def run_gradients(
    network: Any,
    programs: ProgramCache,
    variables: ModuleVariables,
    loss_function: Callable,
    batch: tuple,
    of_inputs: bool,
) -> tuple[Any, Any, list[Named], list[Any]]:
    """Run one compiled forward and backward pass over all replicas; buffers change.

    Returns:
        What the loss function returned, the loss, each replica's gradients, the gradients of the
        batch's arrays.
    """
    network.parallelism.prepare_run()
    mesh, is_whole, position = network.replica_mesh, network.whole, stream_position()
    arguments = flatten_arguments(batch)
    are_arrays = arguments.are_arrays

    def make() -> Callable:
        run_inside = _run_whole if is_whole else _run_replicas

        def body(by_slot: list[Values], batch: list[Any], numbers: tuple) -> tuple:
            differentiable: list[Any] = [None] * len(batch)
            if of_inputs:
                differentiable = floating_inputs(batch, are_arrays)

            def loss_and_aux(at: tuple[list[Named], list[Any]]) -> tuple:
                inputs = arguments.unflatten(replace_present(batch, at[1]))
                values = []
                for parameters, slot in zip(at[0], by_slot, strict=True):
                    values.append((parameters, *slot[1:]))
                result, changed, counts = run_inside(
                    network, variables, loss_function, values, inputs
                )
                loss = scalar_loss(result)
                return loss, (pack(result), changed, counts, loss)

            parameters = [values[0] for values in by_slot]
            with position.enter(numbers):
                aux, gradients = aux_and_gradient(
                    loss_and_aux, (parameters, differentiable)
                )
            return aux, mesh.replicate(gradients) if is_whole else gradients

        return with_host_checks(body, 1, lambda traced: mesh.compile(traced, is_whole))

    key = (
        "over the mesh",
        loss_function,
        id(variables),
        arguments.key,
        position.seed,
        of_inputs,
        are_arrays,
        is_whole,
    )
    program = programs.get_or_compile(key, make)
    by_slot = _values_by_slot(network, variables, is_whole)
    aux, (gradients, input_gradients) = program(
        by_slot, mesh.put_everywhere(arguments.arrays), position.numbers
    )
    result, changed, counts, value = aux
    active_count, sizes = counts.value
    _store(network, variables, changed, is_whole)
    network.parallelism.synchronize_buffers(sizes)
    # a loss of the parameters alone calls none but the root
    replica_count = 1 if is_whole else max(active_count, 1)
    return (
        unpack(_on_output_device(network, result)),
        value,
        _split_gradients(mesh, variables, gradients, replica_count),
        [_split(mesh, gradient)[0] for gradient in input_gradients],
    )


def run_forward(
    network: Any, programs: ProgramCache, function: Callable, *arguments: Any
) -> Any:
    """Run ``function(network, *arguments)`` as one compiled program over all replicas.

    Buffers change.
    """
    network.parallelism.prepare_run()
    variables, position = programs.variables(), stream_position()
    mesh, is_whole = network.replica_mesh, network.whole
    flat = flatten_arguments(arguments)

    def make() -> Callable:
        run_inside = _run_whole if is_whole else _run_replicas

        def body(by_slot: list[Values], batch: list[Any], numbers: tuple) -> tuple:
            with position.enter(numbers):
                result, changed, counts = run_inside(
                    network, variables, function, by_slot, flat.unflatten(batch)
                )
            return pack(result), changed, counts

        return mesh.compile(body, is_whole)

    key = ("forward", function, id(variables), flat.key, position.seed, is_whole)
    program = programs.get_or_compile(key, make)
    by_slot = _values_by_slot(network, variables, is_whole)
    result, changed, counts = program(
        by_slot, mesh.put_everywhere(flat.arrays), position.numbers
    )
    _store(network, variables, changed, is_whole)
    network.parallelism.synchronize_buffers(counts.value[1])
    return unpack(_on_output_device(network, result))


def summed_gradients(loss_function: Callable, network: Any, inputs: tuple) -> Gradients:
    """Return the loss, and the gradients in PyTorch's layouts.

    Gradients of parameters are the sum over the replicas. The program is traced at each call, and
    compiled unless it has been.
    """
    programs = ProgramCache(network)
    variables = programs.variables()
    with compiling_quickly():
        result, value, by_replica, input_gradients = run_gradients(
            network, programs, variables, loss_function, inputs, of_inputs=True
        )
    total = dict(by_replica[0])
    for gradients in by_replica[1:]:
        for name, gradient in gradients.items():
            if gradient is not None:
                total[name] = network.backend.add(
                    total[name], gradient, network.device_name
                )
    arguments = flatten_arguments(inputs)
    return neutral_gradients(
        network, variables, arguments, value, total, input_gradients, result
    )


# Traced
# --------------------------------------------------------------------------------------------------


def _run_replicas(
    network: Any,
    variables: ModuleVariables,
    function: Callable,
    by_slot: Sequence[Values],
    batch: tuple,
) -> tuple[Any, list[Any], StaticValue]:
    """Return a function's result, the changed buffers, and the replicas' counts.

    The counts are how many replicas ran, on how many samples.
    """
    shard_map = ShardMap(network.replica_mesh, variables, by_slot, network.settings)
    copy = variables.rebuild(*shard_map.of_root()).network
    vars(copy)["_inside"] = shard_map
    result = function(copy, *batch)
    counts = StaticValue((shard_map.active_count, shard_map.sizes))
    return result, shard_map.changed_others(), counts


def _run_whole(
    network: Any,
    variables: ModuleVariables,
    function: Callable,
    by_slot: Sequence[Values],
    batch: tuple,
) -> tuple[Any, list[Any], StaticValue]:
    """Return the same as `_run_replicas`, computed on the whole batch."""
    rebuilt = variables.rebuild(*by_slot[0])
    vars(rebuilt.network)["_inside"] = WholeBatch(
        network.replica_mesh, network.settings.dim
    )
    result = function(rebuilt.network, *batch)
    variables.refuse_written(rebuilt, *by_slot[0][:2])
    return result, changed_values(rebuilt.others, by_slot[0][2]), StaticValue((1, ()))


# Into a program and out of it
# --------------------------------------------------------------------------------------------------


def _values_by_slot(
    network: Any, variables: ModuleVariables, is_whole: bool
) -> list[Values]:
    if is_whole:
        return [_values_of_root(network, variables)]
    values = []
    for slot in range(network.replica_mesh.slot_count):
        replicas = []
        for on_device in network.replica_mesh.replicas_by_device:
            # a device with fewer replicas repeats its first
            replicas.append(on_device[slot if slot < len(on_device) else 0])
        values.append(_joined_values(network, variables, replicas))
    return values


def _values_of_root(network: Any, variables: ModuleVariables) -> Values:
    """Each device's copy of the parameters, and the root's buffers and random states for all."""
    mesh = network.replica_mesh
    first_replicas = [replicas[0] for replicas in mesh.replicas_by_device]
    parameters, frozen, _ = _joined_values(network, variables, first_replicas)
    others = [variable.get_value() for variable in variables.others]
    leaves, tree = jax.tree.flatten(others)
    return parameters, frozen, jax.tree.unflatten(tree, mesh.put_everywhere(leaves))


def _joined_values(
    network: Any, variables: ModuleVariables, replicas: Sequence[int]
) -> Values:
    """The variables of one replica on each device, as local values of a program."""

    def join(*leaves: jax.Array) -> jax.Array:
        return network.replica_mesh.join(leaves)

    def value(variable: Any) -> Any:
        by_device = [network.own(replica, variable).get_value() for replica in replicas]
        return jax.tree.map(join, *by_device)

    parameters = {
        name: value(variable) for name, variable in variables.parameters.items()
    }
    frozen = {name: value(variable) for name, variable in variables.frozen.items()}
    return parameters, frozen, [*map(value, variables.others)]


def _store(
    network: Any, variables: ModuleVariables, changed: Sequence[Any], is_whole: bool
) -> None:
    mesh = network.replica_mesh

    def on_root(leaf: Any) -> Any:
        return _on_device(leaf, mesh.devices[0])

    for variable, values in zip(variables.others, changed, strict=True):
        if values is None:
            continue
        if is_whole:
            variable.set_value(jax.tree.map(on_root, values))
            continue
        for slot, value in enumerate(values):
            if value is not None:
                _store_slot(network, variable, slot, value)


def _store_slot(network: Any, variable: Any, slot: int, value: Any) -> None:
    mesh = network.replica_mesh
    leaves, tree = jax.tree.flatten(value)
    by_device = zip(*map(mesh.split, leaves), strict=True)
    for replicas, own in zip(mesh.replicas_by_device, by_device, strict=True):
        if slot < len(replicas):
            network.own(replicas[slot], variable).set_value(
                jax.tree.unflatten(tree, own)
            )


def _split_gradients(
    mesh: ReplicaMesh,
    variables: ModuleVariables,
    by_slot: Sequence[Named],
    replica_count: int,
) -> list[Named]:
    """The gradients of each replica, in the order of parameters: JAX sorts dicts."""
    positions = [mesh.position(replica) for replica in range(replica_count)]
    by_replica: list[Named] = [{} for _ in positions]
    for name in variables.parameters:
        by_device = [_split(mesh, gradients[name]) for gradients in by_slot]
        for gradients, (device, slot) in zip(by_replica, positions, strict=True):
            gradients[name] = by_device[slot][device]
    return by_replica


def _split(mesh: ReplicaMesh, gradient: Any) -> Sequence[Any]:
    """The gradient on each device; None for each where there is none."""
    if gradient is None:
        return [None] * len(mesh.devices)
    return mesh.split(gradient)


def _on_output_device(network: Any, result: Any) -> Any:
    mesh = network.replica_mesh
    device = network.settings.output_device or mesh.devices[0]
    return jax.tree.map(lambda leaf: _on_device(leaf, device), result)


def _on_device(value: Any, name: str) -> Any:
    """An array that is the same on all devices, on one of them."""
    device = find_device(name)
    if value.is_fully_replicated:
        for shard in value.addressable_shards:
            if shard.device == device:
                return shard.data
    return jax.device_put(value, device)
