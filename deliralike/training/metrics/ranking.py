"""How well scores rank positives above negatives, whatever the threshold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import BatchError, SettingError, suggestion
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.scores import array_of, class_names, labelled, ratio

AVERAGES = ("macro", "weighted")


@dataclass(frozen=True, kw_only=True)
class Ranking(Metric):
    """What `RocAuc` and `AveragePrecision` share: one class against the rest, for each class.

    Two classes are one question: class 1 against class 0. A class for which the question makes no sense, since all
    labels are of it or none is, is left out of the mean; its own figure is NaN, as is the mean when all are.
    """

    higher_is_better = True
    average: str = "macro"
    classes: Sequence[str] | None = None
    by_class: bool = False
    multilabel: bool = False
    ignored: int | None = None
    from_probabilities: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.average not in AVERAGES:
            raise SettingError(f"{self.name} has no average {self.average!r}. {suggestion(self.average, AVERAGES)}")

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """The scores of each question, in the order of probabilities, and where its answer is yes.

        Shapes:
            ``(samples, questions, places)``; ``counted`` is ``(samples, questions or 1, places)``.
        """
        return self._of_several(outputs, targets) if self.multilabel else self._of_one(outputs, targets)

    def compute(self, evidence: Any) -> float | dict[str, float]:
        """The mean over the questions, or with `by_class` each figure and ``"mean"``."""
        counted = np.broadcast_to(evidence["counted"], evidence["scores"].shape)
        columns = [
            (evidence["scores"][:, i][counted[:, i]], evidence["positive"][:, i][counted[:, i]])
            for i in range(counted.shape[1])
        ]
        figures = np.array([self._figure(*column) for column in columns])
        mean = _mean(figures, [positive.sum() for _, positive in columns], self.average)
        if any(np.isnan(scores).any() for scores, _ in columns):
            mean = float("nan")
        if not self.by_class:
            return mean
        return dict(zip(self._names(len(figures)), figures.tolist(), strict=True)) | {"mean": mean}

    @abstractmethod
    def _figure(self, scores: np.ndarray, positive: np.ndarray) -> float: ...

    def _of_one(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        options: dict[str, Any] = {"ignored": self.ignored, "from_probabilities": self.from_probabilities}
        found = labelled(outputs, targets, metric=self.name, **options)
        class_names(self.classes, found.classes, self.name)
        odds = found.scores.astype(np.float64) if self.from_probabilities else log_odds(found.scores.astype(np.float64))
        asked = np.arange(found.classes) if found.classes > 2 else np.array([1])
        positive = found.labels[:, np.newaxis] == asked[:, np.newaxis]
        return {"scores": odds[:, asked], "positive": positive, "counted": found.counted[:, np.newaxis]}

    def _of_several(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        scores, labels = array_of(outputs, "scores", self.name), array_of(targets, "labels", self.name)
        if scores.ndim < 2 or scores.shape != labels.shape:
            raise BatchError(f"scores of shape {scores.shape} do not fit labels of shape {labels.shape}: with several "
                             f"labels a sample both are (samples, labels, ...)")  # fmt: skip
        class_names(self.classes, scores.shape[1], self.name)
        scores, labels = (array.reshape(*scores.shape[:2], -1) for array in (scores, labels))
        counted = np.ones(labels.shape, bool) if self.ignored is None else labels != self.ignored
        if not np.isin(labels[counted], (0, 1)).all():
            raise BatchError(f"{self.name} of several labels a sample wants labels of 0 and 1")
        return {"scores": scores.astype(np.float64), "positive": labels == 1, "counted": counted}

    def _names(self, questions: int) -> list[str]:
        if questions == 1 and not self.multilabel:
            return [class_names(self.classes, 2, self.name)[1]]
        return class_names(self.classes, questions, self.name)


@dataclass(frozen=True, kw_only=True)
class RocAuc(Ranking):
    """The area under the ROC curve: how often a positive scores higher than a negative, ties counted half.

    Several classes are each asked against the rest, with the probabilities that the logits stand for. A class that
    all labels or none are of has no area: it is left out of the mean; NaN when there is no other, or a score is NaN.

    Args:
        average: The mean over classes, ``"macro"`` (each counts the same) or ``"weighted"`` (by its labels).
        classes: Names of the classes; their numbers when not given.
        by_class: Give the figure of each class and ``"mean"``.
        multilabel: Whether each class is a question of its own: labels have the shape of the scores, 0 or 1.
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; else they are logits.

    Shapes:
        Scores ``(samples, classes, ...)`` or, for two classes, ``(samples, 1, ...)``; labels ``(samples, ...)``.

    Source:
        Fawcett 2006, doi 10.1016/j.patrec.2005.10.010; one against the rest: Provost and Domingos 2000.

    Example:
        >>> RocAuc()(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([0, 0, 1, 1]))
        0.75
    """

    name = "roc-auc"

    def _figure(self, scores: np.ndarray, positive: np.ndarray) -> float:
        hits, alarms = curve(scores, positive)
        if not hits[-1] or not alarms[-1] or np.isnan(scores).any():
            return float("nan")
        return float(np.trapezoid(hits, alarms) / (hits[-1] * alarms[-1]))


@dataclass(frozen=True, kw_only=True)
class AveragePrecision(Ranking):
    """The mean precision over all positives, going down from the highest score; equal scores are one step.

    It is the area under the steps of precision and recall, without interpolation. A class without positives has none:
    it is left out of the mean; NaN when there is no other, or where a score is NaN. Settings are those of `RocAuc`.

    Shapes:
        Scores ``(samples, classes, ...)`` or, for two classes, ``(samples, 1, ...)``; labels ``(samples, ...)``.

    Source:
        Manning, Raghavan and Schütze 2008, Introduction to Information Retrieval, section 8.4.

    Example:
        >>> round(AveragePrecision()(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([0, 0, 1, 1])), 4)
        0.8333
    """

    name = "average-precision"

    def _figure(self, scores: np.ndarray, positive: np.ndarray) -> float:
        hits, alarms = curve(scores, positive)
        if not hits[-1] or np.isnan(scores).any():
            return float("nan")
        precision = hits[1:] / (hits[1:] + alarms[1:])
        return float((np.diff(hits) * precision).sum() / hits[-1])


def curve(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many positives and negatives score at least as high as each distinct score, from none to all."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], np.ones(min(1, len(ranked)), bool)))
    hits = np.cumsum(positive[order])[last]
    return np.append(0, hits).astype(np.float64), np.append(0, last + 1 - hits).astype(np.float64)


def log_odds(logits: np.ndarray) -> np.ndarray:
    """``log(p / (1 - p))`` of each class, which ranks as `p` does and does not saturate at 1.

    Infinite where no other class is possible; NaN where a logit is NaN or plus infinity.

    Shapes:
        ``(samples, classes, places)``, both.
    """
    top = logits.argmax(axis=1, keepdims=True)
    highest = np.take_along_axis(logits, top, axis=1)
    with np.errstate(invalid="ignore"):  # inf - inf
        exp = np.exp(logits - highest)
        rest = exp.sum(axis=1, keepdims=True) - exp  # the highest's 1 is in it, so no digits are lost, but in its own
    np.put_along_axis(rest, top, 1.0, axis=1)
    others = highest + np.log(rest)
    without = logits.copy()
    np.put_along_axis(without, top, -np.inf, axis=1)
    np.put_along_axis(others, top, np.logaddexp.reduce(without, axis=1, keepdims=True), axis=1)
    return logits - others


def _mean(figures: np.ndarray, positives: Sequence[Any], average: str) -> float:
    defined = ~np.isnan(figures)
    weights = np.array(positives, np.float64) if average == "weighted" else np.ones(len(figures))
    return ratio((figures[defined] * weights[defined]).sum(), weights[defined].sum())
