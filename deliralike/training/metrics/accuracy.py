"""How often the right label is first, or among the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.scores import Labelled, labelled, ratio


@dataclass(frozen=True, kw_only=True)
class Accuracy(Metric):
    """The fraction of labels whose class has the highest score.

    Of equal scores the first counts as the highest. NaN where a score is NaN, or where no label counts.

    Args:
        ignored: The label that does not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel only.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> Accuracy(ignored=-1)(np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), np.array([0, 0, -1]))
        0.5
    """

    name = "accuracy"
    higher_is_better = True
    ignored: int | None = None
    from_probabilities: bool = False

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """How many labels of a sample are right, and how many count."""
        found = labelled(
            outputs, targets, ignored=self.ignored, from_probabilities=self.from_probabilities, metric=self.name
        )
        right = ((self._first(found) & found.counted).sum(axis=1)).astype(np.float64)
        return {"right": np.where(found.nan, np.nan, right), "counted": found.counted.sum(axis=1)}

    def compute(self, evidence: Any) -> float:
        """All right labels by all that count."""
        return ratio(evidence["right"].sum(), evidence["counted"].sum())

    def _first(self, found: Labelled) -> np.ndarray:
        return found.predicted() == found.labels


@dataclass(frozen=True, kw_only=True)
class TopK(Accuracy):
    """The fraction of labels whose class is among the `k` highest scores; with ``k=1`` the accuracy.

    Of equal scores the first counts as the higher. NaN where a score is NaN, or where no label counts.

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
        """Refuse what makes no sense."""
        if self.k < 1:
            raise SettingError(f"top-k needs k of at least 1, not {self.k!r}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """``top-`` and the number."""
        return f"top-{self.k}"

    def _first(self, found: Labelled) -> np.ndarray:
        if self.k > found.classes:
            raise SettingError(f"{self.name} needs at least {self.k} classes, and the scores have {found.classes}")
        own = np.take_along_axis(found.scores, found.labels[:, np.newaxis], axis=1)
        earlier = np.arange(found.classes)[:, np.newaxis] < found.labels[:, np.newaxis]
        return ((found.scores > own) | ((found.scores == own) & earlier)).sum(axis=1) < self.k


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """The fraction of labels whose class has the highest score; see `Accuracy`.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
        0.5
    """
    return Accuracy().compute(Accuracy().evidence(scores, labels))
