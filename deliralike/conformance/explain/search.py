"""The cause of a block's difference: conventions are executed until one gives what the candidate gave.

Outputs, buffers and gradients are all compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.by_name import only
from deliralike.conformance.causes import Cause
from deliralike.conformance.explain.execute_variant import Bench
from deliralike.conformance.explain.families import Family, family_of
from deliralike.conformance.explain.generic_transforms import around
from deliralike.conformance.explain.trials import Trial, run
from deliralike.conformance.findings import LIMIT, MATCH, Explanation, FailingBlock

PATIENCE = 4.0  # seconds
_NEAR = 0.03  # of the reference's own distance: what is farther is no hint


def explain(
    accused: FailingBlock, backend: Backend, patience: float = PATIENCE
) -> Explanation | None:
    """The most likely cause of what a block's candidate gave.

    Known conventions of its kind are executed on the reference's inputs, settings among them
    searched for in one dimension; the one that gives the candidate's outputs, buffers and gradients
    is the cause. What no convention explains is compared array by array.

    Args:
        accused: The block and what both sides gave.
        backend: What conventions are executed on, in float64.
        patience: After so many seconds of computing no more are tried; the likely ones come first.

    Returns:
        None where candidate and reference agree, or nothing can be said.
    """
    bench = Bench(accused, backend)
    if bench.itself.distance <= LIMIT:
        return _absent(accused)
    family = family_of(accused.kind, bench.given)
    if family is None:
        return None
    search = Search(bench, family, time.process_time() + patience)
    return search.explanation() if search.reproduces() else None


class Search:
    """The search for one block's cause, whose formula is to be the reference's.

    Attributes:
        bench: Where formulas are executed.
        family: The block's own formula and conventions.
        end: When to stop.
        itself: What the reference gave.
    """

    def __init__(self, bench: Bench, family: Family, end: float) -> None:
        self.bench, self.family, self.end = bench, family, end
        self.itself = bench.itself
        with_gradients = () if bench.reshaped or family.by_outputs else bench.gradients
        self.everything = bench.outputs + with_gradients + bench.buffers

    def explanation(self) -> Explanation | None:
        """What is known; None where nothing can be said."""
        trials: list[Trial] = []
        found = self.own(trials) or self.any(trials) or self._joined(trials)
        return found or self._in_part(trials) or _nearest(trials, self.itself)

    def own(self, trials: list[Trial] | None = None) -> Explanation | None:
        """The first convention of its family that gives what the candidate gave.

        Args:
            trials: Where those go that were executed.
        """
        own, formula = self.family.conventions, self.family.formula
        return self._first(run(own, self.bench, formula), trials)

    def any(self, trials: list[Trial] | None = None) -> Explanation | None:
        """The same, of those that any block may have."""
        further = around(self.bench.accused, self.bench.given)
        return self._first(run(further, self.bench, self.family.formula), trials)

    def _first(
        self, attempts: Iterable[Trial], trials: list[Trial] | None
    ) -> Explanation | None:
        trials = [] if trials is None else trials
        if time.process_time() > self.end:
            return None
        for trial in attempts:
            if self._explains(trial, self.everything):
                others = [one.within(self.everything) for one in trials]
                match = trial.within(self.everything)
                return Explanation.of(_causes(trial), match, min(others, default=None))
            trials.append(trial)
            if time.process_time() > self.end:
                return None
        return None

    def _joined(self, trials: list[Trial]) -> Explanation | None:
        """What gives the outputs and what is nearest for the buffers, executed together."""
        buffers, computed = self.bench.buffers, self.bench.outputs
        first = min(trials, key=lambda one: one.within(computed), default=self.itself)
        if not buffers or not self._explains(first, computed):
            return None
        second = min(trials, key=lambda one: one.within(buffers))
        trial = self.bench.tried(first.choices + second.choices, self.family.formula)
        return None if trial is None else self._first([trial], trials)

    def reproduces(self) -> bool:
        """Whether the family's formula gives what the reference gave, so that it may stand for it."""
        found = self.bench.forward(self.family.formula)
        if found is None:
            return False
        wanted = only(self.bench.reference, self.bench.outputs + self.bench.buffers)
        for name, value in wanted.items():
            if name not in found or found[name].shape != value.shape:
                return False
            if not np.allclose(
                found[name], value, rtol=1e-9, atol=1e-12, equal_nan=True
            ):
                return False
        return True

    # What it means
    # -------------------------------------------------------------------------

    def _explains(self, trial: Trial, names: Iterable[str]) -> bool:
        """Whether a trial gives all of some tensors: it must be much nearer than the reference."""
        names = tuple(names)
        return trial.within(names) <= _limit(self.itself.within(names))

    def _in_part(self, trials: Sequence[Trial]) -> Explanation | None:
        """A convention that gives the outputs alone, as a hint; None without one."""
        wrong = [
            name for name in self.bench.outputs if self.itself.distances[name] > LIMIT
        ]
        same = [one for one in trials if wrong and self._explains(one, wrong)]
        if not same:
            return None
        best = min(same, key=lambda one: len(self._left(one)))
        left = self._left(best)
        but = Cause(f"(the outputs match, but not {', '.join(left)})")
        return Explanation.of([*_causes(best), but], best.within(left))

    def _left(self, trial: Trial) -> list[str]:
        """The tensors that a trial does not explain."""
        names = self.everything
        return [name for name in names if trial.distances.get(name, np.inf) > LIMIT]


def _causes(trial: Trial) -> tuple[Cause, ...]:
    return tuple(choice.cause for choice in trial.choices)


def _limit(apart: float) -> float:
    """How near something must be that explains a difference."""
    return min(MATCH, 1e-3 * apart)


def _nearest(trials: Sequence[Trial], itself: Trial) -> Explanation | None:
    """The nearest convention as a hint, where it is much nearer than the reference."""
    apart = max(itself.distances.values())
    best = min(trials, key=lambda one: one.within(itself.distances), default=itself)
    distance = best.within(itself.distances)
    if best is itself or not MATCH < distance <= _NEAR * apart:
        return None
    return Explanation.of(_causes(best), distance)


def _absent(accused: FailingBlock) -> Explanation | None:
    """Gradients that are not there at all, which counts even where they would be zero."""
    mine, its = accused.reference.parameters, accused.candidate.parameters
    lacking = [
        name
        for name, value in mine.items()
        if value is not None and its.get(name) is None
    ]
    return (
        Explanation.seen(f"no gradient of {', '.join(lacking)} (missing)")
        if lacking
        else None
    )
