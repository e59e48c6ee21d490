"""Runs of a unit as it is: its calls, and the gradient at each of them."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from operator import add
from types import FrameType
from typing import Any

from deliralike import nest
from deliralike.backends.base import Gradients
from deliralike.conformance.kinds import Function, Tensors
from deliralike.conformance.observe.arrays import (
    Arrays,
    changed,
    copied,
    same_objects,
    scalar,
    tied,
    weights_of,
    zeros_of,
)
from deliralike.conformance.observe.routing import (
    Met,
    forwards,
    routed,
    run_with_gradients,
)
from deliralike.conformance.observe.units import (
    Call,
    CallCotangents,
    Calls,
    Recording,
    Unit,
)
from deliralike.conformance.places import Tap
from deliralike.network.base import AbstractNetwork


def record(unit: Unit, cotangent: Any = None) -> Recording:
    """Run a unit as it is, and record its calls and gradients.

    Gradients are those of the sum of its outputs times a cotangent, or of its output itself.

    Args:
        unit: Its network is left as it was.
        cotangent: A nest like the output; None for a unit that gives a loss.
    """

    def run(
        network: AbstractNetwork, weight: Arrays | None, inputs: Any
    ) -> tuple[Any, Any, Any]:
        calls: dict[Tap, Any] = {}

        def tap(met: Met) -> Any:
            given, same = copied(network, met.given), same_objects(network, met.given)
            output = met.result()
            result = copied(network, output)
            calls[met.name] = (met.path, *given, result, same, met.caller)
            return output

        with routed(unit, network, tap):
            output = unit.output(network, inputs)
        return scalar(network, output, weight), copied(network, output), calls

    return _recording(
        *run_with_gradients(unit, run, weights_of(cotangent), unit.inputs)
    )


def listen(unit: Unit) -> dict[Tap, Call]:
    """Run a unit forwards, and return its calls up to where it raises an error, if it does.

    Args:
        unit: Its network is left as it was.
    """
    network, backend = unit.network, unit.backend
    calls: dict[Tap, Call] = {}

    def tap(met: Met) -> Any:
        same = same_objects(network, met.given)
        args, kwargs = backend.to_numpy(copied(network, met.given))
        # All that is known if it raises.
        calls[met.name] = Call(met.path, args, kwargs, None, same)
        output = met.result()
        result = backend.to_numpy(copied(network, output))
        calls[met.name] = Call(met.path, args, kwargs, result, same)
        return output

    with suppress(Exception):  # what a stranger's network raises ends the recording
        forwards(unit, tap)
    return calls


def cotangents(
    unit: Unit, calls: Calls, cotangent: Any = None
) -> dict[Tap, CallCotangents]:
    """Return the gradient of the unit's scalar at each tap's inputs and output.

    It is None where they are no floating arrays.
    """
    zeros = {
        name: (zeros_of(call.given), zeros_of(call.output))
        for name, call in calls.items()
    }

    def run(
        network: AbstractNetwork, weight: Arrays | None, shifts: Any, inputs: Any
    ) -> Any:
        def tap(met: Met) -> Any:
            if met.name not in shifts:
                return met.result()
            to_inputs, to_output = shifts[met.name]
            shifted = changed(network, met.given, to_inputs, add)
            result = met.result(tied(shifted, calls[met.name].same))
            return changed(network, result, to_output, add)

        with routed(unit, network, tap):
            output = unit.output(network, inputs)
        return scalar(network, output, weight)

    found, _ = run_with_gradients(unit, run, weights_of(cotangent), zeros, unit.inputs)
    return {name: CallCotangents(*parts) for name, parts in found.inputs[1].items()}


def watch(unit: Unit, elements: int | None = None) -> Recording:
    """Run a unit that gives a loss, and record the output of every block call, nested ones too.

    Args:
        unit: Its network is left as it was.
        elements: How many elements of each array are kept, at equal distances; all of them when
            None.
    """

    def run(network: AbstractNetwork, inputs: Any) -> tuple[Any, Any, Any]:
        calls: dict[Tap, Any] = {}
        counts: Counter[str] = Counter()

        def interceptor(
            path: str, block: Any, call: Function, args: tuple, kwargs: dict
        ) -> Any:
            output = call(*args, **kwargs)
            counts[path] += 1
            name = Tap(path, call=counts[path])
            calls[name] = (
                path,
                (),
                {},
                _thinned(network, output, elements if path else None),
            )
            return output

        with network.backend.intercept_calls(
            network, network.backend.same_trace_only(interceptor)
        ):
            loss = unit.output(network, inputs)
        return loss, copied(network, loss), calls

    return _recording(*run_with_gradients(unit, run, unit.inputs))


def _recording(found: Gradients, state: Tensors) -> Recording:
    """What a run has shown whose last argument are the unit's inputs."""
    output, calls = found.beside
    named = {name: Call(*parts) for name, parts in calls.items()}
    return Recording(output, named, found.parameters, found.inputs[-1][0], state)


def is_call(frame: FrameType) -> bool:
    """Whether a frame of a traceback is a block's call that `watch` has seen.

    Its local variables are the ``path`` and the ``block``.
    """
    code = frame.f_code
    is_interceptor = code.co_name == "interceptor"
    return is_interceptor and code.co_filename == watch.__code__.co_filename


def _thinned(network: AbstractNetwork, values: Any, elements: int | None) -> Any:
    """A nest with copies of its arrays, or of some elements of each."""

    def leaf(value: Any) -> Any:
        if not network.backend.is_array(value):
            return value
        size = math.prod(value.shape)
        if elements is None or size <= elements:
            return network.backend.copied(value)
        flat = network.backend.nn.reshape(value, (size,))
        return network.backend.copied(flat[:: -(-size // elements)])

    return nest.map(leaf, values)
