"""Why a schedule differs: the reference's learning rates under other counts, factors and shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from deliralike.conformance.explain.trials import EXACT, Trial
from deliralike.conformance.explain.updates import Form, Trace, simulate
from deliralike.conformance.findings import MATCH, Explanation

Rates = np.ndarray
Known = Iterator[tuple[str, Rates]]  # causes with the rates that they give
_TAIL = 0.01  # of the steps, or one: so few may lie beyond what the reference tells
_NEAR = 1e-9  # relative: rates are read from updates


def used_rates(trace: Trace, form: Form | None) -> Rates | None:
    """The learning rate of each of the candidate's updates, as the updates themselves show it.

    Args:
        trace: With the rates that the reference used.
        form: The reference's rule; None where it is not known.

    Returns:
        Not finite where nothing tells; None where the updates differ by more than a factor of each
        step.
    """
    its, ones = trace.candidate, np.ones_like(trace.rates)
    with np.errstate(all="ignore"):
        unit = trace.reference / trace.rates[:, None]
    if form is not None:
        unit = simulate(form, replace(trace, rates=ones))
    unit = np.nan_to_num(unit, nan=0.0)
    squares = (unit * unit).sum(1)
    rates = np.full(len(ones), np.nan)
    np.divide((unit * its).sum(1), squares, out=rates, where=squares > 0)
    left = np.linalg.norm(its - np.nan_to_num(rates)[:, None] * unit, axis=1)
    is_known = left <= MATCH * np.linalg.norm(its, axis=1)
    return rates if (is_known | (squares == 0.0)).all() else None


def explain_schedule(reference: Rates, candidate: Rates) -> Explanation:
    """Return the cause of other learning rates: such as late, scaled or never applied.

    Both arrays hold one rate for each step. Each cause gives all rates that were compared.
    """
    size = float(np.linalg.norm(candidate[np.isfinite(candidate)])) or 1.0
    tried = [Trial("", float(np.linalg.norm(reference - candidate)) / size)]
    for cause, rates in _causes(reference, candidate):
        known = np.isfinite(rates) & np.isfinite(candidate)
        if (~known).sum() <= max(1.0, _TAIL * len(rates)):
            away = float(np.linalg.norm((rates - candidate)[known])) / size
            tried.append(Trial(cause, away))
    best = min(tried, key=lambda trial: max(trial.distance, EXACT))
    if not best.is_met:
        return Explanation(_side_by_side(reference, candidate), np.inf)
    others = [trial.distance for trial in tried if not trial.is_met]
    return Explanation(best.cause, best.distance, min(others))


def _side_by_side(reference: Rates, candidate: Rates) -> str:
    """The learning rates of both at some steps."""
    first = int(np.flatnonzero(reference != candidate)[0])
    shown = []
    for place in (first, first + 1, 2 * first + 10, 10 * first + 100):
        if place < len(reference):
            shown.append(f"{_instead(candidate[place], reference[place])} at update {place + 1}")
    return f"the learning rate is {', '.join(shown)}"


def _instead(its: float, mine: float) -> str:
    return f"{its:.6g} instead of {mine:.6g}"


def _causes(reference: Rates, candidate: Rates) -> Known:
    """What the reference does not tell is not finite."""
    steps, start, last = np.arange(len(reference)), candidate[0], len(reference) - 1
    mine, its = _first_change(reference), _first_change(candidate)
    moved = f"it first changes at update {its + 1} instead of {mine + 1}"
    if its == mine:
        moved = f"it begins at {_instead(start, reference[0])}"
    for shift in {1, -1, its - mine} - {0} if mine else ():
        amount = "one step" if abs(shift) == 1 else f"{abs(shift)} steps"
        words = f"schedule {amount} {'late' if shift > 0 else 'early'}: {moved}"
        yield words, _shifted(reference, candidate, shift)
    constant = np.full(len(steps), reference[0])
    yield f"schedule never applied: the learning rate stays {start:.6g}", constant
    ratio = float(start / reference[0]) if reference[0] else 1.0
    words = f"learning rate times {ratio:.6g}: {_instead(start, reference[0])}"
    yield words, ratio * reference
    for stretch in {2, 10, 100, _ratio(its, mine), _ratio(mine, its)}:
        units = f"as if counted in other units: {moved}"
        yield f"schedule {stretch} times as slow, {units}", reference[steps // stretch]
        fast = reference[np.minimum(steps * stretch, last)]
        yield f"schedule {stretch} times as fast, {units}", fast
    yield from _warm_ups(reference, candidate)


def _shifted(reference: Rates, candidate: Rates, shift: int) -> Rates:
    """Rates some steps later: before the start the first one, or whatever the candidate begins at."""
    steps = np.arange(len(reference)) - shift
    inside = reference[np.clip(steps, 0, len(reference) - 1)]
    untold = (steps >= len(reference)) | ((steps < 0) & (candidate != reference[0]))
    return np.where(untold, np.nan, inside)


def _first_change(rates: Rates) -> int:
    changes = np.flatnonzero(np.abs(np.diff(rates)) > _NEAR * np.abs(rates[:-1]))
    return int(changes[0]) + 1 if changes.size else 0


def _ratio(slow: int, fast: int) -> int:
    return max(2, round(slow / max(fast, 1)))


def _warm_ups(reference: Rates, candidate: Rates) -> Known:
    """A linear rise over the first steps, of the candidate alone or of the reference alone."""
    differing = np.flatnonzero(np.abs(candidate - reference) > _NEAR * np.abs(reference))
    last = int(differing[-1]) + 1 if differing.size else 0
    for length, offset in itertools.product((last, last + 1), (0, 1)):
        share = np.minimum((np.arange(len(reference)) + offset) / max(length, 1), 1.0)
        words = f"warm-up over the first {length} steps"
        begins = f"from {candidate[0]:.6g} at update 1"
        yield f"a {words}, {begins}, that the reference lacks", reference * share
        with np.errstate(all="ignore"):
            without = np.where(share > 0, reference / share, candidate[0])
        yield f"no {words}", without
