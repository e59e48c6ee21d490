"""The terms of two loss functions at the same network output: data for `explain.loss_terms`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.losses import Composition, Term, Total
from deliralike.conformance.findings import Observed
from deliralike.conformance.observe import Call, Unit, bare, cotangents, force, record
from deliralike.conformance.observe.corresponding import Correspondence
from deliralike.conformance.places import UNIT, Tap, outputs


def composition(unit: Unit, other: Unit, correspondence: Correspondence) -> Composition | None:
    """Both losses as functions of the outputs that the reference's network has.

    Args:
        unit: The reference's loss, with the network's own call as a tap.
        other: The candidate's.
        correspondence: Which block of the candidate is which of the reference.

    Returns:
        None where the candidate does not call its network, or raises an error.
    """
    whole, theirs = replace(unit, functions=False), replace(other, functions=False)
    calls = record(whole).calls
    weights = cotangents(whole, calls)
    expected = force(whole, calls, weights).observed
    try:
        taps = correspondence.counterpart(calls, theirs, None).taps
        if set(taps) != set(calls):
            return None
        found = correspondence.forced(theirs, taps, weights, None).observed
    except Exception:  # noqa: BLE001
        return None
    given: dict[str, Any] = {}
    for name, call in calls.items():
        names = map(str, outputs(call.output, name))
        given |= zip(names, nest.leaves(call.output), strict=True)
    given = {name: leaf for name, leaf in given.items() if isinstance(leaf, np.ndarray)}
    mine, its = (_total(side, calls, given) for side in (expected, found))
    if mine is None or its is None:
        return None
    functions = record(unit).calls
    try:
        around = cotangents(unit, functions)
    except Exception:  # noqa: BLE001  # a native function may forbid gradients of an argument
        around = {}
    weighted = {name: one.output for name, one in around.items()}
    known = {name: functions[name] for name in weighted}
    terms = tuple(_terms(unit, known, weighted))
    targets = tuple(leaf for leaf in nest.leaves(unit.args) if isinstance(leaf, np.ndarray))
    return Composition(given, unit.network.neutral_state(), terms, mine, its, targets)


def _total(
    observed: Mapping[Tap, Observed], calls: Mapping[Tap, Call], given: Mapping[str, Any]
) -> Total | None:
    made = observed[UNIT].outputs
    inputs = {str(name): value for name, value in observed[UNIT].inputs.items()}
    known = {n: value for n, value in inputs.items() if n in given and value is not None}
    if set(calls) - set(observed) or set(given) - set(known) or np.size(made) != 1:
        return None
    parameters = dict(observed[UNIT].parameters)
    for name, call in calls.items():
        start = f"{call.path}." if call.path else ""
        parameters |= {
            f"{start}{parameter}": value for parameter, value in observed[name].parameters.items()
        }
    return Total(float(np.ravel(made)[0]), known, parameters)


def _terms(
    unit: Unit, calls: Mapping[Tap, Call], cotangents: Mapping[Tap, list[Any]]
) -> Iterator[Term]:
    """The functions that give one number, on which the loss depends.

    A loss of each sample and the mean or sum of it are one function.
    """
    state = unit.network.neutral_state()
    of_samples: list[tuple[str, dict[str, Any], Any]] = []
    for name, call in calls.items():
        function = name.function
        if call.path is not None or not arguments.is_known(function):
            continue  # a block, or a function of the framework's that `nn` does not have
        filled = nest.map(
            lambda leaf: state.get(leaf, leaf) if isinstance(leaf, str) else leaf, bare(call.args)
        )
        bound = arguments.bound(function, {}, {}, filled, call.kwargs)
        if bound.get("reduction") == "none":
            of_samples.append((function, bound, call.output))
            continue
        factors = [one for one in cotangents[name] if one is not None]
        if np.size(call.output) != 1 or len(factors) != 1 or not np.any(factors[0]):
            continue
        if function in ("mean", "sum"):
            function, bound = _reduced(function, bound, of_samples)
        if len(bound) > 1:
            value, factor = float(np.ravel(call.output)[0]), float(np.ravel(factors[0])[0])
            yield Term(function, bound, value, factor)


def _reduced(
    reduction: str, bound: dict[str, Any], of_samples: list[tuple[str, dict[str, Any], Any]]
) -> tuple[str, dict[str, Any]]:
    """Return the loss whose values a mean or sum is given; that itself where there is none."""
    for function, settings, output in of_samples:
        if settings.get("weight") is None and np.array_equal(output, bound["x"]):
            return function, {**settings, "reduction": reduction}
    return reduction, bound
