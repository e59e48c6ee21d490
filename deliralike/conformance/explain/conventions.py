"""Conventions as data, and the one search that executes them.

A convention changes settings of a form: a dictionary that some simulation or formula takes. What it
gives is compared with what the candidate gave; numbers are searched for, vectors are solved for.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from deliralike.conformance.findings import MATCH, Explanation

PATIENCE = 4.0  # seconds, after which no more pairs are tried
NEAR = 1e-3  # of the difference itself: what leaves more of it says nothing
EXACT = 1e-12
_REFINED = 12  # of the nearest ones that are tried with a number as well
_REJECTED = 10.0  # in the place of what is not finite

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """Where a number is searched for: from a number to a place on the axis, and back."""

    place: Callable[[float], float] = float
    number: Callable[[float], float] = float


LINE = Axis()
LOG = Axis(
    lambda value: float(np.log(max(value, 1e-30))),
    lambda place: float(np.exp(np.clip(place, -70.0, 70.0))),
)
# Between 0 and 1, and near to 1 most of the time.
WEIGHT = Axis(
    lambda value: float(np.log1p(-min(value, 1 - 1e-12))),
    lambda place: 0.0 - float(np.expm1(np.clip(place, -27.0, 0.0))),
)


@dataclass(frozen=True)
class Convention:
    """Settings that a candidate may have instead of the reference's.

    Attributes:
        cause: What a report says, with a place for the number or vector that is found.
        changes: Settings by name.
        number: The setting that is searched for; empty where there is none.
        starts: Where the search begins.
        axis: Along which it goes.
        usual: What a found number is multiplied by, for settings that hold one for each parameter.
        vector: The length of a vector in the place of a number. The result must be linear in it
            under the settings of `linear`; it is solved for there.
        linear: See `vector`.
    """

    cause: str
    changes: Changes = field(default_factory=dict)
    number: str = ""
    starts: tuple[float, ...] = ()
    axis: Axis = LINE
    usual: Any = None
    vector: int = 0
    linear: Changes = field(default_factory=dict)

    def at(self, value: Any) -> dict[str, Any]:
        """The settings with the number that was found."""
        found = value if self.usual is None else self.usual * value
        return {**self.changes, self.number: found}

    def said(self, value: Any) -> str:
        """The cause with the number that was found."""
        return self.cause.format(shown(value))


@dataclass(frozen=True)
class Trial:
    """Settings that were executed, and how far the candidate is from what they give."""

    cause: str
    changes: Changes
    distance: float


class Judge(Protocol):
    """What executes settings and compares the result with the candidate's."""

    @property
    def data(self) -> int:
        """How many independent numbers are compared."""

    def residual(self, changes: Changes) -> np.ndarray:
        """The differences from the candidate, each relative."""

    def distance(self, residual: np.ndarray) -> float:
        """Of such differences; zero where the candidate is met."""

    def bound(self, changes: Changes) -> float:
        """A number that the distance is not below, and that costs little."""


def shown(value: Any) -> str:
    """A number or a vector as a report writes it.

    Example:
        >>> shown(0.30000000000000004), shown(np.array([0.4, 1.7]))
        ('0.3', '[0.4, 1.7]')
    """
    if np.ndim(value):
        return f"[{', '.join(f'{each:.6g}' for each in value)}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def search(
    conventions: Sequence[Convention],
    judge: Judge,
    patience: float = PATIENCE,
    thorough: bool = False,
    depth: int = 4,
) -> list[Trial]:
    """Execute conventions until one meets the candidate.

    Single ones come first, then numbers, then two at a time, then the nearest with a number.

    Args:
        conventions: Those that are more likely first.
        judge: What executes them.
        patience: After so many seconds no more are tried.
        thorough: Whether others of the same kind are tried as well when one meets the candidate.
        depth: How many of these four ways are tried; of a single number only the first two, since
            more than that fits anything.

    Returns:
        All that was executed, in that order.
    """
    trials: list[Trial] = []
    end = time.monotonic() + patience
    fixed = [one for one in conventions if not one.number]
    free = [one for one in conventions if one.number]
    stages: tuple[Callable[[], Iterator[Trial]], ...] = (
        lambda: (_executed(one.cause, one.changes, judge) for one in fixed),
        lambda: (trial for one in free for trial in _found(one, judge)),
        lambda: _pairs(trials[: len(fixed)], judge),
        lambda: with_numbers(trials[: len(fixed)], free, judge),
    )
    for stage in stages[: depth if judge.data > 2 else 2]:
        for trial in stage():
            trials.append(trial)
            is_met = trial.distance <= EXACT and not thorough
            if is_met or time.monotonic() > end:
                break
        if any(trial.distance <= MATCH for trial in trials) or time.monotonic() > end:
            break
    return trials


def _executed(cause: str, changes: Changes, judge: Judge) -> Trial:
    return Trial(cause, changes, judge.distance(judge.residual(changes)))


def _found(one: Convention, judge: Judge, around: Trial | None = None) -> Iterator[Trial]:
    """A convention with the number or vector that comes nearest, on top of another one or not."""
    changes = {} if around is None else around.changes
    prefix = "" if around is None else f"{around.cause}; and "
    value = _solved(one, changes, judge) if one.vector else _number(one, changes, judge)
    if value is not None:
        yield _executed(prefix + one.said(value), {**changes, **one.at(value)}, judge)


def _number(one: Convention, changes: Changes, judge: Judge) -> float | None:
    if judge.data < 3:  # two numbers and one of them free: what fits says little
        return _listed(one, changes, judge)

    def residual(values: Sequence[float]) -> np.ndarray:
        return judge.residual({**changes, **one.at(values[0])})

    distances = {start: judge.distance(residual([start])) for start in one.starts}
    nearest = sorted(one.starts, key=distances.__getitem__)
    found = []
    for start in nearest[:2]:  # the best may be the reference's own, from where nothing leads away
        (value,) = improved(residual, [start], [one.axis])
        (value,) = plainest([value], lambda values: judge.distance(residual(values)))
        found.append((judge.distance(residual([value])), value))
        if found[-1][0] <= MATCH:
            break
    return min(found)[1]


def _listed(one: Convention, changes: Changes, judge: Judge) -> float | None:
    """Where a single number is compared, any number fits: only one of few digits says something."""

    def distance(value: float) -> float:
        return judge.distance(judge.residual({**changes, **one.at(value)}))

    (value,) = improved(
        lambda values: judge.residual({**changes, **one.at(values[0])}),
        [min(one.starts, key=distance)],
        [one.axis],
    )
    return min((float(f"{value:.2e}"), *one.starts), key=distance)


def _solved(one: Convention, changes: Changes, judge: Judge) -> np.ndarray | None:
    """The vector in which the result is linear; None where there are too few data to tell."""
    if one.vector + 2 > judge.data:
        return None

    def residual(vector: np.ndarray) -> np.ndarray:
        return judge.residual({**changes, **one.changes, **one.linear, one.number: vector})

    base = residual(np.zeros(one.vector))
    columns = [residual(unit) - base for unit in np.eye(one.vector)]
    matrix = np.stack(columns, axis=1)
    if not (np.isfinite(matrix).all() and np.isfinite(base).all()):
        return None
    found, _, rank, _ = np.linalg.lstsq(matrix, -base, rcond=1e-12)
    return np.array([tidy(value) for value in found]) if rank == one.vector else None


def tidy(value: float) -> float:
    """A number without the rounding errors of its fit."""
    short = float(f"{value:.9e}")
    return short if abs(short - value) <= 1e-10 * abs(value) else float(value)


def _pairs(trials: Sequence[Trial], judge: Judge) -> Iterator[Trial]:
    """Two conventions at a time that change other settings."""
    for one, two in itertools.combinations(trials, 2):
        if one.changes.keys() & two.changes.keys():
            continue
        changes = {**one.changes, **two.changes}
        if judge.bound(changes) <= MATCH:
            yield _executed(f"{one.cause}; and {two.cause}", changes, judge)


def with_numbers(
    trials: Sequence[Trial], free: Sequence[Convention], judge: Judge
) -> Iterator[Trial]:
    """The nearest so far, each with a number that is searched for."""
    for trial in sorted(trials, key=lambda trial: trial.distance)[:_REFINED]:
        for one in free:
            if not (one.vector or trial.changes.keys() & {*one.changes, one.number}):
                yield from _found(one, judge, trial)


def improved(
    residual: Callable[[Sequence[float]], np.ndarray],
    values: Sequence[float],
    axes: Sequence[Axis],
    iterations: int = 15,
) -> list[float]:
    """Numbers that leave less, by Levenberg and Marquardt's steps along their axes."""

    def back(places: np.ndarray) -> list[float]:
        return [axis.number(place) for axis, place in zip(axes, places, strict=True)]

    def left(places: np.ndarray) -> np.ndarray:
        found = np.ravel(residual(back(places)))
        return np.clip(np.nan_to_num(found, nan=_REJECTED), -_REJECTED, _REJECTED)

    places = np.array([axis.place(value) for axis, value in zip(axes, values, strict=True)])
    now, damping = left(places), 1e-3
    for _ in range(iterations):
        cost = float(now @ now)
        if cost <= 1e-26:
            break
        steps = -1e-6 * np.eye(len(places))  # downwards: weights of 0 cannot become smaller
        slopes = np.stack([(left(places + step) - now) / -1e-6 for step in steps], axis=1)
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
    return back(places)


def plainest(values: list[float], distance: Callable[[list[float]], float]) -> list[float]:
    """The same numbers with as few digits as do as well."""
    found = distance(values)
    for place, value in enumerate(values):
        for digits in range(6):
            plain = [*values]
            plain[place] = float(f"{value:.{digits}e}")
            is_near = abs(plain[place] - value) <= 1e-3 * abs(value) + 1e-12
            if is_near and (reached := distance(plain)) <= max(2 * found, 1e-11):
                values, found = plain, reached
                break
    return values


def explanation(trials: Sequence[Trial], apart: float) -> Explanation | None:
    """The nearest trial; None where none comes much nearer than the reference itself.

    Args:
        trials: Of causes that match as well, the first ones are the simpler ones.
        apart: How far the candidate is from the reference.
    """
    best = min(trials, key=lambda trial: max(trial.distance, EXACT), default=None)
    if best is None or best.distance > max(NEAR * apart, EXACT):
        return None
    others = [trial.distance for trial in trials if trial.distance > max(best.distance, EXACT)]
    return Explanation(best.cause, best.distance, min([*others, apart]))
