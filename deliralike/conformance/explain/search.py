"""The cause of a block's difference: conventions are executed until one gives what the candidate gave.

Outputs, buffers and gradients are all compared. Where no single convention explains them, those for
the outputs and those for the buffers are executed together: a batch norm with another epsilon *and*
another momentum differs in its outputs by the one and in its buffers by the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.causes import Cause
from deliralike.conformance.explain import relations
from deliralike.conformance.explain.anything import around
from deliralike.conformance.explain.arguments import bound, names
from deliralike.conformance.explain.bench import Bench, Tensors, arrays_given
from deliralike.conformance.explain.convention import Choice, Convention, Formula
from deliralike.conformance.explain.families import Family, family_of
from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.losses import explain_loss
from deliralike.conformance.findings import LIMIT, MATCH, Accused, Explanation
from deliralike.conformance.places import ARGUMENT, Quantity

PATIENCE = 4.0  # seconds
LOSSES = (
    "cross_entropy",
    "focal_loss",
    "bce_with_logits",
    "binary_focal_loss",
    "mse_loss",
    "l1_loss",
    "dice_loss",
    "tversky_loss",
)
_NEAR = 0.03  # of the reference's own distance: what is farther is no hint


@dataclass(frozen=True)
class Trial:
    """What some choices gave together, and how far that is from the candidate's, by tensor."""

    choices: tuple[Choice, ...]
    formula: Formula
    tensors: Tensors
    distances: Mapping[str, float]

    def within(self, names: Iterable[str]) -> float:
        """The largest distance of some tensors; infinite where one was not computed."""
        return max((self.distances.get(name, np.inf) for name in names), default=0.0)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """What a report says."""
        return tuple(choice.cause for choice in self.choices)


def explain(
    accused: Accused, backend: Backend, patience: float = PATIENCE, seed: int = 0
) -> Explanation | None:
    """The most likely cause of what a block's candidate gave.

    Known conventions of its kind are executed on the reference's inputs, settings among them
    searched for in one dimension; the one that gives the candidate's outputs, buffers and gradients
    is the cause. What no convention explains is compared array by array.

    Args:
        accused: The block and what both sides gave.
        backend: What conventions are executed on, in float64.
        patience: After so many seconds no more are tried; the likely ones come first.
        seed: Of the portable random stream in which both were run.

    Returns:
        None where candidate and reference agree, or nothing can be said.
    """
    if accused.kind in LOSSES:
        return _of_loss(accused)
    bench = Bench(accused, backend, seed)
    distances = bench.distances(bench.reference)
    if max(distances.values(), default=0.0) <= LIMIT:
        return _absent(accused)
    family = family_of(accused.kind, bench.given)
    search = Search(bench, family, time.monotonic() + patience)
    return search.explanation(distances)


class Search:
    """The search for one block's cause.

    Attributes:
        bench: Where formulas are executed.
        family: The block's own formula and conventions; None for a block that is not known.
        end: When to stop.
    """

    def __init__(self, bench: Bench, family: Family | None, end: float) -> None:
        self.bench, self.family, self.end = bench, family, end
        with_gradients = () if bench.reshaped else bench.gradients
        self.computed = bench.outputs + with_gradients
        self.everything = self.computed + bench.buffers

    def explanation(self, distances: Mapping[str, float]) -> Explanation | None:
        """What is known; None where nothing can be said."""
        itself = Trial((), _nothing, self.bench.reference, distances)
        family = self.family
        if family is None or not self.reproduces(family.formula):
            return self._by_arrays(itself)
        itself = Trial((), family.formula, self.bench.reference, distances)
        trials: list[Trial] = []
        if (found := self.first(itself, trials)) is not None:
            return found
        for trial in self._joined(trials, itself):
            if self._explains(trial, itself, self.everything):
                return self._found(trial, trials)
        return self._in_part(trials, itself) or self._by_arrays(itself) or _nearest(trials, itself)

    def first(self, itself: Trial, trials: list[Trial] | None = None) -> Explanation | None:
        """The first known choice that gives what the candidate gave.

        Args:
            itself: What the reference gave.
            trials: Where those go that were executed.
        """
        if self.family is None or not self.reproduces(self.family.formula):
            return None
        found = self.own(itself, trials)
        return self.any(itself, trials) if found is None else found

    def own(self, itself: Trial, trials: list[Trial] | None = None) -> Explanation | None:
        """The same, of the conventions that its family has; its formula must be the reference's."""
        if self.family is None:
            return None
        return self._first(self._owned(self.family), itself, trials)

    def any(self, itself: Trial, trials: list[Trial] | None = None) -> Explanation | None:
        """The same, of those that any block may have."""
        if self.family is None:
            return None
        further = around(self.bench.accused, self.bench.given)
        return self._first(self._each(further, self.family.formula), itself, trials)

    def _first(
        self, made: Iterable[Trial], itself: Trial, trials: list[Trial] | None
    ) -> Explanation | None:
        trials = [] if trials is None else trials
        if time.monotonic() > self.end:
            return None
        for trial in made:
            trials.append(trial)
            if self._explains(trial, itself, self.everything):
                return self._found(trial, trials)
            if time.monotonic() > self.end:
                return None
        return None

    # What is executed
    # -------------------------------------------------------------------------

    def _owned(self, family: Family) -> Iterator[Trial]:
        """Every known choice by itself, then those that join in pairs."""
        own = family.conventions
        yield from self._each(own, family.formula)
        yield from self._pairs([one for one in own if one.joins], family.formula)

    def _each(self, conventions: Iterable[Convention], formula: Formula) -> Iterator[Trial]:
        for convention in conventions:
            for choice in convention.choices(self.bench.given):
                if (trial := self._tried((choice,), formula)) is not None:
                    yield trial

    def _pairs(self, conventions: Sequence[Convention], formula: Formula) -> Iterator[Trial]:
        conventions = sorted(conventions, key=lambda one: one.free)  # which is searched for last
        for count in (2, 3):
            for some in combinations(conventions, count):
                if (
                    len({one.joins for one in some}) > 1
                    or len({one.setting for one in some}) < count
                ):
                    continue
                given = (list(one.choices(self.bench.given)) for one in some)
                for choices in product(*given):
                    if (trial := self._tried(choices, formula)) is not None:
                        yield trial

    def _tried(self, choices: Sequence[Choice], formula: Formula) -> Trial | None:
        """Choices applied in turn; the number of the last one is searched for if it is free."""
        *first, last = choices
        for choice in first:
            formula = choice.formula(formula)
        found = self.bench.fitted(last, formula) if last.convention.free else last
        return None if found is None else self._run((*first, found), found.formula(formula))

    def _run(self, choices: tuple[Choice, ...], formula: Formula) -> Trial | None:
        """Outputs and buffers, and gradients where the outputs are the candidate's."""
        bench, cause = self.bench, " ".join(str(choice.cause) for choice in choices)
        tensors = bench.forward(formula, cause)
        if tensors is None:
            return None
        trial = Trial(choices, formula, tensors, bench.distances(tensors))
        if trial.within(bench.outputs) > MATCH or bench.reshaped or not bench.gradients:
            return trial
        tensors = bench.everything(formula, cause)
        if tensors is None:
            return None
        return Trial(choices, formula, tensors, bench.distances(tensors))

    def _joined(self, trials: Sequence[Trial], itself: Trial) -> Iterator[Trial]:
        """The nearest one for what is computed and the nearest one for buffers, executed together."""
        if not self.bench.buffers or not trials:
            return
        first = min(trials, key=lambda one: max(one.within(self.computed), EXACT))
        if not self._explains(first, itself, self.computed):
            return
        ordered = sorted(trials, key=lambda one: max(one.within(self.bench.buffers), EXACT))
        for second in ordered[:3]:
            formula = first.formula
            for choice in second.choices:
                formula = choice.formula(formula)
            if (trial := self._run(first.choices + second.choices, formula)) is not None:
                yield trial

    def reproduces(self, formula: Formula) -> bool:
        """Whether a formula gives what the reference gave, so that it may stand for it."""
        found = self.bench.forward(formula)
        names = self.bench.outputs + self.bench.buffers
        wanted = {
            name: self.bench.reference[name] for name in names if name in self.bench.reference
        }
        return found is not None and all(
            name in found
            and found[name].shape == value.shape
            and np.allclose(found[name], value, rtol=1e-9, atol=1e-12, equal_nan=True)
            for name, value in wanted.items()
        )

    # What it means
    # -------------------------------------------------------------------------

    def _explains(self, trial: Trial, itself: Trial, names: Iterable[str]) -> bool:
        """Whether a trial gives all of some tensors: it must be much nearer than the reference."""
        names = tuple(names)
        return trial.within(names) <= _limit(itself.within(names))

    def _found(self, trial: Trial, trials: Sequence[Trial]) -> Explanation:
        others = [one.within(self.everything) for one in trials if one is not trial]
        return Explanation.of(
            trial.causes, trial.within(self.everything), min(others, default=None)
        )

    def _in_part(self, trials: Sequence[Trial], itself: Trial) -> Explanation | None:
        """A cause of the outputs, with relations for what it leaves; None without one."""
        outputs = self.bench.outputs
        wrong = [name for name in outputs if itself.distances[name] > LIMIT]
        same = [one for one in trials if self._explains(one, itself, wrong)] if wrong else [itself]
        if not same:
            return None
        best = min(same, key=lambda one: len(self._left(one)))
        left = self._left(best)
        related = [self._related(best, name) for name in left]
        if any(one is None for one in related):
            return self._contradicted(best, left) if best.causes else None
        pairs = [one for one in related if one is not None]
        causes = (*best.causes, *_shared([cause for cause, _ in pairs]))
        match = max([best.within(wrong), *(distance for _, distance in pairs)])
        return Explanation.of(causes, match, itself.within(left or wrong)) if causes else None

    def _left(self, trial: Trial) -> list[str]:
        """The tensors that a trial does not explain."""
        names = self.everything
        return [name for name in names if trial.distances.get(name, np.inf) > LIMIT]

    def _related(self, trial: Trial, name: str) -> tuple[Cause, float] | None:
        """A known relation between a trial's array and the candidate's."""
        mine, its = trial.tensors.get(name), self.bench.wanted.get(name)
        apart = self.bench.distances(self.bench.reference)[name]
        if apart <= LIMIT:
            return Cause(name, "as in the reference"), apart
        found = relations.nearest(mine, its)
        if found is None or found.distance > _limit(trial.distances.get(name, np.inf)):
            return None
        return Cause(name, found.cause), found.distance

    def _contradicted(self, trial: Trial, left: Sequence[str]) -> Explanation:
        """A cause of the outputs that does not hold, since something does not follow it."""
        but = Cause(f"(the outputs match, but not {', '.join(left)})")
        return Explanation.of((*trial.causes, but), trial.within(left))

    def _by_arrays(self, itself: Trial) -> Explanation | None:
        """What shows between outputs and inputs; None where it is not enough to explain them."""
        bench, causes, worst = self.bench, [], 0.0
        inputs = arrays_given(bench.accused)
        wrong = [name for name in bench.outputs if itself.distances[name] > LIMIT]
        for name in wrong:
            mine, its = bench.reference.get(name), bench.wanted.get(name)
            if mine is None or its is None:
                return None  # not called at all, which is said elsewhere
            found = relations.nearest(mine, its, inputs)
            if found is None or found.distance > _limit(itself.distances[name]):
                return None
            causes.append(Cause(name, found.cause))
            worst = max(worst, found.distance)
        if wrong:
            causes.append(Cause("(by the outputs alone)"))
            return Explanation.of(causes, worst, itself.within(wrong))
        return self._in_part([], itself)


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
    return Explanation.of(best.causes, distance)


def _shared(causes: Sequence[Cause]) -> list[Cause]:
    """Causes with the same words for several tensors as one."""
    names: dict[str, list[str]] = {}
    for cause in causes:
        names.setdefault(cause.value, []).append(cause.setting)
    return [Cause(", ".join(some), value) for value, some in names.items()]


def _nothing(nn: object, given: object) -> None:
    """The formula of a block that is not known."""


def _absent(accused: Accused) -> Explanation | None:
    """Gradients that are not there at all, which counts even where they would be zero."""
    mine, its = accused.reference.parameters, accused.candidate.parameters
    lacking = [name for name, value in mine.items() if value is not None and its.get(name) is None]
    return Explanation.seen(f"no gradient of {', '.join(lacking)} (missing)") if lacking else None


def _of_loss(accused: Accused) -> Explanation | None:
    """The cause of a loss of `nn`, which has a value and the gradient of its first argument."""
    given = bound(accused.kind, accused.settings, {}, accused.args, accused.kwargs)
    prediction, target = (given.pop(name) for name in names(accused.kind)[:2])
    weights = [value for value in nest.leaves(accused.cotangent) if value is not None]
    scale = float(np.ravel(weights[0])[0]) if weights and np.size(weights[0]) == 1 else 0.0
    sides = []
    for side in (accused.reference, accused.candidate):
        if np.size(side.outputs) != 1 or side.outputs is None:
            return None
        gradient = side.inputs.get(Quantity(ARGUMENT, "args[0]")) if scale else None
        sides.append(
            (float(np.ravel(side.outputs)[0]), None if gradient is None else gradient / scale)
        )
    return explain_loss(prediction, target, sides[0], sides[1], given, accused.kind)
