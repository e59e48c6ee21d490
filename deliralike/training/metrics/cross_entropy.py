"""Cross-entropy of scores and labels, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.training.metrics.scores import Labelled, LabelMetric, ratio


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

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """Return the sum over each sample's labels, and the number of labels that count."""
        batch = self.labelled(outputs, targets)
        return {
            "sum": self._losses(batch).sum(axis=1),
            "counted": batch.counted.sum(axis=1),
        }

    def compute(self, evidence: Any) -> float:
        """Return the mean over all labels that count."""
        return ratio(evidence["sum"].sum(), evidence["counted"].sum())

    def _losses(self, batch: Labelled) -> np.ndarray:
        scores = batch.scores.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            # log(0) is an infinite loss; inf - inf is NaN
            log_p = np.log(scores) if self.from_probabilities else log_softmax(scores)
        labels = batch.labels[:, np.newaxis]
        of_label = np.take_along_axis(log_p, labels, axis=1)[:, 0]
        of_label = np.where(np.isnan(scores).any(axis=1), np.nan, of_label)
        return np.where(batch.counted, -of_label, 0.0)


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return log-probabilities from logits along axis 1."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
