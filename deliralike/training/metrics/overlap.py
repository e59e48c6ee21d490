"""Overlap of the predicted and the true region of a class: Dice and IoU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deliralike.training.metrics.regions import Counts, RegionRatio


@dataclass(frozen=True, kw_only=True)
class Overlap(RegionRatio):
    """The base of `Dice` and `IoU`, with their rules for regions that are empty."""

    ignore_empty: bool | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.ignore_empty is not None:
            self.need_samples(f"ignore_empty={self.ignore_empty!r}")

    def _figures(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        figures, defined = super()._figures(counts)
        if self.ignore_empty is None:
            return figures, defined
        if self.ignore_empty:
            return figures, counts.true != 0
        return np.where(defined, figures, 1.0), np.ones_like(defined)


@dataclass(frozen=True, kw_only=True)
class Dice(Overlap):
    """Twice the intersection by the sum of both regions: figures by class, and ``"mean"``.

    A class that is neither predicted nor true has no figure (with ``over="samples"``, in that
    sample); predicted but absent, or present but missed, it counts 0. A class without any figure is
    NaN and left out of the mean over classes. All are NaN where a score is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        over: ``"voxels"``: one figure from the voxels of all samples, which is scikit-learn's;
            ``"samples"``: the mean of every sample's figure, for volumes and pictures.
        include_background: Whether class 0 is among the figures and the mean.
        mean_of: The mean is that of the ``"classes"``, or of the ``"samples"``, each with the mean
            of its own classes (with ``over="samples"``); they differ where a class has no figure in
            some samples.
        ignored: The label of voxels that do not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.
        ignore_empty: With ``over="samples"``, MONAI's rules for a class that is not in the labels
            of a sample. True: it has no figure there, even if it is predicted. False: it counts 1
            if it is not predicted, and 0 if it is.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Source:
        Dice 1945, doi 10.2307/1932409.

    Example:
        >>> scores = np.eye(2)[[[0, 0, 1, 1]]].transpose(0, 2, 1)  # (1, classes, 4 pixels)
        >>> Dice(classes=["background", "cell"])(scores, np.array([[0, 0, 0, 1]]))
        {'background': 0.8, 'cell': 0.6666666666666666, 'mean': 0.7333333333333334}
    """

    name = "dice"

    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        return 2 * counts.both, counts.predicted + counts.true


@dataclass(frozen=True, kw_only=True)
class IoU(Overlap):
    """The intersection of both regions by their union: figures by class, and ``"mean"``.

    Settings and rules are those of `Dice`.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Source:
        Jaccard 1912, doi 10.1111/j.1469-8137.1912.tb05611.x.

    Example:
        >>> scores = np.eye(2)[[[0, 0, 1, 1]]].transpose(0, 2, 1)  # (1, classes, 4 pixels)
        >>> IoU(include_background=False)(scores, np.array([[0, 0, 0, 1]]))
        {'1': 0.5, 'mean': 0.5}
    """

    name = "iou"

    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        union = counts.predicted + counts.true - counts.both
        return counts.both, union
