"""Runs of a unit in which every call gets given inputs, and what follows given outputs.

So each is judged alone, forward and backward, and so is what the unit does between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Gradients
from deliralike.conformance.by_name import below, start
from deliralike.conformance.findings import Observed, is_floating
from deliralike.conformance.kinds import Named
from deliralike.conformance.observe.arrays import (
    Arrays,
    arrays_of,
    changed,
    copied,
    scalar,
    tied,
    weighted,
    weights_of,
)
from deliralike.conformance.observe.arrays import instead as taken
from deliralike.conformance.observe.routing import (
    Met,
    forwards,
    routed,
    run_with_gradients,
)
from deliralike.conformance.observe.units import Call, Calls, Cotangents, Forced, Unit
from deliralike.conformance.places import UNIT, Quantity, Tap, arguments, outputs
from deliralike.network.base import AbstractNetwork


def force(
    unit: Unit,
    calls: Calls,
    weights: Cotangents,
    cotangent: Any = None,
    instead: Mapping[Tap, Callable[[Met], Any]] | None = None,
) -> Forced:
    """Return the results of each tap, and of the unit (`UNIT`) between them, at given inputs.

    Args:
        unit: Its network is left as it was.
        calls: What to give to each tap, and what to take as its output afterwards.
        weights: The cotangent of each output, and of each input for what precedes it.
        cotangent: Of the unit's output.
        instead: What other calls give, in the place of their own results.
    """
    given = _given(calls)
    replaced = instead or {}
    weighing = {name: (one.inputs, one.output) for name, one in weights.items()}

    def run(
        network: AbstractNetwork,
        weight: Arrays | None,
        weighing: Any,
        given: Any,
        inputs: Any,
    ) -> Any:
        terms: list[Any] = []
        own: dict[Tap, Any] = {}
        others: dict[Tap, Any] = {}

        def tap(met: Met) -> Any:
            before = copied(network, met.given)
            if met.name not in given:
                result = (
                    replaced[met.name](met) if met.name in replaced else met.result()
                )
                others[met.name] = (met.path, *before, copied(network, result))
                return result
            (into, output), (weight_into, weight_output) = (
                given[met.name],
                weighing[met.name],
            )
            terms.append(weighted(network, met.given, weight_into))
            result = _result(network, met, into, calls)
            own[met.name] = (met.path, before, copied(network, result))
            terms.append(weighted(network, result, weight_output))
            return changed(network, result, output, taken)

        with routed(unit, network, tap):
            result = unit.output(network, inputs)
        terms.append(scalar(network, result, weight))
        return sum(terms[1:], start=terms[0]), copied(network, result), own, others

    found, state = run_with_gradients(
        unit, run, weights_of(cotangent), weighing, given, unit.inputs
    )
    beyond = {name: Call(*parts) for name, parts in found.beside[2].items()}
    return Forced(_observed(unit, found, state, calls), beyond)


def handed_on(unit: Unit, calls: Calls, results: Mapping[Tap, Any]) -> Observed:
    """Return what a unit hands to each tap and gives itself, forwards, with other results of calls.

    Args:
        unit: Its network is left as it was.
        calls: What to give to each tap, and what to take as its output, as in `force`.
        results: Of further calls: nests of NumPy arrays.
    """
    network, backend = unit.network, unit.backend
    own: dict[Tap, Any] = {}
    given, native = backend.prepare((_given(calls), dict(results)), network)

    def tap(met: Met) -> Any:
        if met.name in given:
            own[met.name] = copied(network, met.given)
        if met.name in native:
            if met.path is None:
                met.result()  # a native function's result is given in the form of its own
            return native[met.name]
        if met.name not in given:
            return met.result()
        into, output = given[met.name]
        return changed(network, _result(network, met, into, calls), output, taken)

    result = forwards(unit, tap)
    handed, output = backend.to_numpy((own, copied(network, result)))
    return Observed(output, handed=handed)


def _result(network: AbstractNetwork, met: Met, into: Arrays, calls: Calls) -> Any:
    """What a tap makes of given inputs."""
    forced = changed(network, met.given, into, taken)
    return met.result(tied(forced, calls[met.name].same))


def _given(calls: Calls) -> dict[Tap, tuple[Arrays, Arrays]]:
    """The arrays that go into each call, and come out of it."""
    return {
        name: (arrays_of(call.given), arrays_of(call.output))
        for name, call in calls.items()
    }


def _observed(
    unit: Unit, found: Gradients, state: Mapping[str, np.ndarray], calls: Calls
) -> dict[Tap, Observed]:
    """Return the results of a forced run, sorted by what computed them.

    Parameters and buffers go to the block that holds them.
    """
    output, own = found.beside[:2]
    of_given, of_inputs = found.inputs[2:]
    observed, rest, rest_state = {}, dict(found.parameters), dict(state)
    for name, (path, _, result) in own.items():
        call = calls[name]
        given = call.given
        inputs = _floating(arguments(*given), given, of_given[name][0])
        if path is None:  # nothing belongs to a function
            observed[name] = Observed(result, inputs)
            continue
        parameters, buffers = below(path, found.parameters), below(path, state)
        observed[name] = Observed(result, inputs, parameters, buffers)
        rest, rest_state = _not_below(path, rest), _not_below(path, rest_state)
    inputs = _floating(arguments(*unit.inputs), unit.inputs, nest.leaves(of_inputs))
    for name in own:
        output_given = calls[name].output
        inputs |= _floating(
            outputs(output_given, name), output_given, of_given[name][1]
        )
    handed = {name: before for name, (_, before, _) in own.items()}
    observed[UNIT] = Observed(output, inputs, rest, rest_state, handed)
    return observed


def _not_below(path: str, named: Named) -> dict[str, Any]:
    begin = start(path)
    return {name: one for name, one in named.items() if not name.startswith(begin)}


def _floating(
    names: Sequence[Quantity], values: Any, gradients: Arrays
) -> dict[Quantity, np.ndarray]:
    """Return gradients of the floating arrays of a nest; unused ones are zeros."""
    found = {}
    for name, leaf, gradient in zip(names, nest.leaves(values), gradients, strict=True):
        if is_floating(leaf):
            found[name] = np.zeros_like(leaf) if gradient is None else gradient
    return found
