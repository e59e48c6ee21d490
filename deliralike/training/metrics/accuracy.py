"""Accuracy: the fraction of labels whose class has the highest score, or one of the highest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.metrics.scores import Labelled, LabelMetric, ratio


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

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
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
