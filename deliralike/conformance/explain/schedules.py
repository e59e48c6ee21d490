"""Why a schedule differs: the reference's learning rates late, early, scaled or constant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.explain.trials import EXACT, Trial
from deliralike.conformance.findings import Explanation

Rates = np.ndarray
Known = Iterator[tuple[str, Rates]]  # causes with the rates that they give
_TAIL = 0.01  # of the steps, or one: so few may lie beyond what the reference tells


def explain_schedule(reference: Rates, candidate: Rates) -> Explanation:
    """Return the cause of other learning rates: such as late, scaled or never applied.

    Both arrays hold one rate for each step. Each cause gives all rates that were compared.
    """
    size = float(np.linalg.norm(candidate)) or 1.0
    tried = [Trial("", float(np.linalg.norm(reference - candidate)) / size)]
    for cause, rates in _causes(reference, candidate):
        known = np.isfinite(rates)
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
    start = candidate[0]
    mine, its = _first_change(reference), _first_change(candidate)
    moved = f"it first changes at update {its + 1} instead of {mine + 1}"
    if its == mine:
        moved = f"it begins at {_instead(start, reference[0])}"
    for shift in {1, -1, its - mine} - {0} if mine else ():
        amount = "one step" if abs(shift) == 1 else f"{abs(shift)} steps"
        words = f"schedule {amount} {'late' if shift > 0 else 'early'}: {moved}"
        yield words, _shifted(reference, candidate, shift)
    constant = np.full_like(reference, reference[0])
    yield f"schedule never applied: the learning rate stays {start:.6g}", constant
    ratio = float(start / reference[0]) if reference[0] else 1.0
    words = f"learning rate times {ratio:.6g}: {_instead(start, reference[0])}"
    yield words, ratio * reference


def _shifted(reference: Rates, candidate: Rates, shift: int) -> Rates:
    """Rates some steps later: before the start the first one, or whatever the candidate begins at."""
    steps = np.arange(len(reference)) - shift
    inside = reference[np.clip(steps, 0, len(reference) - 1)]
    untold = (steps >= len(reference)) | ((steps < 0) & (candidate != reference[0]))
    return np.where(untold, np.nan, inside)


def _first_change(rates: Rates) -> int:
    changes = np.flatnonzero(np.diff(rates))
    return int(changes[0]) + 1 if changes.size else 0
