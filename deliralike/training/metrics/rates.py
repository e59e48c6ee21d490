"""Rates of right and wrong voxels of a class: sensitivity, specificity, precision, F1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deliralike.training.metrics.overlap import Dice
from deliralike.training.metrics.regions import Counts, RegionRatio


@dataclass(frozen=True, kw_only=True)
class Sensitivity(RegionRatio):
    """The fraction of a class's voxels that are predicted as it (recall): by class, and ``"mean"``.

    A class without a voxel to divide by (with ``over="samples"``, in that sample) has no figure;
    one without any figure is NaN and left out of the mean over classes. All are NaN where a score
    is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        over: ``"voxels"``: one figure from the voxels of all samples, which is scikit-learn's;
            ``"samples"``: the mean of every sample's figure, for volumes and pictures.
        include_background: Whether class 0 is among the figures and the mean.
        mean_of: The mean is that of the ``"classes"``, or of the ``"samples"``; see `Dice`.
        ignored: The label of voxels that do not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> scores = np.eye(2)[[[0, 0, 1, 1]]].transpose(0, 2, 1)  # (1, classes, 4 pixels)
        >>> Sensitivity()(scores, np.array([[0, 0, 0, 1]]))
        {'0': 0.6666666666666666, '1': 1.0, 'mean': 0.8333333333333333}
    """

    name = "sensitivity"

    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        return counts.both, counts.true


@dataclass(frozen=True, kw_only=True)
class Specificity(RegionRatio):
    """The fraction of the voxels of other classes that are not predicted as the class.

    Settings and rules are those of `Sensitivity`.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> scores = np.eye(2)[[[0, 0, 1, 1]]].transpose(0, 2, 1)  # (1, classes, 4 pixels)
        >>> Specificity(include_background=False)(scores, np.array([[0, 0, 0, 1]]))["1"]
        0.6666666666666666
    """

    name = "specificity"

    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        others = counts.voxels - counts.true
        return others - counts.predicted + counts.both, others


@dataclass(frozen=True, kw_only=True)
class Precision(RegionRatio):
    """The fraction of the voxels predicted as a class that belong to it.

    Settings and rules are those of `Sensitivity`.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> scores = np.eye(2)[[[0, 0, 1, 1]]].transpose(0, 2, 1)  # (1, classes, 4 pixels)
        >>> Precision(include_background=False)(scores, np.array([[0, 0, 0, 1]]))["1"]
        0.5
    """

    name = "precision"

    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        return counts.both, counts.predicted


@dataclass(frozen=True, kw_only=True)
class F1(Dice):
    """The harmonic mean of sensitivity and precision: twice the hits by both regions' voxels.

    It is `Dice` by another name.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.

    Example:
        >>> scores = np.eye(2)[[0, 1, 1, 0]]  # (4 samples, classes)
        >>> F1()(scores, np.array([0, 1, 0, 0]))
        {'0': 0.8, '1': 0.6666666666666666, 'mean': 0.7333333333333334}
    """

    name = "f1"
