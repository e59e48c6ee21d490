"""Why a schedule differs: the reference's learning rates late, early, scaled or constant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.findings import MATCH, Explanation

Rates = np.ndarray


def explain_schedule(reference: Rates, candidate: Rates) -> Explanation:
    """Return the cause of other learning rates: such as late, scaled or never applied.

    Both arrays hold one rate for each step. Each cause gives all rates that the reference tells.
    """
    size = float(np.linalg.norm(candidate)) or 1.0
    apart = float(np.linalg.norm(reference - candidate)) / size
    for cause, rates in _causes(reference, candidate):
        known = np.isfinite(rates)
        match = float(np.linalg.norm((rates - candidate)[known])) / size
        if match <= MATCH:
            return Explanation(cause, match, apart)
    first = int(np.flatnonzero(reference != candidate)[0])
    return Explanation(
        f"the learning rate is {candidate[first]:.6g} instead of {reference[first]:.6g} at update "
        f"{first + 1}",
        np.inf,
    )


def _causes(reference: Rates, candidate: Rates) -> Iterator[tuple[str, Rates]]:
    """Causes with the rates that they give; what the reference does not tell is not finite."""
    start, first = candidate[0], reference[0]
    mine, its = _first_change(reference), _first_change(candidate)
    for shift in {its - mine, 1, -1} - {0} if mine else ():
        amount = "one step" if abs(shift) == 1 else f"{abs(shift)} steps"
        moved = np.roll(reference, shift)
        moved[slice(shift) if shift > 0 else slice(shift, None)] = np.nan
        late = "late" if shift > 0 else "early"
        yield (
            f"schedule {amount} {late}: it first changes at update {its + 1} instead of {mine + 1}",
            moved,
        )
    yield (
        f"schedule never applied: the learning rate stays {start:.6g}",
        np.full_like(reference, first),
    )
    if first:
        yield (
            f"learning rate times {start / first:.6g}: {start:.6g} instead of {first:.6g}",
            (start / first * reference),
        )


def _first_change(rates: Rates) -> int:
    changes = np.flatnonzero(np.diff(rates))
    return int(changes[0]) + 1 if changes.size else 0
