"""Forward and backward of all replicas, compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays, optimizer
from deliralike.backends.jax.compiled.compile_messages import name_program
from deliralike.backends.jax.compiled.gradients import (
    aux_and_gradient,
    neutral_gradients,
    scalar_loss,
)
from deliralike.backends.jax.compiled.host_checks import with_host_checks
from deliralike.backends.jax.compiled.program import (
    Arguments,
    Named,
    ProgramCache,
    StaticValue,
    Values,
    flatten_arguments,
    floating_inputs,
    pack,
    replace_present,
    stream_position,
    unpack,
)
from deliralike.backends.jax.replicas.placement import PlacedProgram
from deliralike.backends.jax.replicas.traced import TracedReplicas
from deliralike.backends.jax.replicas.whole_batch import OnWholeBatch

Results = tuple[Any, Any, list[Named], list[Any]]


def run_gradients(
    network: Any,
    programs: ProgramCache,
    loss_function: Callable,
    batch: tuple,
    of_inputs: bool,
) -> Results:
    """Run forward and backward of all replicas; buffers change.

    Returns:
        What the loss function returned, the loss, each replica's gradients, the gradients of the
        batch's arrays.
    """
    network.parallelism.prepare_run()
    run = _run_whole if network.synchronised else _run_replicas
    arguments = flatten_arguments(batch)
    result, value, gradients, input_gradients = run(
        network, programs, loss_function, arguments, of_inputs
    )
    by_replica = [optimizer.in_order(each, programs.latest) for each in gradients]
    result = network.on_output_device(unpack(result))
    return result, value, by_replica, input_gradients


def summed_gradients(loss_function: Callable, network: Any, inputs: tuple) -> Gradients:
    """Return the loss, and the gradients in PyTorch's layouts.

    Gradients of parameters are the sum over the replicas. The program is traced at each call, and
    compiled unless it has been.
    """
    programs = ProgramCache(network)
    with arrays.compiling_quickly():
        result, value, (total, *others), input_gradients = run_gradients(
            network, programs, loss_function, inputs, of_inputs=True
        )
    for gradients in others:
        total = network.backend.add_gradients(total, gradients, network.device_name)
    return neutral_gradients(
        network,
        programs.latest,
        flatten_arguments(inputs),
        value,
        total,
        input_gradients,
        result,
    )


def _run_whole(
    network: Any,
    programs: ProgramCache,
    loss_function: Callable,
    arguments: Arguments,
    of_inputs: bool,
) -> Results:
    """Run on the whole batch; the whole gradient is the root's."""
    (result, value), (gradients, input_gradients) = optimizer.run_gradients(
        programs,
        programs.variables(),
        OnWholeBatch(loss_function),
        arguments,
        of_inputs,
        jit=network.whole_batch.compile,
    )
    network.parallelism.synchronize_buffers(())
    return result, value, [gradients], input_gradients


def _run_replicas(
    network: Any,
    programs: ProgramCache,
    loss_function: Callable,
    arguments: Arguments,
    of_inputs: bool,
) -> Results:
    """Run each replica on its share."""
    variables, position = programs.variables(), stream_position()
    surroundings = programs.surroundings(loss_function)
    are_arrays, buffers = arguments.are_arrays, network.settings.buffers

    def make() -> Callable:
        def run(by_replica: list[Values], batch: list[Any], numbers: tuple) -> tuple:
            differentiable: list[Any] = [None] * len(batch)
            if of_inputs:
                differentiable = floating_inputs(batch, are_arrays)

            def loss(at: tuple[list[Named], list[Any]]) -> tuple:
                inputs = arguments.unflatten(replace_present(batch, at[1]))
                values = []
                for parameters, of_replica in zip(at[0], by_replica, strict=True):
                    values.append((parameters, *of_replica[1:]))
                replicas = TracedReplicas(variables, values, buffers)
                return _loss_and_aux(replicas, loss_function, inputs)

            parameters = [values[0] for values in by_replica]
            with position.enter(numbers):
                return aux_and_gradient(loss, (parameters, differentiable))

        name_program(run, "gradients", type(network))
        places = network.settings.places
        compiler = surroundings.compiler(partial(PlacedProgram, devices=places))
        return with_host_checks(run, 1, compiler)

    key = (
        "replicas",
        loss_function,
        surroundings.key,
        id(variables),
        arguments.key,
        position.seed,
        of_inputs,
        are_arrays,
    )
    program = programs.get_or_compile(key, make)
    by_replica = network.replica_values(variables)
    aux, (gradients, input_gradients) = program(
        by_replica, arguments.arrays, position.numbers
    )
    result, value, changed, counts = aux
    active_count, sizes = counts.value
    network.store_others(variables, changed)
    network.parallelism.synchronize_buffers(sizes)
    # a loss of the parameters alone calls none but the root
    of_active = gradients[: max(active_count, 1)]
    return result, value, of_active, input_gradients


def _loss_and_aux(
    replicas: TracedReplicas, loss_function: Callable, batch: tuple
) -> tuple[Any, tuple]:
    """Return the loss on a network with traced replicas, and all other results."""
    result = replicas.compute(loss_function, batch)
    value = scalar_loss(result)
    counts = StaticValue((replicas.active_count, replicas.sizes))
    return value, (pack(result), value, replicas.changed_others(), counts)
