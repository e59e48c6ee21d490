"""Ratios of the predicted and the true region of a class: overlap and rates, and their means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deliralike.errors import SettingError, refuse_unknown
from deliralike.training.metrics.scores import (
    ClassMetric,
    Labelled,
    counted_by_row,
    refuse_mean,
)

OVER = ("samples", "voxels")
Ratio = tuple[
    np.ndarray, np.ndarray
]  # a part and the whole, or figures and whether there is one


class Counts(NamedTuple):
    """The voxels of the predicted region, of the true one, of both, and of the sample.

    Shapes:
        Each ``(samples, classes)``.
    """

    both: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    voxels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class RegionRatio(ClassMetric):
    """The base of metrics that are a ratio of numbers of voxels, for each class."""

    higher_is_better = True
    over: str = "voxels"
    include_background: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        message = f"{self.name} is taken over samples or voxels, not {self.over!r}"
        refuse_unknown(self.over, OVER, message, SettingError)
        refuse_mean(self.classes or (), "class", self.name)

    def evidence(self, outputs: Any, targets: Any) -> Counts:
        """Return the counts of each class in each sample."""
        batch = self.labelled(outputs, targets)
        predicted = batch.predicted()
        both = np.where(predicted == batch.labels, predicted, batch.classes)
        true = _count(batch, batch.labels)
        whole = true.sum(axis=1, keepdims=True)
        return Counts(
            _count(batch, both),
            _count(batch, predicted),
            true,
            np.repeat(whole, batch.classes, axis=1),
        )

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the figure of each class, and their mean."""
        if self.over == "voxels":
            evidence = Counts(*[each.sum(axis=0, keepdims=True) for each in evidence])
        figures, defined = self._figures(evidence)
        return by_class(
            figures,
            defined,
            names=self.class_names(figures.shape[1]),
            include_background=self.include_background,
        )

    def _figures(self, counts: Counts) -> Ratio:
        """Return the figures, and where there is one: not where it would be 0 by 0."""
        part, whole = self._ratio(counts)
        return ratios(part, whole), whole != 0

    @abstractmethod
    def _ratio(self, counts: Counts) -> Ratio:
        """Return what is divided, and by what."""


def by_class(
    figures: np.ndarray,
    defined: np.ndarray,
    *,
    names: Sequence[str],
    include_background: bool,
) -> dict[str, float]:
    """Return the mean of each class over the samples where it is defined, and the mean of all.

    Shapes:
        Figures and defined ``(samples, classes)``.
    """
    if not include_background:
        names = names[1:]
        figures = figures[:, 1:]
        defined = defined[:, 1:]
    means = ratios(np.where(defined, figures, 0).sum(axis=0), defined.sum(axis=0))
    by_name = dict(zip(names, means.tolist(), strict=True))
    has_mean = np.any(defined, axis=0)
    by_name["mean"] = float(ratios(means[has_mean].sum(), has_mean.sum()))
    return by_name


def ratios(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return ``part / whole``; NaN for 0 by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(part, whole)


def _count(batch: Labelled, values: np.ndarray) -> np.ndarray:
    """Return the number of places of each class in each sample: ``(samples, classes)``.

    Samples with a NaN have NaN.
    """
    # One class more takes the places that do not count.
    numbers = np.where(batch.counted, values, batch.classes)
    counts = counted_by_row(numbers, batch.classes + 1)[:, :-1].astype(np.float64)
    counts[batch.nan] = np.nan
    return counts


@dataclass(frozen=True, kw_only=True)
class Overlap(RegionRatio):
    """The base of `Dice` and `IoU`, with their rules for regions that are empty."""

    ignore_empty: bool | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.ignore_empty is not None and self.over != "samples":
            raise SettingError(
                f"{self.name}: ignore_empty={self.ignore_empty!r} is about figures of single "
                "samples, and over='voxels' has one figure of all: add over='samples'"
            )

    def _figures(self, counts: Counts) -> Ratio:
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

    def _ratio(self, counts: Counts) -> Ratio:
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

    def _ratio(self, counts: Counts) -> Ratio:
        union = counts.predicted + counts.true - counts.both
        return counts.both, union


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

    def _ratio(self, counts: Counts) -> Ratio:
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

    def _ratio(self, counts: Counts) -> Ratio:
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

    def _ratio(self, counts: Counts) -> Ratio:
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
