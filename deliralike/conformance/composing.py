"""The terms of two loss functions at the same network output: data for `explain.losses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.losses import Composition, Term, Total
from deliralike.conformance.findings import Observed, arrays_in, is_array
from deliralike.conformance.kinds import Named
from deliralike.conformance.locate.accusing import filled
from deliralike.conformance.observe import (
    Around,
    Call,
    Calls,
    Cotangents,
    Unit,
    cotangents,
    force,
    record,
)
from deliralike.conformance.observe.corresponding import Correspondence
from deliralike.conformance.places import UNIT, Tap, named, outputs

_MOST_TERMS = 8  # the last of which are looked at, each by a run of the loss


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
        for quantity, leaf in named(outputs(call.output, name), call.output).items():
            if is_array(leaf):
                given[str(quantity)] = leaf
    mine, its = (_total(side, calls, given) for side in (expected, found))
    if mine is None or its is None:
        return None
    terms = tuple(_terms(unit, calls, weights, mine))
    sides = (unit.backend, other.backend)
    # One that compiles nothing is the quicker one where many formulas run once.
    quick = (one for one in sides if isinstance(one.op_by_op(), nullcontext))
    backend, targets = next(quick, unit.backend), tuple(arrays_in(unit.args))
    return Composition(backend, given, terms, mine, its, targets)


def _total(observed: Mapping[Tap, Observed], calls: Calls, given: Named) -> Total | None:
    made = observed[UNIT].outputs
    inputs = {str(name): value for name, value in observed[UNIT].inputs.items()}
    known = {n: value for n, value in inputs.items() if n in given and value is not None}
    if set(calls) - set(observed) or set(given) - set(known) or np.size(made) != 1:
        return None
    return Total(float(np.ravel(made)[0]), known)


def _terms(unit: Unit, blocks: Calls, weights: Cotangents, whole: Total) -> Iterator[Term]:
    """The functions that give one number, on which the loss depends, the last ones first.

    A loss of each sample and the mean or sum of it are one function.
    """
    functions = {name: one for name, one in record(unit).calls.items() if one.path is None}
    of_samples: list[tuple[str, dict[str, Any], Any]] = []
    found = []
    for name, call in functions.items():
        function = name.function
        if not arguments.is_known(function):
            continue  # a function of the framework's that `nn` does not have
        given = filled(unit.network, call.given)
        bound = arguments.bound(function, {}, {}, *given)
        if bound.get("reduction") == "none":
            of_samples.append((function, bound, call.output))
        elif np.size(call.output) == 1 and np.ndim(next(iter(bound.values()), 0.0)):
            found.append((name, call, function, bound))
    for name, call, function, bound in found[: -_MOST_TERMS - 1 : -1]:
        factor, rest = _without(unit, {**blocks, name: _closed(call)}, weights, name, call)
        if not factor:
            continue
        if function in ("mean", "sum"):
            function, bound = _reduced(function, bound, of_samples)
        through = {path: value - rest[path] for path, value in whole.outputs.items()}
        own = Total(factor * float(np.ravel(call.output)[0]), through)
        yield Term(function, bound, own, factor)


def _closed(call: Call) -> Call:
    """A call whose own inputs are left as they are: some take no gradient."""
    args, kwargs = nest.map(lambda leaf: None if is_array(leaf) else leaf, call.given)
    return replace(call, args=args, kwargs=kwargs)


def _without(
    unit: Unit,
    calls: Calls,
    weights: Cotangents,
    name: Tap,
    call: Call,
) -> tuple[float, Named]:
    """The loss's derivative with respect to a function's result, and its gradient without that."""
    count = len(nest.leaves(call.given))
    around = {**weights, name: Around([None] * count, [None] * len(nest.leaves(call.output)))}
    found = force(unit, calls, around).observed[UNIT].inputs
    inputs = {str(quantity): value for quantity, value in found.items()}
    factor = inputs.get(f"the output of {name}")
    return 0.0 if factor is None else float(np.ravel(factor)[0]), inputs


def _reduced(
    reduction: str, bound: dict[str, Any], of_samples: list[tuple[str, dict[str, Any], Any]]
) -> tuple[str, dict[str, Any]]:
    """Return the loss whose values a mean or sum is given; that itself where there is none."""
    for function, settings, output in of_samples:
        if settings.get("weight") is None and np.array_equal(output, bound["x"]):
            return function, {**settings, "reduction": reduction}
    return reduction, bound
