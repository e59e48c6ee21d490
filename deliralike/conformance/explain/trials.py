"""Conventions executed: the one driver for blocks, losses and an optimizer's updates.

A bench executes a formula with some choices applied, and says how far that is from what the
candidate gave; numbers are searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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

        def residual(values: Sequence[float]) -> np.ndarray:
            return self.residual(at(values[0]).formula(formula))

        def distance(values: Sequence[float]) -> float:
            return self.distance(residual(values))

        if self.data < _ENOUGH:
            return None
        starts = sorted([[start] for start in choice.words], key=distance)
        found: list[tuple[float, list[float]]] = []
        for start in starts[:_STARTS]:
            values = improved(residual, start, [choice.convention.axis])
            values = plainest(values, distance)
            found.append((distance(values), values))
            if found[-1][0] <= MATCH:
                break
        (value,) = min(found)[1]
        return at(value)


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


def improved(
    residual: Callable[[Sequence[float]], np.ndarray],
    values: Sequence[float],
    axes: Sequence[Axis],
    iterations: int = 15,
) -> list[float]:
    """Numbers that leave less, by Levenberg and Marquardt's steps along their axes."""
    places = np.array(
        [axis.place(value) for axis, value in zip(axes, values, strict=True)]
    )
    left = partial(_left, residual, axes)
    now, damping = left(places), 1e-3
    for _ in range(iterations):
        cost = float(now @ now)
        if cost <= 1e-26:
            break
        steps = -1e-6 * np.eye(
            len(places)
        )  # downwards: weights of 0 cannot become smaller
        slopes = np.stack(
            [(left(places + step) - now) / -1e-6 for step in steps], axis=1
        )
        square, gradient = slopes.T @ slopes, slopes.T @ now
        for _ in range(8):
            damped = square + damping * np.diag(np.diag(square) + 1e-300)
            step = np.linalg.lstsq(damped, gradient, rcond=None)[0]
            moved = places - np.clip(step, -3.0, 3.0)
            after = left(moved)
            if float(after @ after) < cost:
                break
            damping *= 10.0
        else:
            break
        places, now, damping = moved, after, max(damping * 0.01, 1e-15)
        if float(now @ now) > cost * (1 - 1e-9):
            break
    return _numbers(axes, places)


def _numbers(axes: Sequence[Axis], places: np.ndarray) -> list[float]:
    return [axis.number(place) for axis, place in zip(axes, places, strict=True)]


def _left(
    residual: Callable[[Sequence[float]], np.ndarray],
    axes: Sequence[Axis],
    places: np.ndarray,
) -> np.ndarray:
    found = np.ravel(residual(_numbers(axes, places)))
    return np.clip(np.nan_to_num(found, nan=_REJECTED), -_REJECTED, _REJECTED)


def plainest(
    values: list[float], distance: Callable[[list[float]], float]
) -> list[float]:
    """The same numbers with as few digits as do as well."""
    found = distance(values)
    for place, value in enumerate(values):
        for short in short_decimals(value, 6):
            is_near = abs(short - value) <= 1e-3 * abs(value) + 1e-12
            if not is_near:
                continue
            plain = [*values[:place], short, *values[place + 1 :]]
            reached = distance(plain)
            if reached <= max(2 * found, 1e-11):
                values, found = plain, reached
                break
    return values
