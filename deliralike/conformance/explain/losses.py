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
from deliralike.conformance.findings import LIMIT, MATCH, Explanation, has_floats
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


def _slope(numbers: Arrays) -> np.ndarray:
    """All gradients in a row."""
    return np.concatenate(
        [np.ravel(one) for name, one in numbers.items() if name != VALUE]
    )


def _distance(
    loss: Loss, times: float = 1.0, of_slope: float = 1.0, plus: float = 0.0
) -> float:
    """How far the candidate's loss and gradient are from multiples of the reference's, relative."""
    value, other = times * float(loss.reference[VALUE]) + plus, loss.candidate[VALUE]
    own, slope = of_slope * _slope(loss.reference), _slope(loss.candidate)
    length = max(np.linalg.norm(own), np.linalg.norm(slope)) or 1.0
    far = abs(value - float(other)) / (max(abs(value), abs(float(other))) or 1.0)
    found = max(float(far), float(np.linalg.norm(own - slope)) / float(length))
    return found if np.isfinite(found) else np.inf


def explain(loss: Loss) -> Explanation | None:
    """The most likely cause of another loss function; None where both agree."""
    if not np.isfinite(loss.candidate[VALUE]):
        return Explanation.seen(
            "overflow or an undefined operation: the loss is not finite"
        )
    apart = _distance(loss)
    if apart <= LIMIT:
        return None
    for words, *numbers in _relations(loss):
        distance = _distance(loss, *numbers)
        if distance <= min(MATCH, 1e-3 * apart):
            return Explanation(words, distance, apart)
    return _unknown(loss.reference, loss.candidate)


def formula_of(kind: str) -> Formula:
    """A loss of `nn`, as its conventions change it."""
    return told(
        partial(_run, names(kind)[0]),
        {"own": partial(called, kind), "before": BEFORE[""]},
    )


def _run(first: str, nn: Any, given: Arguments) -> Any:
    """A loss, of a prediction that goes through another function first, and alone has a gradient."""
    fixed = {}
    for name, value in given.items():
        fixed[name] = nn.stop_gradient(value) if has_floats(value) else value
    return given["own"](nn, {**fixed, first: given["before"](nn, given[first])})


def _relations(loss: Loss) -> Iterator[tuple[str, float, float, float]]:
    """A factor that somebody may write, and terms that do not depend on the prediction.

    What a report says, what value and gradient are multiplied by, and what is added.
    """
    mine, its = loss.reference, loss.candidate
    yield "loss without a gradient (detached)", 1.0, 0.0, 0.0
    shift = tidy(float(its[VALUE] - mine[VALUE]))
    words = f"loss plus {shift:.6g}, which does not depend on the prediction"
    yield words, 1.0, 1.0, shift
    own, other = _slope(mine), _slope(its)
    ratio = tidy(float(own @ other) / (float(own @ own) or 1.0))
    shape = max((np.shape(one) for one in mine.values()), key=len)
    known = _counts_in_words(ratio, shape)
    is_short = math.isfinite(ratio) and float(f"{ratio:.{_FEW - 1}e}") == ratio
    if ratio and (known or is_short):
        yield f"loss times {ratio:.6g}{known}", ratio, ratio, 0.0


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
