"""Both loss functions at the same outputs of the network: data to explain them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.execute_variant import Bench
from deliralike.conformance.explain.loss_table import LOSSES
from deliralike.conformance.explain.losses import VALUE, Loss, formula_of
from deliralike.conformance.findings import MATCH, FailingBlock, Observed
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.locate.accusing import failing_block
from deliralike.conformance.locate.place import LOSS
from deliralike.conformance.observe import Call, Calls, Unit, cotangents, force, record
from deliralike.conformance.observe.corresponding import Correspondence
from deliralike.conformance.places import (
    ARGUMENT,
    OUTPUT,
    UNIT,
    Quantity,
    Tap,
    named,
    outputs,
)


def whole_loss(
    unit: Unit, other: Unit, correspondence: Correspondence
) -> tuple[Loss, tuple[FailingBlock, ...]] | None:
    """Both losses at the outputs of the reference's network, and the calls that may be the cause.

    Args:
        unit: The reference's loss, with the network's own call as a tap.
        other: The candidate's.
        correspondence: Which block of the candidate is which of the reference.

    Returns:
        None where the candidate does not call its network, or raises an error.
    """
    whole, theirs = (replace(one, functions=False) for one in (unit, other))
    calls = record(whole).calls
    weights = cotangents(whole, calls)
    expected = force(whole, calls, weights).observed
    try:
        taps = correspondence.counterpart(calls, theirs, None).taps
        found = correspondence.forced(theirs, taps, weights, None).observed
    except Exception:  # noqa: BLE001  # of a stranger's network
        return None
    mine, its = _numbers(expected), _numbers(found)
    if set(taps) != set(calls) or mine.keys() != its.keys() or len(mine) < 2:
        return None
    loss = Loss(mine, its)
    return loss, tuple(_accused(unit, calls, loss))


def _numbers(observed: Mapping[Tap, Observed]) -> Tensors:
    """The loss, and its gradient with respect to each output of the network."""
    whole = observed[UNIT]
    found = {VALUE: np.asarray(nest.leaves(whole.outputs)[0], np.float64)}
    for name, gradient in whole.inputs.items():
        if name.kind == OUTPUT and gradient is not None:
            found[str(name)] = gradient
    return found


def _accused(unit: Unit, networks: Calls, loss: Loss) -> Iterator[FailingBlock]:
    """The reference's calls of losses of `nn`, each as if all that differs came from there.

    What a call would have to give follows from the whole, which grows with it as its cotangent says.
    """
    mine, its = loss.reference, loss.candidate
    given = {}
    for tap, call in networks.items():
        for name, array in named(outputs(call.output, tap), call.output).items():
            given[str(name)] = array
    calls, alone = record(unit).calls, {}
    for tap, call in calls.items():  # some arguments forbid gradients
        alone[tap] = replace(call, args=(), kwargs={})
    around = cotangents(unit, alone)
    for tap, call in calls.items():
        if tap.function not in LOSSES or np.size(call.output) != 1:
            continue
        (share,) = around[tap].output
        first = next(iter(nest.leaves(call.args)), None)
        if first is None or not share:
            continue
        same = [n for n in mine if n in given and np.array_equal(given[n], first)]
        if not same:
            continue
        own = _alone(unit, tap, call)
        if relative_difference(call.output, own.get("output")) > MATCH:
            continue  # a native function may have settings that `nn` does not
        where = Quantity(ARGUMENT, "args[0]")
        value, slope = own["output"], own[str(where.slope)]
        other = value + (its[VALUE] - mine[VALUE]) / share
        other_slope = slope + (its[same[0]] - mine[same[0]]) / share
        pair = Observed(value, {where: slope}), Observed(other, {where: other_slope})
        yield failing_block(unit, LOSS, (tap.function, {}), call, pair, np.ones(()))


def _alone(unit: Unit, tap: Tap, call: Call) -> Tensors:
    """The value and gradients of one loss of `nn`."""
    pair = Observed(call.output), Observed(call.output)
    block = failing_block(unit, LOSS, (tap.function, {}), call, pair, np.ones(()))
    return Bench(block, unit.backend).everything(formula_of(tap.function)) or {}
