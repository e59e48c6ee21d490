"""How near one loss is to another: by values and by derivatives along random directions.

The derivative of a formula along a direction is exact by a complex step: ``f(x + ih d) = f(x) + ih
f'(x) d``. So each convention is one formula, without a gradient of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.fitting import fit
from deliralike.conformance.explain.variant import number

STEP = 1e-30
DIRECTIONS = 8
_FEW = 3  # digits of a factor that somebody may have written

Loss = Callable[[np.ndarray], Any]  # from a (complex) prediction to a scalar
Found = Iterator[tuple[str, float]]  # causes, and how far the candidate is from each


@dataclass(frozen=True)
class Known:
    """A loss under some convention.

    Attributes:
        cause: What a report says, with a place for what is searched for.
        loss: From the prediction, and the number where one is searched for.
        starts: Where a number is searched for; empty where there is none.
        least, most: Its bounds.
        weights: From a way to make vectors of formulas, and the wanted vector, to weights that are
            solved for; `loss` takes them.
        shown: How a report writes the number.
    """

    cause: str
    loss: Callable[..., Any]
    starts: tuple[float, ...] = ()
    least: float = -1e6
    most: float = 1e6
    weights: Callable[[Callable[[Loss], np.ndarray], np.ndarray], np.ndarray | None] | None = None
    shown: Callable[[Any], str] = number

    def at(self, value: Any) -> Known:
        """One that is searched for, as it was found."""
        return Known(self.cause.format(self.shown(value)), partial(_at, self.loss, value))

    def of(self, path: Callable[[np.ndarray], np.ndarray]) -> Known:
        """The same of what a path makes of the prediction."""

        def weights(of: Callable[[Loss], np.ndarray], wanted: np.ndarray) -> np.ndarray | None:
            assert self.weights is not None
            return self.weights(lambda loss: of(lambda z: loss(path(z))), wanted)

        return replace(
            self,
            loss=lambda z, *value: self.loss(path(z), *value),
            weights=weights if self.weights else None,
        )

    @property
    def is_free(self) -> bool:
        """Whether something is searched for."""
        return bool(self.starts) or self.weights is not None


def mixture(base: Loss, parts: Sequence[Loss]) -> dict[str, Any]:
    """For `Known`: a sum of losses with weights that are solved for."""

    def weights(of: Callable[[Loss], np.ndarray], wanted: np.ndarray) -> np.ndarray | None:
        if len(parts) >= len(wanted) - 1:
            return None
        matrix, target = np.stack([of(part) for part in parts], 1), wanted - of(base)
        if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
            return None
        found, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=1e-12)
        return np.array([plain(value) for value in found]) if rank == len(parts) else None

    def loss(x: np.ndarray, found: np.ndarray) -> Any:
        return base(x) + sum(weight * part(x) for weight, part in zip(found, parts, strict=True))

    return {"loss": loss, "weights": weights, "shown": listed}


def listed(values: Sequence[float]) -> str:
    """Numbers as a report writes them."""
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"


def _at(loss: Callable[..., Any], value: float, x: np.ndarray) -> Any:
    return loss(x, value)


class Judge:
    """Losses of one prediction as vectors: the value, then derivatives along fixed directions.

    Args:
        point: The prediction.
        with_gradient: Whether gradients are known.
    """

    def __init__(self, point: np.ndarray, with_gradient: bool = True) -> None:
        generator = np.random.default_rng(0)
        self.point, self.with_gradient = point, with_gradient
        self.directions = [
            generator.standard_normal(point.shape) for _ in range(DIRECTIONS * with_gradient)
        ]
        self.least = 0.0

    def seen(self, value: float, gradient: np.ndarray | None) -> np.ndarray:
        """The vector of a loss that was run."""
        along = [
            np.nan if gradient is None else float((gradient * d).sum()) for d in self.directions
        ]
        return np.array([float(value), *along])

    def of(self, loss: Loss) -> np.ndarray:
        """The vector of a formula."""
        if not self.directions:
            return np.array([float(np.real(loss(self.point.astype(complex))))])
        found = [loss(self.point + 1j * STEP * direction) for direction in self.directions]
        return np.array([np.real(found[0]), *(np.imag(one) / STEP for one in found)], np.float64)

    def sizes(self, wanted: np.ndarray) -> np.ndarray:
        """What makes numbers of size one of a vector; what is smaller than `least` is rounding."""
        value, gradient = (
            max(float(np.linalg.norm(part)), self.least) or 1.0 for part in (wanted[:1], wanted[1:])
        )
        return np.array([value, *[gradient] * (len(wanted) - 1)])

    def distance(self, vector: np.ndarray, wanted: np.ndarray) -> float:
        """The larger one of the value's and the gradient's relative distance."""
        apart = (vector - wanted) / self.sizes(wanted)
        return (
            max(float(abs(apart[0])), float(np.linalg.norm(apart[1:])))
            if np.isfinite(apart).all()
            else np.inf
        )


def tried(judge: Judge, known: Known, wanted: np.ndarray) -> Found:
    """How far a convention is, with its free number where it is nearest.

    Without gradients one value fits some number, whatever the cause is: only one of few digits says
    something.
    """
    if known.weights is not None:
        found = known.weights(judge.of, wanted) if judge.with_gradient else None
        if found is not None:
            yield known.at(found).cause, judge.distance(judge.of(known.at(found).loss), wanted)
        return
    if not known.starts:
        yield known.cause, judge.distance(judge.of(known.loss), wanted)
        return
    scale = judge.sizes(wanted)
    value, _ = fit(
        lambda at: judge.of(partial(_at, known.loss, at)) / scale,
        wanted / scale,
        known.starts,
        known.least,
        known.most,
    )
    for one in (
        (value,) if judge.with_gradient else dict.fromkeys((float(f"{value:.2e}"), *known.starts))
    ):
        yield known.at(one).cause, judge.distance(judge.of(known.at(one).loss), wanted)


def scaled(
    judge: Judge,
    usual: np.ndarray,
    wanted: np.ndarray,
    name: str,
    names: dict[str, float],
    plain_ones: bool = True,
) -> Found:
    """A factor that has a name: one of `names`, of few digits, or the inverse of such a one.

    Args:
        judge: With the sizes of what is compared.
        usual: What is multiplied.
        wanted: What it is to become.
        name: Of what is multiplied.
        names: Factors by name.
        plain_ones: Whether numbers of few digits count, of which one more might stand for anything.
    """
    mine, theirs = usual / judge.sizes(wanted), wanted / judge.sizes(wanted)
    square = float(mine @ mine)
    if len(usual) < 2 or not square or not np.isfinite(square):
        return
    factor = float(mine @ theirs) / square
    if (words := factor_in_words(factor, names, plain_ones)) is not None:
        yield f"{name} {words}", judge.distance(factor * usual, wanted)


def factor_in_words(factor: float, names: dict[str, float], plain_ones: bool = True) -> str | None:
    """Return ``"times 0.5"``, ``"negated"`` or ``"times 1.2 (N / (N - 1))"``.

    A number that nobody would write gives None.
    """
    for word, value in names.items():
        if abs(factor - value) <= 1e-9 * abs(value) and value not in (0.0, 1.0):
            return f"times {number(plain(value))} ({word})"
    if abs(factor + 1.0) <= 1e-9:
        return "negated"
    written = plain(factor)
    if not plain_ones and written not in (0.5, 2.0):
        return None
    if _is_short(written):
        return f"times {number(written)}"
    if factor and _is_short(plain(1.0 / factor), _FEW - 1):
        return f"divided by {number(plain(1.0 / factor))}"
    return None


def _is_short(value: float, digits: int = _FEW) -> bool:
    return math.isfinite(value) and float(f"{value:.{digits - 1}e}") == value


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
    counts = {
        "the batch size": shape[0] if shape else 1,
        "the number of elements": math.prod(shape),
    }
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
