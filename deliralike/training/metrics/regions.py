"""Ratios of the predicted and the true region of a class, and the mean of figures by class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deliralike.errors import SettingError, suggestion
from deliralike.training.metrics.scores import (
    ClassMetric,
    Labelled,
    counted_by_row,
)

OVER = ("samples", "voxels")
MEAN_OF = ("classes", "samples")


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
    mean_of: str = "classes"

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.over not in OVER:
            raise SettingError(
                f"{self.name} is taken over samples or voxels, not {self.over!r}. "
                f"{suggestion(self.over, OVER)}"
            )
        check_mean(self.mean_of, self.classes, self.name)
        if self.mean_of == "samples":
            self.need_samples("mean_of='samples'")

    def need_samples(self, setting: str) -> None:
        """Refuse a setting about single samples where the figure is one of all voxels.

        Raises:
            SettingError: There are no figures of single samples.
        """
        if self.over != "samples":
            raise SettingError(
                f"{self.name}: {setting} is about figures of single samples, and over='voxels' has "
                "one figure of all: add over='samples'"
            )

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
            mean_of=self.mean_of,
        )

    def _figures(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        """Return the figures, and where there is one: not where it would be 0 by 0."""
        part, whole = self._ratio(counts)
        return ratios(part, whole), whole != 0

    @abstractmethod
    def _ratio(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        """Return what is divided, and by what."""


def by_class(
    figures: np.ndarray,
    defined: np.ndarray,
    *,
    names: Sequence[str],
    include_background: bool,
    mean_of: str,
) -> dict[str, float]:
    """Return the mean of each class over the samples where it is defined, and the mean of all.

    Args:
        mean_of: ``"classes"``: the mean of the classes' means; ``"samples"``: the mean of the
            samples' means over their classes.

    Shapes:
        Figures and defined ``(samples, classes)``.
    """
    if not include_background:
        names = names[1:]
        figures = figures[:, 1:]
        defined = defined[:, 1:]
    of_classes = _means(figures, defined, axis=0)
    by_name = dict(zip(names, of_classes.tolist(), strict=True))
    axis = 0 if mean_of == "classes" else 1
    means = _means(figures, defined, axis=axis)
    has_mean = np.any(defined, axis=axis)
    by_name["mean"] = float(ratios(means[has_mean].sum(), has_mean.sum()))
    return by_name


def check_mean(mean_of: str, classes: Sequence[str] | None, metric: str) -> None:
    """Check which mean is wanted, and that no class has its name.

    Raises:
        SettingError: A class is called ``"mean"``, or there is no such mean.
    """
    if mean_of not in MEAN_OF:
        raise SettingError(
            f"{metric} has a mean of classes or of samples, not of {mean_of!r}. "
            f"{suggestion(mean_of, MEAN_OF)}"
        )
    if classes is not None and "mean" in classes:
        raise SettingError(
            f"{metric}: a class cannot be called 'mean', which is the mean over classes"
        )


def ratios(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return ``part / whole``; NaN for 0 by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(part, whole)


def _means(figures: np.ndarray, defined: np.ndarray, axis: int) -> np.ndarray:
    """Return means along an axis of the figures that are defined; NaN where none is."""
    return ratios(np.where(defined, figures, 0).sum(axis=axis), defined.sum(axis=axis))


def _count(batch: Labelled, values: np.ndarray) -> np.ndarray:
    """Return the number of places of each class in each sample: ``(samples, classes)``.

    Samples with a NaN have NaN.
    """
    # One class more takes the places that do not count.
    numbers = np.where(batch.counted, values, batch.classes)
    counts = counted_by_row(numbers, batch.classes + 1)[:, :-1].astype(np.float64)
    counts[batch.nan] = np.nan
    return counts
