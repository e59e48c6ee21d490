"""Calibration: whether a confidence of 80 % is right in 80 % of the cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.metrics.cross_entropy import log_softmax
from deliralike.training.metrics.scores import (
    Labelled,
    LabelMetric,
    counted_by_row,
    ratio,
)


@dataclass(frozen=True, kw_only=True)
class CalibrationError(LabelMetric):
    """The expected calibration error: the mean gap between confidence and accuracy over bins.

    Bins are ranges of confidence. The confidence is the probability of the predicted class, for two
    classes and for more. Bins are equally wide and include their upper end. NaN where a score is
    NaN, or where no label counts.

    Args:
        bins: The number of bins between 0 and 1.
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; else they are logits.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Source:
        Guo et al. 2017, arXiv 1706.04599.

    Example:
        >>> p = np.array([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.75, 0.25]])
        >>> CalibrationError(from_probabilities=True)(p, np.array([0, 0, 1, 1]))
        0.25
    """

    name = "calibration-error"
    higher_is_better = False
    bins: int = 15

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.bins < 1:
            raise SettingError(f"{self.name} needs at least one bin, not {self.bins!r}")

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """Return each sample's sum of ``right - confidence`` in each bin, and its counted labels.

        Shapes:
            ``gaps`` is ``(samples, bins)``.
        """
        batch = self.labelled(outputs, targets)
        confidence = self._confidence(batch)
        is_right = batch.predicted() == batch.labels
        gaps = np.where(batch.counted, is_right - confidence, 0.0)
        inner_edges = np.linspace(0, 1, self.bins + 1)[1:-1]
        bins = np.searchsorted(inner_edges, confidence)
        return {
            "gaps": counted_by_row(bins, self.bins, gaps),
            "counted": batch.counted.sum(axis=1),
        }

    def compute(self, evidence: Any) -> float:
        """Return the sum of the sizes of the bins' gaps, divided by the number of labels."""
        gaps = evidence["gaps"].sum(axis=0)
        return ratio(np.abs(gaps).sum(), evidence["counted"].sum())

    def _confidence(self, batch: Labelled) -> np.ndarray:
        scores = batch.scores.astype(np.float64)
        if self.from_probabilities:
            return scores.max(axis=1)
        with np.errstate(invalid="ignore"):  # infinite logits give NaN
            return np.exp(log_softmax(scores).max(axis=1))
