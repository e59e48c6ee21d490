"""Ranking of positives above negatives by their scores, whatever the threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from deliralike.data.packages import needed
from deliralike.training.metrics.labels import log_softmax
from deliralike.training.metrics.metric import Rows
from deliralike.training.metrics.scores import LabelMetric


@dataclass(frozen=True, kw_only=True)
class Ranking(LabelMetric):
    """The base of `RocAuc` and `AveragePrecision`: one class against the rest, and their mean.

    Two classes are one question: class 1 against class 0. A class to which all labels belong, or
    none, has the figure NaN and is left out of the mean; the mean is NaN when all figures are.
    """

    higher_is_better = True
    function: ClassVar[str]  # of scikit-learn
    needs_negatives: ClassVar[bool] = False
    pads = True  # a place of zeros is not counted

    def evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the scores of each question in the order of probabilities, and its answers.

        Shapes:
            ``(samples, questions, places)``; ``counted`` is ``(samples, places)``.
        """
        batch = self.labelled(outputs, targets)
        scores = batch.scores.astype(np.float64)
        if not self.from_probabilities:
            scores = _log_odds(scores)
        questions = np.array([1])
        if batch.classes > 2:
            questions = np.arange(batch.classes)
        positive = batch.labels[:, np.newaxis] == questions[:, np.newaxis]
        return {
            "scores": scores[:, questions],
            "positive": positive,
            "counted": batch.counted,
        }

    def compute(self, evidence: Any) -> float:
        """Return the mean over the questions that have a figure."""
        counted = evidence["counted"]
        figures = []
        for question in range(evidence["scores"].shape[1]):
            scores = evidence["scores"][:, question][counted]
            if np.isnan(scores).any():
                return float("nan")
            figure = self._figure(scores, evidence["positive"][:, question][counted])
            if not np.isnan(figure):
                figures.append(figure)
        return float(np.mean(figures)) if figures else float("nan")

    def _figure(self, scores: np.ndarray, positive: np.ndarray) -> float:
        """Return scikit-learn's figure; NaN where the answers of one kind are not there."""
        has_both = positive.any() and not (self.needs_negatives and positive.all())
        if not has_both:
            return float("nan")
        package = needed(
            "sklearn.metrics", package="scikit-learn", extra="data", purpose="a ranking"
        )
        # In whole numbers, since scores may be infinite.
        ranks = np.unique(scores, return_inverse=True)[1]
        return float(getattr(package, self.function)(positive, ranks))


@dataclass(frozen=True, kw_only=True)
class RocAuc(Ranking):
    """The area under the ROC curve: the chance that a positive scores higher than a negative.

    Ties count half. Several classes are each asked against the rest, with the probabilities that
    the logits stand for. A class that all labels or none are of has no area: it is left out of the
    mean; NaN when there is no other, or a score is NaN.

    Args:
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; else they are logits.

    Shapes:
        Scores ``(samples, classes, ...)`` or, for two classes, ``(samples, 1, ...)``; labels
        ``(samples, ...)``.

    Source:
        Fawcett 2006, doi 10.1016/j.patrec.2005.10.010; one against the rest: Provost and Domingos
        2000.

    Example:
        >>> RocAuc()(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([0, 0, 1, 1]))
        0.75
    """

    name = "roc-auc"
    function = "roc_auc_score"
    needs_negatives = True


@dataclass(frozen=True, kw_only=True)
class AveragePrecision(Ranking):
    """The mean precision over all positives, from the highest score down; ties are one step.

    It is the area under the steps of precision and recall, without interpolation. A class without
    positives has none: it is left out of the mean; NaN when there is no other, or where a score is
    NaN. Settings are those of `RocAuc`.

    Shapes:
        Scores ``(samples, classes, ...)`` or, for two classes, ``(samples, 1, ...)``; labels
        ``(samples, ...)``.

    Source:
        Manning, Raghavan and Schütze 2008, Introduction to Information Retrieval, section 8.4.

    Example:
        >>> scores = np.array([[0.1], [0.4], [0.35], [0.8]])
        >>> round(AveragePrecision()(scores, np.array([0, 0, 1, 1])), 4)
        0.8333
    """

    name = "average-precision"
    function = "average_precision_score"


def _log_odds(logits: np.ndarray) -> np.ndarray:
    """Return ``log(p / (1 - p))`` along axis 1, which does not saturate as `p` does.

    NaN where a logit is NaN or plus infinity.
    """
    logits = np.where(logits == np.inf, np.nan, logits)
    top = logits.argmax(axis=1, keepdims=True)
    others = logits.copy()
    np.put_along_axis(others, top, -np.inf, axis=1)
    # inf - inf; and infinities of the top, which are written over
    with np.errstate(invalid="ignore", divide="ignore"):
        log_p = log_softmax(logits)
        odds = log_p - np.log1p(-np.exp(log_p))
        of_top = np.take_along_axis(logits, top, axis=1)
        of_top = of_top - np.logaddexp.reduce(others, axis=1, keepdims=True)
    np.put_along_axis(odds, top, of_top, axis=1)
    return odds
