"""How near a loss is to another: by its value, and by its derivatives along a few random directions.

The derivative of a formula along a direction is exact by a complex step: ``f(x + ih d) = f(x) + ih f'(x) d``. So each
convention is one formula, without a gradient of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.fitting import fit
from deliralike.conformance.explain.variant import number

STEP = 1e-30
DIRECTIONS = 8
_FEW = 4  # digits of a number that somebody may have written

Loss = Callable[[np.ndarray], Any]  # from a (complex) prediction to a scalar
Found = Iterator[tuple[str, float]]  # causes, and how far the candidate is from each


@dataclass(frozen=True)
class Known:
    """A loss under some convention; with a free number where `starts` has where to look for it."""

    cause: str
    loss: Callable[..., Any]
    starts: tuple[float, ...] = ()
    least: float = -1e6
    most: float = 1e6

    def at(self, value: float) -> Known:
        """One with a free number, with that number."""
        return Known(self.cause.format(number(value)), partial(_at, self.loss, value))

    def of(self, path: Callable[[np.ndarray], np.ndarray]) -> Known:
        """The same of what a path makes of the prediction."""
        return Known(self.cause, lambda z, *value: self.loss(path(z), *value), self.starts, self.least, self.most)


def _at(loss: Callable[..., Any], value: float, x: np.ndarray) -> Any:
    return loss(x, value)


class Judge:
    """Losses of one prediction as vectors: the value, then the derivative along each of some fixed directions.

    Args:
        point: The prediction.
        with_gradient: Whether gradients are known.
    """

    def __init__(self, point: np.ndarray, with_gradient: bool = True) -> None:
        generator = np.random.default_rng(0)
        self.point, self.with_gradient = point, with_gradient
        self.directions = [generator.standard_normal(point.shape) for _ in range(DIRECTIONS * with_gradient)]

    def seen(self, value: float, gradient: np.ndarray | None) -> np.ndarray:
        """The vector of a loss that was run."""
        along = [np.nan if gradient is None else float((gradient * d).sum()) for d in self.directions]
        return np.array([float(value), *along])

    def of(self, loss: Loss) -> np.ndarray:
        """The vector of a formula."""
        if not self.directions:
            return np.array([float(np.real(loss(self.point.astype(complex))))])
        found = [loss(self.point + 1j * STEP * direction) for direction in self.directions]
        return np.array([np.real(found[0]), *(np.imag(one) / STEP for one in found)], np.float64)


def distance(vector: np.ndarray, wanted: np.ndarray) -> float:
    """The larger one of the value's and the gradient's relative distance."""
    found = (
        float(np.abs((vector - wanted) / sizes(wanted))[0]),
        float(np.linalg.norm((vector - wanted)[1:] / _gradient(wanted))),
    )
    return max(found) if np.isfinite(found).all() else np.inf


def sizes(wanted: np.ndarray) -> np.ndarray:
    """What makes numbers of size one of a vector."""
    return np.concatenate([[abs(wanted[0]) or 1.0], np.full(len(wanted) - 1, _gradient(wanted))])


def _gradient(wanted: np.ndarray) -> float:
    return float(np.linalg.norm(wanted[1:])) or 1.0


def tried(judge: Judge, known: Known, wanted: np.ndarray) -> Found:
    """How far a convention is, with its free number where it is nearest.

    Without gradients one value fits some number, whatever the cause is: only one of few digits says something.
    """
    if not known.starts:
        yield known.cause, distance(judge.of(known.loss), wanted)
        return
    scale = sizes(wanted)
    value, _ = fit(
        lambda at: judge.of(partial(_at, known.loss, at)) / scale, wanted / scale, known.starts, known.least, known.most
    )
    for one in (value,) if judge.with_gradient else dict.fromkeys((float(f"{value:.2e}"), *known.starts)):
        yield known.at(one).cause, distance(judge.of(known.at(one).loss), wanted)


def scaled(usual: np.ndarray, wanted: np.ndarray, name: str, names: dict[str, float]) -> Found:
    """A factor that has a name: of few digits, the inverse of such a one, or one of `names`."""
    square = float((usual / sizes(wanted)) @ (usual / sizes(wanted)))
    if len(usual) < 2 or not square or not np.isfinite(square):
        return
    factor = float((usual / sizes(wanted)) @ (wanted / sizes(wanted))) / square
    if (words := factor_in_words(factor, names)) is not None:
        yield f"{name} {words}", distance(factor * usual, wanted)


def factor_in_words(factor: float, names: dict[str, float]) -> str | None:
    """``"times 0.5"``, ``"negated"``, ``"times 1.2 (N / (N - 1))"``; None for a number that nobody would write."""
    for word, value in names.items():
        if abs(factor - value) <= 1e-9 * abs(value) and value not in (0.0, 1.0):
            return f"times {number(plain(value))} ({word})"
    if abs(factor + 1.0) <= 1e-9:
        return "negated"
    written = plain(factor)
    if _is_short(written):
        return f"times {number(written)}"
    if factor and _is_short(plain(1.0 / factor)):
        return f"divided by {number(plain(1.0 / factor))}"
    return None


def _is_short(value: float) -> bool:
    return math.isfinite(value) and float(f"{value:.{_FEW - 1}e}") == value


def plain(value: float) -> float:
    """A number without the rounding errors of its fit."""
    short = float(f"{value:.9e}")
    return short if abs(short - value) <= 1e-10 * abs(value) else value


NAMED_FACTORS = {
    "a logarithm to base 2": 1.0 / math.log(2.0),
    "a logarithm to base 10": 1.0 / math.log(10.0),
    "log(2)": math.log(2.0),
}


def sizes_in_words(shape: tuple[int, ...]) -> dict[str, float]:
    """Factors that come of a prediction's shape (batch, classes, ...)."""
    counts = {"the batch size": shape[0] if shape else 1, "the number of elements": math.prod(shape)}
    if len(shape) > 1:
        counts["the size of axis 1"] = shape[1]
    if len(shape) > 2:
        counts["the number of positions"] = math.prod(shape[2:])
        counts["the number of labels"] = math.prod(shape) // shape[1]
    found = dict(NAMED_FACTORS)
    for name, count in counts.items():
        found |= {name: float(count), f"1 / {name}": 1.0 / max(count, 1)}
        if count > 1:
            found |= {
                f"N / (N - 1), N is {name}": count / (count - 1),
                f"(N - 1) / N, N is {name}": (count - 1) / count,
            }
    return found
