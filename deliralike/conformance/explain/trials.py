"""Conventions executed: the one driver for blocks, losses and an optimizer's updates.

A bench executes a formula with some choices applied, and says how far that is from what the
candidate gave; numbers are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    POSITIVE,
    Arguments,
    Choice,
    Convention,
    Formula,
    changing,
)
from deliralike.conformance.explain.enumeration import short_decimals
from deliralike.conformance.findings import MATCH

EXACT = 1e-12  # a match like this one is not improved any further
_ENOUGH = 4  # with fewer numbers to compare, one that is searched for fits anything
_ITERATIONS = 15
_STARTS = 2  # from which a search begins: the best may be the reference's own


@dataclass(frozen=True)
class Trial:
    """A cause that was executed, and how far the candidate is from it.

    Attributes:
        cause: In words.
        distance: Of all that was compared.
        distances: How far each tensor of a block is, by name.
    """

    cause: str
    distance: float
    distances: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether it explains what the candidate gave."""
        return self.distance <= MATCH

    def within(self, names: Iterable[str]) -> float:
        """The largest distance of some tensors; infinite where one was not computed."""
        return max((self.distances.get(name, np.inf) for name in names), default=0.0)


class Executor:
    """What executes formulas, and says how far the candidate is from what they give.

    Attributes:
        digits: Of a number that is found.
        given: What a formula is given.
    """

    digits = 6
    given: Arguments

    @property
    def data(self) -> int:
        """How many independent numbers are compared."""
        raise NotImplementedError

    def distance(self, formula: Formula) -> float:
        """How far the candidate is; infinite where a formula cannot be executed."""
        raise NotImplementedError

    def tried(self, choice: Choice, formula: Formula) -> Trial | None:
        """The formula with a choice applied; None where it cannot be executed."""
        return Trial(choice.cause, self.distance(choice.formula(formula)))

    def fitted(self, choice: Choice, formula: Formula) -> Choice | None:
        """A free choice with the number that comes nearest; None where nothing comes nearer."""

        def at(value: float) -> Choice:
            return replace(choice, words=float(f"{value:.{self.digits}g}"), value=value)

        def distance(value: float) -> float:
            return self.distance(at(value).formula(formula))

        if self.data < _ENOUGH:
            return None
        found: Choice | None = None
        best = self.distance(formula)
        for start in sorted(choice.words, key=distance)[:_STARTS]:
            value = _improved(distance, start, choice.convention.power)
            value = plainest(value, distance)
            if distance(value) < 0.999 * best:
                best, found = distance(value), at(value)
            if best <= MATCH:
                break
        return found


def number(
    words: str, name: str, starts: Sequence[float], usual: Any = None, unit: float = 1.0
) -> Convention:
    """A number over many decades that is searched for; `unit` is what is multiplied by it."""
    apply = changing(lambda nn, given, value: {name: value * unit})
    return Convention(words, tuple(starts), apply, usual, free=True, power=POSITIVE)


def run(
    conventions: Iterable[Convention], bench: Executor, formula: Formula
) -> Iterator[Trial]:
    """Each choice of some conventions."""
    for convention in conventions:
        for choice in convention.choices(bench.given):
            found = bench.fitted(choice, formula) if convention.free else choice
            trial = None if found is None else bench.tried(found, formula)
            if trial is not None:
                yield trial


# Numbers
# -----------------------------------------------------------------------------


def _improved(distance: Callable[[float], float], value: float, power: float) -> float:
    """A number that is nearer, by Newton's steps along its root of a power.

    The distance grows in proportion on both sides of the right number, so its slope says how far
    that is.
    """
    place, now = value ** (1.0 / power), distance(value)
    for _ in range(_ITERATIONS):
        width = max(1e-2 * min(now, 1e-4), 1e-12)  # less than what is left to go
        # downwards: weights of 0 cannot become smaller
        slope = (now - distance((place - width) ** power)) / width
        if now <= EXACT or not slope or not np.isfinite(slope):
            break
        step = min(max(now / slope, -3.0), 3.0)
        for _ in range(8):
            after = distance((place - step) ** power)
            if after < now:
                break
            step *= 0.25
        else:
            break
        place, now, before = place - step, after, now
        if now > 0.999 * before:
            break
    return place**power


def plainest(value: float, distance: Callable[[float], float]) -> float:
    """The same number with as few digits as do as well."""
    found = distance(value)
    for short in (0.0, *short_decimals(value, 6)):
        is_near = abs(short - value) <= 1e-3 * abs(value) + 1e-12
        if is_near and distance(short) <= max(2 * found, 1e-11):
            return short
    return value
