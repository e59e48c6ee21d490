"""Both loss functions at the same outputs of the network: data for `explain.losses`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.convention import Formula
from deliralike.conformance.explain.loss_table import LOSSES
from deliralike.conformance.explain.losses import VALUE, Loss
from deliralike.conformance.findings import Observed
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.locate.accusing import filled
from deliralike.conformance.observe.arrays import bare
from deliralike.conformance.observe.corresponding import Correspondence
from deliralike.conformance.observe.forcing import force
from deliralike.conformance.observe.recording import cotangents, record
from deliralike.conformance.observe.routing import Met
from deliralike.conformance.observe.units import Unit
from deliralike.conformance.places import OUTPUT, UNIT, Tap


def whole_loss(unit: Unit, other: Unit, correspondence: Correspondence) -> Loss | None:
    """Both losses as functions of the outputs that the reference's network has.

    Args:
        unit: The reference's loss, with the network's own call as a tap.
        other: The candidate's.
        correspondence: Which block of the candidate is which of the reference.

    Returns:
        None where the candidate does not call its network, or raises an error.
    """
    whole, counterpart = (replace(one, functions=False) for one in (unit, other))
    calls = record(whole).calls
    weights = cotangents(whole, calls)
    expected = force(whole, calls, weights).observed
    try:
        taps = correspondence.counterpart(calls, counterpart, None).taps
        found = correspondence.forced(counterpart, taps, weights, None).observed
    except Exception:  # noqa: BLE001  # of a stranger's network
        return None
    expected_numbers, actual_numbers = _numbers(expected), _numbers(found)
    if (
        set(taps) != set(calls)
        or expected_numbers.keys() != actual_numbers.keys()
        or len(expected_numbers) < 2
    ):
        return None

    def run(tap: Tap, formula: Formula) -> Tensors:
        def instead(met: Met) -> Any:
            met.result()  # what a native function gives is made of its own
            given = arguments.bound(tap.function, {}, {}, *bare(met.given))
            return formula(unit.backend.nn, given)

        with unit.backend.op_by_op():  # programs of so many formulas cost too much
            return _numbers(
                force(unit, calls, weights, instead={tap: instead}).observed
            )

    given = {}
    for name, call in record(unit).calls.items():
        if name.function in LOSSES:
            args, kwargs = filled(unit.network, call.given)
            given[name] = arguments.bound(name.function, {}, {}, args, kwargs)
    return Loss(run, given, expected_numbers, actual_numbers)


def _numbers(observed: Mapping[Tap, Observed]) -> Tensors:
    """The loss, and its gradient with respect to each output of the network."""
    whole = observed[UNIT]
    found = {VALUE: np.asarray(nest.leaves(whole.outputs)[0], np.float64)}
    for name, gradient in whole.inputs.items():
        if name.kind == OUTPUT and gradient is not None:
            found[str(name)] = gradient
    return found
