"""Conventions executed: the one driver for blocks, losses and an optimizer's updates.

A bench executes a formula with some choices applied, and says how far that is from what the
candidate gave; numbers are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike.conformance.causes import sentence
from deliralike.conformance.explain.axes import LINE, Axis
from deliralike.conformance.explain.convention import (
    Arguments,
    Choice,
    Convention,
    Formula,
    changing,
)
from deliralike.conformance.explain.enumeration import short_decimals
from deliralike.conformance.findings import MATCH
from deliralike.conformance.kinds import Arrays, Named

EXACT = 1e-12  # a match like this one is not improved any further
_ENOUGH = 4  # with fewer numbers to compare, one that is searched for fits anything
_REJECTED = 10.0  # in the place of what is not finite
_ITERATIONS = 15
_STARTS = 2  # from which a search begins: the best may be the reference's own


@dataclass(frozen=True)
class Trial:
    """A cause that was executed, and how far the candidate is from it.

    Attributes:
        cause: In words.
        distance: Of all that was compared.
        choices: What was applied, if it is told by conventions.
        tensors, distances: What a block gave, and how far each of that is, by name.
    """

    cause: str
    distance: float
    choices: tuple[Choice, ...] = ()
    tensors: Arrays = field(default_factory=dict)
    distances: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether it explains what the candidate gave."""
        return self.distance <= MATCH

    def within(self, names: Iterable[str]) -> float:
        """The largest distance of some tensors; infinite where one was not computed."""
        return max((self.distances.get(name, np.inf) for name in names), default=0.0)


class Vectors:
    """What executes formulas, with results that are compared as vectors.

    Attributes:
        digits: Of a number that is found.
    """

    digits = 6

    @property
    def data(self) -> int:
        """How many independent numbers are compared."""
        raise NotImplementedError

    @property
    def given(self) -> Arguments:
        """What a formula is given."""
        raise NotImplementedError

    def residual(self, formula: Formula) -> np.ndarray:
        """The differences from the candidate, each relative."""
        raise NotImplementedError

    def distance(self, residual: np.ndarray) -> float:
        """Of such differences; zero where the candidate is met."""
        raise NotImplementedError

    def tried(self, choices: tuple[Choice, ...], formula: Formula) -> Trial | None:
        """The formula with some choices applied; None where it cannot be executed."""
        left = self.residual(combined(choices, formula))
        return Trial(
            sentence([one.cause for one in choices]), self.distance(left), choices
        )

    def fitted(self, choice: Choice, formula: Formula) -> Choice | None:
        """A free choice with the number that comes nearest; None where nothing tells it."""

        def at(value: float) -> Choice:
            return replace(choice, words=float(f"{value:.{self.digits}g}"), value=value)

        def residual(value: float) -> np.ndarray:
            return self.residual(at(value).formula(formula))

        def distance(value: float) -> float:
            return self.distance(residual(value))

        if self.data < _ENOUGH:
            return None
        found: list[tuple[float, float]] = []
        for start in sorted(choice.words, key=distance)[:_STARTS]:
            value = _improved(residual, start, choice.convention.axis)
            value = _plainest(value, distance)
            found.append((distance(value), value))
            if found[-1][0] <= MATCH:
                break
        return at(min(found)[1])


def number(
    words: str,
    name: str,
    starts: Sequence[float],
    axis: Axis = LINE,
    also: Named | None = None,
    usual: Any = None,
    unit: float = 1.0,
) -> Convention:
    """A number that is searched for.

    Args:
        also: What else is then set.
        unit: What is multiplied by it.
    """
    others = dict(also or {})
    apply = changing(lambda nn, given, value: {**others, name: value * unit})
    return Convention(
        words, tuple(starts), apply, usual, free=True, axis=axis, name=name
    )


def run(
    conventions: Iterable[Convention],
    bench: Vectors,
    formula: Formula,
    before: tuple[Choice, ...] = (),
) -> Iterator[Trial]:
    """Each choice of some conventions, on top of others or not."""
    own = combined(before, formula)
    for convention in conventions:
        for choice in convention.choices(bench.given):
            found = bench.fitted(choice, own) if convention.free else choice
            trial = None if found is None else bench.tried((*before, found), formula)
            if trial is not None:
                yield trial


def combined(choices: Iterable[Choice], formula: Formula) -> Formula:
    """A formula with several choices applied."""
    for choice in choices:
        formula = choice.formula(formula)
    return formula


# Numbers
# -----------------------------------------------------------------------------


def _improved(
    residual: Callable[[float], np.ndarray], value: float, axis: Axis
) -> float:
    """A number that leaves less, by Levenberg and Marquardt's steps along its axis."""

    def left(place: float) -> np.ndarray:
        found = np.nan_to_num(np.ravel(residual(axis.number(place))), nan=_REJECTED)
        return np.clip(found, -_REJECTED, _REJECTED)

    place, damping = axis.place(value), 1e-3
    now = left(place)
    for _ in range(_ITERATIONS):
        cost = float(now @ now)
        if cost <= 1e-26:
            break
        # downwards: weights of 0 cannot become smaller
        slope = (left(place - 1e-6) - now) / -1e-6
        square, gradient = float(slope @ slope), float(slope @ now)
        for _ in range(8):
            step = gradient / (square * (1.0 + damping) + 1e-300)
            moved = place - min(max(step, -3.0), 3.0)
            after = left(moved)
            if float(after @ after) < cost:
                break
            damping *= 10.0
        else:
            break
        place, now, damping = moved, after, max(damping * 0.01, 1e-15)
        if float(now @ now) > cost * (1 - 1e-9):
            break
    return axis.number(place)


def _plainest(value: float, distance: Callable[[float], float]) -> float:
    """The same number with as few digits as do as well."""
    found = distance(value)
    for short in short_decimals(value, 6):
        is_near = abs(short - value) <= 1e-3 * abs(value) + 1e-12
        if is_near and distance(short) <= max(2 * found, 1e-11):
            return short
    return value
