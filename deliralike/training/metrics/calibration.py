"""Whether a confidence of 80 % is right in 80 % of the cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.metrics.cross_entropy import log_softmax
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.scores import Labelled, labelled, ratio


@dataclass(frozen=True, kw_only=True)
class CalibrationError(Metric):
    """The expected calibration error: the mean gap between confidence and accuracy, over bins of confidence.

    The confidence is the probability of the predicted class, for two classes and for more. Bins are equally wide and
    include their upper end. NaN where a score is NaN, or where no label counts.

    Args:
        bins: How many bins there are between 0 and 1.
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
    ignored: int | None = None
    from_probabilities: bool = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.bins < 1:
            raise SettingError(f"{self.name} needs at least one bin, not {self.bins!r}")

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """What each bin gets from a sample: the sum of ``right - confidence``; and how many labels count.

        Shapes:
            ``gaps`` is ``(samples, bins)``.
        """
        found = labelled(
            outputs, targets, ignored=self.ignored, from_probabilities=self.from_probabilities, metric=self.name
        )
        confidence = self._confidence(found)
        gaps = np.where(found.counted, (found.predicted() == found.labels) - confidence, 0.0)
        inner = np.linspace(0, 1, self.bins + 1)[1:-1]
        bins = np.searchsorted(inner, confidence) + np.arange(len(gaps))[:, np.newaxis] * self.bins
        sums = np.bincount(bins.ravel(), gaps.ravel(), gaps.shape[0] * self.bins).reshape(-1, self.bins)
        return {"gaps": sums, "counted": found.counted.sum(axis=1)}

    def compute(self, evidence: Any) -> float:
        """The sizes of the bins' gaps by the number of labels."""
        return ratio(np.abs(evidence["gaps"].sum(axis=0)).sum(), evidence["counted"].sum())

    def _confidence(self, found: Labelled) -> np.ndarray:
        scores = found.scores.astype(np.float64)
        if self.from_probabilities:
            return scores.max(axis=1)
        with np.errstate(invalid="ignore"):  # infinite logits give NaN
            return np.exp(log_softmax(scores).max(axis=1))
