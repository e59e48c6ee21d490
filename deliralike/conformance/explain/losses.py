"""Why a loss differs: it runs once more with conventions in the place of its calls.

Both losses are functions of the same outputs of the network. The reference's runs with another
formula in the place of one of its calls, and the one whose value and gradient are the candidate's is
the cause.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from deliralike.conformance.explain.arguments import called, names
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    factor,
    with_usual,
)
from deliralike.conformance.explain.loss_table import BEFORE, conventions
from deliralike.conformance.explain.trials import Executor, Trial, run
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Arrays, Shape
from deliralike.conformance.places import Tap

VALUE = "value"
_PATIENCE = 6.0  # seconds of computing
_FEW = 3  # digits of a factor that somebody may have written


@dataclass(frozen=True)
class Loss:
    """A loss function on both sides, at the same outputs of the network.

    Attributes:
        run: ``run(tap, formula)`` gives the reference's numbers with a formula in a call's place.
        calls: What the losses of `nn` that the reference calls are given, by name.
        reference, candidate: The loss (`VALUE`), and its gradient with respect to each output.
    """

    run: Callable[[Tap, Formula], Arrays]
    calls: Mapping[Tap, Arguments]
    reference: Arrays
    candidate: Arrays


class _Bench(Executor):
    """The reference's loss with formulas in the place of one call."""

    def __init__(self, loss: Loss, tap: Tap) -> None:
        self.loss, self.tap = loss, tap
        self.given = loss.calls[tap]

    @property
    def data(self) -> int:
        """The numbers of the loss and its gradients."""
        return sum(map(np.size, self.loss.candidate.values()))

    def distance(self, formula: Formula) -> float:
        """How far the loss and its gradients are, relative."""
        try:
            numbers = self.loss.run(self.tap, formula)
        except Exception:  # noqa: BLE001  # of a formula that does not take these inputs
            return np.inf
        return _distance(numbers, self.loss.candidate)


def _slope(numbers: Arrays) -> np.ndarray:
    """All gradients in a row."""
    return np.concatenate(
        [np.ravel(one) for name, one in numbers.items() if name != VALUE]
    )


def _distance(numbers: Arrays, wanted: Arrays) -> float:
    """How far a loss and its gradients are from others; the larger one of both, relative."""
    value, other = (float(one[VALUE]) for one in (numbers, wanted))
    expected, actual = _slope(numbers), _slope(wanted)
    size = max(abs(value), abs(other)) or 1.0
    length = max(np.linalg.norm(expected), np.linalg.norm(actual)) or 1.0
    found = max(
        abs(value - other) / size, float(np.linalg.norm(expected - actual) / length)
    )
    return found if np.isfinite(found) else np.inf


def explain(loss: Loss) -> Explanation | None:
    """The most likely cause of another loss function; None where both agree."""
    expected, actual = loss.reference, loss.candidate
    if not np.isfinite(actual[VALUE]):
        return Explanation.from_observation(
            "overflow or an undefined operation: the loss is not finite"
        )
    apart = _distance(expected, actual)
    if apart <= LIMIT:
        return None
    limit, end = min(MATCH, 1e-3 * apart), time.process_time() + _PATIENCE
    # Other calls, what is seen without any, and calls with a number that is searched for.
    trials = chain(_of_calls(loss, False), _relations(loss), _of_calls(loss, True))
    for trial in trials:
        if trial.distance <= limit:
            return Explanation(trial.cause, trial.distance, apart)
        if time.process_time() > end:
            break
    return _unknown(expected, actual)


def _of_calls(loss: Loss, free: bool) -> Iterator[Trial]:
    for tap, given in loss.calls.items():
        start = f"{tap.function}: " if len(loss.calls) > 1 else ""
        formula = formula_of(tap.function)
        table = [*conventions(tap.function, given), *_weights(loss)]
        some = [one for one in table if one.free == free]
        for trial in run(some, _Bench(loss, tap), formula):
            yield replace(trial, cause=f"{start}{trial.cause}")


def formula_of(kind: str) -> Formula:
    """A loss of `nn`, as its conventions change it."""
    return with_usual(
        partial(_run, names(kind)[0]),
        {"own": partial(called, kind), "before": BEFORE[""]},
    )


def _run(first: str, nn: Any, given: Arguments) -> Any:
    """A loss, of a prediction that goes through another function first."""
    return given["own"](nn, {**given, first: given["before"](nn, given[first])})


def _weights(loss: Loss) -> Iterator[Convention]:
    """What a term of several is multiplied by."""
    if len(loss.calls) > 1:
        times = Convention("", {"left out (weight 0)": 0.0}, _times)
        yield from (times, factor("times", _times))


def _times(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
    return formula(nn, given) * value


# What is seen without a formula
# -----------------------------------------------------------------------------


def _relations(loss: Loss) -> Iterator[Trial]:
    """A factor that somebody may write, and terms that do not depend on the prediction."""
    expected, actual = loss.reference, loss.candidate
    shift = tidy(float(actual[VALUE] - expected[VALUE]))
    words = f"loss plus {shift:.6g}, which does not depend on the prediction"
    ways = [
        ("loss without a gradient (detached)", 1.0, 0.0, 0.0),
        (words, 1.0, 1.0, shift),
    ]
    own, other = _slope(expected), _slope(actual)
    ratio = tidy(float(own @ other) / (float(own @ own) or 1.0))
    shape = max((np.shape(one) for one in expected.values()), key=len)
    known = _counts_in_words(ratio, shape)
    is_short = math.isfinite(ratio) and float(f"{ratio:.{_FEW - 1}e}") == ratio
    if ratio and (known or is_short):
        ways.append((f"loss times {ratio:.6g}{known}", ratio, ratio, 0.0))
    for words, times, of_slope, plus in ways:
        numbers = {name: of_slope * one for name, one in expected.items()}
        numbers[VALUE] = times * expected[VALUE] + plus
        yield Trial(words, _distance(numbers, actual))


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


def _unknown(expected: Arrays, actual: Arrays) -> Explanation:
    """What there is to look at where nothing fits: both values, both gradients."""
    text = f"the loss is {float(actual[VALUE]):.6g} instead of {float(expected[VALUE]):.6g}"
    own, other = _slope(expected), _slope(actual)
    one, two = np.linalg.norm(own), np.linalg.norm(other)
    if one and two:
        text += f", its gradient {two / one:.4g} times as long"
        text += f", with a cosine of {float(own @ other) / (one * two):.4f}"
    return Explanation(text, np.inf)
