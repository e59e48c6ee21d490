"""Distances between the surfaces of the predicted and the true region of a class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.packages import needed
from deliralike.errors import BatchError, SettingError
from deliralike.training.metrics.metric import Rows
from deliralike.training.metrics.regions import by_class
from deliralike.training.metrics.scores import ClassMetric, refuse_mean


@dataclass(frozen=True, kw_only=True)
class SurfaceMetric(ClassMetric):
    """The base of metrics of two surfaces: a figure for each sample and class."""

    higher_is_better = False
    spacing: float | Sequence[float] | None = None
    include_background: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        sizes = 1 if self.spacing is None else self.spacing
        if not np.greater(sizes, 0).all():
            raise SettingError(
                f"spacing is a size above 0 along each axis, not {self.spacing!r}"
            )
        refuse_mean(self.classes or (), "class", self.name)

    def evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the figure of each class in each sample, and whether it is defined.

        Shapes:
            ``(samples, classes)``.
        """
        batch = self.labelled(outputs, targets)
        spacing = self._spacing(batch.shape)
        shape = (len(batch.labels), *batch.shape)
        predicted = np.where(batch.counted, batch.predicted(), -1).reshape(shape)
        true = np.where(batch.counted, batch.labels, -1).reshape(shape)
        figures = np.full((len(batch.labels), batch.classes), np.nan)
        first = 0 if self.include_background else 1
        for i in range(len(figures)):
            for c in range(first, batch.classes):
                predicted_surface = surface(predicted[i] == c) * spacing
                true_surface = surface(true[i] == c) * spacing
                if len(predicted_surface) and len(true_surface):
                    figures[i, c] = self._figure(predicted_surface, true_surface)
                elif len(predicted_surface) or len(true_surface):
                    figures[i, c] = getattr(self, "missing", 0.0)
        return {
            "figures": figures,
            "defined": ~np.isnan(figures) | batch.nan[:, np.newaxis],
            "nan": batch.nan,
        }

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the mean figure of each class, and their mean."""
        has_nan = evidence["nan"][:, np.newaxis]
        figures = np.where(has_nan, np.nan, evidence["figures"])
        return by_class(
            figures,
            evidence["defined"],
            names=self.class_names(figures.shape[1]),
            include_background=self.include_background,
        )

    @abstractmethod
    def _figure(self, predicted: np.ndarray, true: np.ndarray) -> float:
        """Return the figure of one class in one sample, from the voxels of both surfaces.

        Where one of the regions is empty the figure is `missing`, or 0 without such a setting.

        Shapes:
            ``(voxels, axes)``, in the unit of the spacing.
        """

    def _spacing(self, shape: tuple[int, ...]) -> np.ndarray:
        if not shape:
            raise BatchError(
                f"{self.name} wants scores (samples, classes, *size): these have no size"
            )
        sizes = np.asarray(1 if self.spacing is None else self.spacing, np.float64)
        if sizes.ndim and len(sizes) != len(shape):
            raise SettingError(
                f"spacing={self.spacing!r} has {len(sizes)} axes, and samples have {len(shape)}"
            )
        return np.broadcast_to(sizes, len(shape))


@dataclass(frozen=True, kw_only=True)
class Hausdorff(SurfaceMetric):
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
        spacing: The size of a voxel, in millimetres say: one number, or one for each axis; 1 when
            not given.
        missing: The distance to a region that is not there: infinite, or a number such as the
            picture's diagonal; NaN leaves the sample out (as MONAI does with a percentile).
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

    percentile: float = 100.0
    missing: float = float("inf")

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if not 0 < self.percentile <= 100:
            raise SettingError(
                f"percentile lies above 0 and up to 100, not at {self.percentile!r}"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        """``hausdorff``, and the percentile unless it is 100."""
        if self.percentile == 100:
            return "hausdorff"
        return f"hausdorff{self.percentile:g}"

    def _figure(self, predicted: np.ndarray, true: np.ndarray) -> float:
        forward = np.percentile(nearest(predicted, true), self.percentile)
        backward = np.percentile(nearest(true, predicted), self.percentile)
        return float(max(forward, backward))


@dataclass(frozen=True, kw_only=True)
class SurfaceDice(SurfaceMetric):
    """The fraction of both surfaces that lies within a tolerance of the other one.

    Figures come by class, and ``"mean"``. Surfaces, settings and rules are those of `Hausdorff`,
    except that a class which is only predicted, or only true, counts 0.

    Args:
        tolerance: The largest distance that counts as right, in the unit of `spacing`.

    Shapes:
        Scores ``(samples, classes, *size)``, labels ``(samples, *size)``.

    Raises:
        DataUnavailable: SciPy is not installed.

    Source:
        Nikolov et al. 2018, arXiv 1809.04430; a surface's size is its number of voxels.

    Example:
        >>> scores = np.eye(2)[[[1, 1, 1, 0, 0]]].transpose(0, 2, 1)  # (1, classes, 5 pixels)
        >>> SurfaceDice(tolerance=0.5)(scores, np.array([[1, 1, 0, 0, 0]]))
        {'1': 0.5, 'mean': 0.5}
    """

    name = "surface-dice"
    higher_is_better = True
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if not 0 <= self.tolerance < np.inf:
            raise SettingError(
                f"tolerance is a finite distance from 0 up, not {self.tolerance!r}"
            )

    def _figure(self, predicted: np.ndarray, true: np.ndarray) -> float:
        both = [nearest(predicted, true), nearest(true, predicted)]
        distances = np.concatenate(both)
        # In float32, since a distance of one voxel is the spacing but for its last bits.
        return float(
            (distances.astype(np.float32) <= np.float32(self.tolerance)).mean()
        )


def surface(region: np.ndarray) -> np.ndarray:
    """Return the places of a region with a neighbour outside it, across a face: ``(voxels, axes)``.

    Example:
        >>> surface(np.array([0, 1, 1, 1, 0], bool)).ravel().tolist()
        [1, 3]
    """
    interior = _scipy("ndimage").binary_erosion(region)
    return np.argwhere(region & ~interior)


def nearest(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the distance of each point to the nearest of the others."""
    tree = _scipy("spatial").cKDTree(others)
    distances, _ = tree.query(points)
    return distances


def _scipy(part: str) -> Any:
    return needed(
        f"scipy.{part}", package="scipy", extra="data", purpose="a distance of surfaces"
    )
