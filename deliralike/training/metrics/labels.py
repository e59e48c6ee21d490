"""Metrics of one label a place: accuracy, cross-entropy, the confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.metrics.metric import Rows
from deliralike.training.metrics.scores import (
    ClassMetric,
    Labelled,
    LabelMetric,
    counted_by_row,
    ratio,
)


@dataclass(frozen=True, kw_only=True)
class Accuracy(LabelMetric):
    """The fraction of labels whose class has the highest score.

    Of equal scores the first counts as the highest. NaN where a score is NaN, or where no label
    counts.

    Args:
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> scores = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
        >>> Accuracy(ignored=-1)(scores, np.array([0, 0, -1]))
        0.5
    """

    name = "accuracy"
    higher_is_better = True

    def evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the number of right labels of each sample, and the number of labels that count."""
        batch = self.labelled(outputs, targets)
        is_right = self._is_right(batch) & batch.counted
        right = is_right.sum(axis=1).astype(np.float64)
        return {
            "right": np.where(batch.nan, np.nan, right),
            "counted": batch.counted.sum(axis=1),
        }

    def compute(self, evidence: Any) -> float:
        """Return the fraction of right labels among those that count."""
        return ratio(evidence["right"].sum(), evidence["counted"].sum())

    def _is_right(self, batch: Labelled) -> np.ndarray:
        return batch.predicted() == batch.labels


@dataclass(frozen=True, kw_only=True)
class TopK(Accuracy):
    """The fraction of labels whose class is among the `k` highest scores; for ``k=1`` the accuracy.

    Of equal scores the first counts as the higher. NaN where a score is NaN, or where no label
    counts.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Raises:
        SettingError: There are fewer than `k` classes.

    Example:
        >>> TopK(k=2)(np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), np.array([1, 2]))
        0.5
    """

    k: int = 5

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.k < 1:
            raise SettingError(f"top-k needs k of at least 1, not {self.k!r}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """``top-`` and the number."""
        return f"top-{self.k}"

    def _is_right(self, batch: Labelled) -> np.ndarray:
        if self.k > batch.classes:
            raise SettingError(
                f"{self.name} needs at least {self.k} classes, and the scores have {batch.classes}"
            )
        labels = batch.labels[:, np.newaxis]  # (samples, 1, places)
        own = np.take_along_axis(batch.scores, labels, axis=1)
        is_earlier = np.arange(batch.classes)[:, np.newaxis] < labels
        is_before = (batch.scores > own) | ((batch.scores == own) & is_earlier)
        return is_before.sum(axis=1) < self.k


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(LabelMetric):
    """The mean negative log-probability of the labels, in float64 on the host.

    Infinite where a label has probability zero; NaN where a score is NaN, or where no label counts.

    Args:
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; else they are logits.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> round(CrossEntropy()(np.zeros((3, 4)), np.array([0, 2, 3])), 4)  # log(4)
        1.3863
    """

    name = "loss"
    higher_is_better = False

    def evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the sum over each sample's labels, and the number of labels that count."""
        batch = self.labelled(outputs, targets)
        scores = batch.scores.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            # log(0) is an infinite loss; inf - inf is NaN
            log_p = np.log(scores) if self.from_probabilities else log_softmax(scores)
        labels = batch.labels[:, np.newaxis]
        of_label = np.take_along_axis(log_p, labels, axis=1)[:, 0]
        of_label = np.where(np.isnan(scores).any(axis=1), np.nan, of_label)
        return {
            "sum": np.where(batch.counted, -of_label, 0.0).sum(axis=1),
            "counted": batch.counted.sum(axis=1),
        }

    def compute(self, evidence: Any) -> float:
        """Return the mean over all labels that count."""
        return ratio(evidence["sum"].sum(), evidence["counted"].sum())


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return log-probabilities from logits along axis 1; sure ones do not become equal.

    NaN where a logit is NaN or plus infinity.
    """
    top = scores.argmax(axis=1, keepdims=True)
    shifted = scores - np.take_along_axis(scores, top, axis=1)
    others = np.exp(shifted)
    # The top's own 1 would cost the digits of the others.
    np.put_along_axis(others, top, 0.0, axis=1)
    return shifted - np.log1p(others.sum(axis=1, keepdims=True))


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix(ClassMetric):
    """The number of labels of each class that were predicted as each class.

    The figures are called ``"true/predicted"``. All are NaN where a score is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> ConfusionMatrix(classes=["cat", "dog"])(np.eye(2)[[0, 1, 1]], np.array([0, 1, 0]))
        {'cat/cat': 1.0, 'cat/dog': 1.0, 'dog/cat': 0.0, 'dog/dog': 1.0}
    """

    name = "confusion"
    higher_is_better = True
    pads = True  # nothing is added to a cell

    def evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the cells of the matrix and the numbers that each sample adds to them.

        A sample with one label has one cell, other samples have all cells.
        """
        batch = self.labelled(outputs, targets)
        cells = batch.labels * batch.classes + batch.predicted()
        adds = batch.counted.astype(np.float64)
        if cells.shape[1] != 1:
            adds = counted_by_row(cells, batch.classes**2, adds)
            cells = np.broadcast_to(np.arange(batch.classes**2), adds.shape)
        adds[batch.nan] = np.nan
        return {
            "cells": cells,
            "adds": adds,
            "classes": np.full(len(cells), batch.classes),
        }

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the matrix, cell by cell."""
        matrix = self.matrix(evidence)
        names = self.class_names(len(matrix))
        figures = {}
        for i, true in enumerate(names):
            for j, predicted in enumerate(names):
                figures[f"{true}/{predicted}"] = float(matrix[i, j])
        return figures

    def matrix(self, evidence: Any) -> np.ndarray:
        """Return the matrix as an array: row = true class, column = predicted class."""
        classes = int(evidence["classes"][0])
        cells = evidence["cells"].ravel()
        adds = evidence["adds"].ravel()
        matrix = np.bincount(cells, adds, classes**2).reshape(classes, classes)
        if np.isnan(matrix).any():
            return np.full_like(matrix, np.nan)
        return matrix
