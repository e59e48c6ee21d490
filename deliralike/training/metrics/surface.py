"""Distance between the surfaces of the predicted and the true region of a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.packages import needed
from deliralike.errors import BatchError, SettingError
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.overlap import by_class, refuse_mean
from deliralike.training.metrics.scores import class_names, labelled


@dataclass(frozen=True, kw_only=True)
class Hausdorff(Metric):
    """The largest distance from one surface to the other: figures by class, and ``"mean"``.

    The distance is the larger one of both directions. A surface is the voxels of a region with a
    neighbour (across a face) outside it, the picture's border included. With `percentile` below 100
    it is the larger of the two directed percentiles instead of the largest distance.

    A class that is neither predicted nor true in a sample has no figure there and is left out of
    the mean over samples. Where only one of the two regions is empty the distance is `missing`. A
    class without any figure is NaN and left out of the mean over classes. All are NaN where a score
    is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        percentile: 95 is less moved by single voxels than 100.
        spacing: The size of a voxel along each axis, in millimetres say; 1 when not given.
        missing: The distance to a region that is not there: infinite, or a number such as the
            picture's diagonal.
        include_background: Whether class 0 is among the figures and the mean.
        ignored: The label of voxels that do not count; they belong to no region.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

    Shapes:
        Scores ``(samples, classes, *size)``, labels ``(samples, *size)``.

    Raises:
        DataUnavailable: SciPy is not installed.

    Source:
        Huttenlocher et al. 1993, doi 10.1109/34.232073.

    Example:
        >>> scores = np.eye(2)[[[1, 1, 0, 0, 0]]].transpose(0, 2, 1)  # (1, classes, 5 pixels)
        >>> Hausdorff(spacing=(2.0,))(scores, np.array([[1, 1, 1, 1, 0]]))
        {'1': 4.0, 'mean': 4.0}
    """

    higher_is_better = False
    classes: Sequence[str] | None = None
    percentile: float = 100.0
    spacing: Sequence[float] | None = None
    missing: float = float("inf")
    include_background: bool = False
    ignored: int | None = None
    from_probabilities: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.percentile <= 100:
            raise SettingError(f"percentile lies above 0 and up to 100, not at {self.percentile!r}")
        if self.spacing is not None and min(self.spacing, default=0.0) <= 0:
            raise SettingError(f"spacing is a size above 0 along each axis, not {self.spacing!r}")
        refuse_mean(self.classes, self.name)

    @property
    def name(self) -> str:  # type: ignore[override]
        """``hausdorff``, and the percentile unless it is 100."""
        if self.percentile == 100:
            return "hausdorff"
        return f"hausdorff{self.percentile:g}"

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """Return the distance of each class in each sample, and whether it is defined.

        Shapes:
            ``(samples, classes)``.
        """
        batch = labelled(
            outputs,
            targets,
            ignored=self.ignored,
            from_probabilities=self.from_probabilities,
            metric=self.name,
        )
        class_names(self.classes, batch.classes, self.name)
        spacing = self._spacing(batch.shape)
        shape = (len(batch.labels), *batch.shape)
        predicted = np.where(batch.counted, batch.predicted(), -1).reshape(shape)
        true = np.where(batch.counted, batch.labels, -1).reshape(shape)
        distances = np.full((len(batch.labels), batch.classes), np.nan)
        first = 0 if self.include_background else 1
        for i in range(len(distances)):
            for c in range(first, batch.classes):
                predicted_region = predicted[i] == c
                true_region = true[i] == c
                distances[i, c] = self._distance(predicted_region, true_region, spacing)
        return {
            "distances": distances,
            "defined": ~np.isnan(distances) | batch.nan[:, np.newaxis],
            "nan": batch.nan,
        }

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the mean distance of each class, and their mean."""
        has_nan = evidence["nan"][:, np.newaxis]
        distances = np.where(has_nan, np.nan, evidence["distances"])
        return by_class(
            distances, evidence["defined"], self.classes, self.include_background, self.name
        )

    def _spacing(self, shape: tuple[int, ...]) -> np.ndarray:
        if not shape:
            raise BatchError(
                f"{self.name} wants scores (samples, classes, *size): these have no size"
            )
        if self.spacing is not None and len(self.spacing) != len(shape):
            raise SettingError(
                f"spacing={self.spacing!r} has {len(self.spacing)} axes, and samples have "
                f"{len(shape)}"
            )
        if self.spacing is None:
            return np.ones(len(shape))
        return np.array(self.spacing, np.float64)

    def _distance(self, predicted: np.ndarray, true: np.ndarray, spacing: np.ndarray) -> float:
        if not predicted.any() and not true.any():
            return float("nan")
        if not predicted.any() or not true.any():
            return self.missing
        first = surface(predicted) * spacing
        second = surface(true) * spacing
        forward = float(np.percentile(_nearest(first, second), self.percentile))
        backward = float(np.percentile(_nearest(second, first), self.percentile))
        return max(forward, backward)


def surface(region: np.ndarray) -> np.ndarray:
    """Return the places of a region with a neighbour outside it, across a face: ``(voxels, axes)``.

    Example:
        >>> surface(np.array([0, 1, 1, 1, 0], bool)).ravel().tolist()
        [1, 3]
    """
    interior = _scipy("ndimage").binary_erosion(region)
    return np.argwhere(region & ~interior)


def _nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the distance of each point to the nearest of the others."""
    tree = _scipy("spatial").cKDTree(others)
    distances, _ = tree.query(points)
    return distances


def _scipy(part: str) -> Any:
    return needed(f"scipy.{part}", package="scipy", extra="data", purpose="the Hausdorff distance")
