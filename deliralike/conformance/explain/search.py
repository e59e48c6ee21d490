"""The cause of a block's difference: conventions are executed until one gives what the candidate gave.

Outputs, buffers and gradients are all compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.by_name import only
from deliralike.conformance.explain.convention import Convention, Formula
from deliralike.conformance.explain.execute_variant import Bench
from deliralike.conformance.explain.families import known_of
from deliralike.conformance.explain.generic_transforms import generic_conventions
from deliralike.conformance.explain.trials import Trial, run
from deliralike.conformance.findings import LIMIT, MATCH, Explanation, FailingBlock

PATIENCE = 4.0  # seconds
_NEAR = 0.03  # of the reference's own distance: what is farther is no hint


def explain(accused: FailingBlock, backend: Backend) -> Explanation | None:
    """The most likely cause of what a block's candidate gave.

    Known conventions of its kind are executed on the reference's inputs, then those that any block
    may have, settings among them searched for in one dimension; the first that gives the
    candidate's outputs, buffers and gradients is the cause.

    Args:
        accused: The block and what both sides gave.
        backend: What conventions are executed on, in float64.

    Returns:
        None where candidate and reference agree, or nothing can be said.
    """
    bench = Bench(accused, backend)
    if bench.itself.distance <= LIMIT:
        return _absent(accused)
    known = known_of(accused.kind, bench.given)
    if known is None or not reproduces(bench, known[0]):
        return None
    formula, own = known
    end = time.process_time() + PATIENCE
    others: list[Trial] = []
    conventions = chain(own, generic_conventions(bench.accused, bench.given))
    found = first_match(bench, conventions, formula, end, others)
    return found or _nearest(others, bench.itself)


def first_match(
    bench: Bench,
    conventions: Iterable[Convention],
    formula: Formula,
    end: float,
    others: list[Trial],
) -> Explanation | None:
    """The first convention that gives what the candidate gave: outputs, buffers and gradients.

    Args:
        bench: Where conventions are executed.
        conventions: The likely ones first.
        formula: What they change.
        end: When to stop, in seconds of computing.
        others: Those that were executed before, to which those that do not match are added.
    """
    everything = bench.outputs + bench.buffers
    if not bench.reshaped:
        everything += bench.gradients
    # it must be much nearer than the reference
    limit = min(MATCH, 1e-3 * bench.itself.within(everything))
    for trial in run(conventions, bench, formula):
        match = trial.within(everything)
        if match <= limit:
            near = min((one.within(everything) for one in others), default=None)
            return Explanation(trial.cause, match, near)
        others.append(trial)
        if time.process_time() > end:
            break
    return None


def reproduces(bench: Bench, formula: Formula) -> bool:
    """Whether a formula gives what the reference gave, so that it may stand for it."""
    found = bench.forward(formula)
    if found is None:
        return False
    wanted = only(bench.reference, bench.outputs + bench.buffers)
    for name, value in wanted.items():
        if name not in found or found[name].shape != value.shape:
            return False
        if not np.allclose(found[name], value, rtol=1e-9, atol=1e-12, equal_nan=True):
            return False
    return True


def _nearest(trials: Sequence[Trial], itself: Trial) -> Explanation | None:
    """The nearest convention as a hint, where it is much nearer than the reference."""
    apart = max(itself.distances.values())
    best = min(trials, key=lambda one: one.within(itself.distances), default=itself)
    distance = best.within(itself.distances)
    is_near = MATCH < distance <= _NEAR * apart and np.isfinite(distance)
    if best is itself or not is_near:
        return None
    return Explanation(best.cause, distance)


def _absent(accused: FailingBlock) -> Explanation | None:
    """Gradients that are not there at all, which counts even where they would be zero."""
    parameters, lacking = accused.candidate.parameters, []
    for name, value in accused.reference.parameters.items():
        if value is not None and parameters.get(name) is None:
            lacking.append(name)
    if not lacking:
        return None
    return Explanation.from_observation(
        f"no gradient of {', '.join(lacking)} (missing)"
    )
