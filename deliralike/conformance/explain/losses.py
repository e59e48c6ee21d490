"""Why a loss differs as a whole: what is seen of its value and gradient without any formula."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.arguments import called, names
from deliralike.conformance.explain.convention import Arguments, Formula, told
from deliralike.conformance.explain.loss_table import BEFORE
from deliralike.conformance.explain.trials import Trial
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Arrays, Shape

VALUE = "value"
_FEW = 3  # digits of a factor that somebody may have written


@dataclass(frozen=True)
class Loss:
    """A loss function on both sides, at the same outputs of the network.

    Attributes:
        reference, candidate: The loss (`VALUE`), and its gradient with respect to each output.
    """

    reference: Arrays
    candidate: Arrays


def _distance(residual: np.ndarray) -> float:
    found = max(abs(float(residual[0])), float(np.linalg.norm(residual[1:])))
    return found if np.isfinite(found) else np.inf


def _slope(numbers: Arrays) -> np.ndarray:
    """All gradients in a row."""
    return np.concatenate(
        [np.ravel(one) for name, one in numbers.items() if name != VALUE]
    )


def _residual(numbers: Arrays, wanted: Arrays) -> np.ndarray:
    value, other = (float(one[VALUE]) for one in (numbers, wanted))
    mine, its = _slope(numbers), _slope(wanted)
    size = max(abs(value), abs(other)) or 1.0
    length = max(np.linalg.norm(mine), np.linalg.norm(its)) or 1.0
    return np.concatenate([[(value - other) / size], (mine - its) / length])


def explain(loss: Loss) -> Explanation | None:
    """The most likely cause of another loss function; None where both agree."""
    mine, its = loss.reference, loss.candidate
    if not np.isfinite(its[VALUE]):
        return Explanation.seen(
            "overflow or an undefined operation: the loss is not finite"
        )
    apart = float(np.abs(_residual(mine, its)).max())
    if apart <= LIMIT:
        return None
    limit = min(MATCH, 1e-3 * apart)
    for trial in _relations(loss):
        if trial.distance <= limit:
            return Explanation(trial.cause, trial.distance, apart)
    return _unknown(mine, its)


def formula_of(kind: str) -> Formula:
    """A loss of `nn`, as its conventions change it."""
    return told(
        partial(_run, names(kind)[0]),
        {"own": partial(called, kind), "before": BEFORE[""]},
    )


def _run(first: str, nn: Any, given: Arguments) -> Any:
    """A loss, of a prediction that goes through another function first."""
    return given["own"](nn, {**given, first: given["before"](nn, given[first])})


def _relations(loss: Loss) -> Iterator[Trial]:
    """A factor that somebody may write, and terms that do not depend on the prediction."""
    mine, its = loss.reference, loss.candidate
    own, other = _slope(mine), _slope(its)
    shift = tidy(float(its[VALUE] - mine[VALUE]))
    words = f"loss plus {shift:.6g}, which does not depend on the prediction"
    ways = [
        ("loss without a gradient (detached)", 1.0, 0.0, 0.0),
        (words, 1.0, 1.0, shift),
    ]
    ratio = tidy(float(own @ other) / (float(own @ own) or 1.0))
    shape = max((np.shape(one) for one in mine.values()), key=len)
    known = _counts_in_words(ratio, shape)
    is_short = math.isfinite(ratio) and float(f"{ratio:.{_FEW - 1}e}") == ratio
    if ratio and (known or is_short):
        ways.append((f"loss times {ratio:.6g}{known}", ratio, ratio, 0.0))
    for words, times, of_slope, plus in ways:
        numbers = {name: of_slope * one for name, one in mine.items()}
        numbers[VALUE] = times * mine[VALUE] + plus
        yield Trial(words, _distance(_residual(numbers, its)))


def tidy(value: float) -> float:
    """A number without the rounding errors of its fit."""
    short = float(f"{value:.9e}")
    return short if abs(short - value) <= 1e-10 * abs(value) else float(value)


def _counts_in_words(factor: float, shape: Shape) -> str:
    """Which count of a prediction's shape (batch, classes, ...) a factor is; else nothing."""
    counts = {"the batch size": shape[0], "the number of elements": math.prod(shape)}
    if len(shape) > 1:
        counts["the number of labels"] = math.prod(shape) // shape[1]
    for name, count in counts.items():
        if math.isclose(factor, count):
            return f" ({name})"
        if math.isclose(factor * count, 1.0):
            return f" (1 / {name})"
    return ""


def _unknown(mine: Arrays, its: Arrays) -> Explanation:
    """What there is to look at where nothing fits: both values, both gradients."""
    said = f"the loss is {float(its[VALUE]):.6g} instead of {float(mine[VALUE]):.6g}"
    own, other = _slope(mine), _slope(its)
    one, two = np.linalg.norm(own), np.linalg.norm(other)
    if one and two:
        said += f", its gradient {two / one:.4g} times as long"
        said += f", with a cosine of {float(own @ other) / (one * two):.4f}"
    return Explanation(said, np.inf)
