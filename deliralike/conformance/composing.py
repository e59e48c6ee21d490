"""The terms of two loss functions at the same network output: data for `explain.loss_terms`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.correspondence import Correspondence
from deliralike.conformance.explain.calls import binder
from deliralike.conformance.explain.losses import Composition, Term, Total
from deliralike.conformance.explain.variant import Call as Bound
from deliralike.conformance.findings import Observed
from deliralike.conformance.taps import UNIT, Call, Unit, cotangents, force, record

_OUTPUT = "the output of "


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
        found = correspondence.forced(theirs, calls, weights, None).observed
    except Exception:  # noqa: BLE001
        return None
    outputs = {
        path: leaf
        for name, call in calls.items()
        for path, leaf in nest.leaves_with_paths(call.output, f"{_OUTPUT}{name}")
        if isinstance(leaf, np.ndarray)
    }
    mine, its = (_total(side, calls, outputs) for side in (expected, found))
    if mine is None or its is None:
        return None
    functions = record(unit).calls
    around = cotangents(unit, functions)
    terms = tuple(_terms(unit, functions, {name: one.output for name, one in around.items()}))
    targets = tuple(leaf for leaf in nest.leaves(unit.args) if isinstance(leaf, np.ndarray))
    return Composition(outputs, unit.network.neutral_state(), terms, mine, its, targets)


def _total(
    observed: Mapping[str, Observed], calls: Mapping[str, Call], outputs: Mapping[str, Any]
) -> Total | None:
    made = observed[UNIT].outputs["output"]
    known = {
        name: value
        for name, value in observed[UNIT].inputs.items()
        if name in outputs and value is not None
    }
    if set(calls) - set(observed) or set(outputs) - set(known) or np.size(made) != 1:
        return None
    parameters = dict(observed[UNIT].parameters)
    for name, call in calls.items():
        start = f"{call.path}." if call.path else ""
        parameters |= {
            f"{start}{parameter}": value for parameter, value in observed[name].parameters.items()
        }
    return Total(float(np.ravel(made)[0]), known, parameters)


def _terms(
    unit: Unit, calls: Mapping[str, Call], cotangents: Mapping[str, list[Any]]
) -> Iterator[Term]:
    """The functions that give one number, on which the loss depends."""
    state = unit.network.neutral_state()
    for name, call in calls.items():
        factors = [one for one in cotangents[name] if one is not None]
        if (
            call.path is not None
            or np.size(call.output) != 1
            or len(factors) != 1
            or not np.any(factors[0])
        ):
            continue
        function = name.partition("(")[0]
        filled = nest.map(
            lambda leaf: state.get(leaf, leaf) if isinstance(leaf, str) else leaf, call.args
        )
        bound = binder(function)(Bound(None, {}, filled, call.kwargs, {}, unit.training))
        yield Term(function, bound, float(np.ravel(call.output)[0]), float(np.ravel(factors[0])[0]))
