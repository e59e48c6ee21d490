"""Overlap of the predicted and the true region of a class: Dice and IoU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import SettingError, suggestion
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.scores import Labelled, class_names, labelled

OVER = ("samples", "voxels")


@dataclass(frozen=True, kw_only=True)
class Overlap(Metric):
    """The base of `Dice` and `IoU`: the sizes of both regions and of their intersection.

    The sizes are counted for each sample and class.
    """

    higher_is_better = True
    classes: Sequence[str] | None = None
    over: str = "samples"
    include_background: bool = True
    ignored: int | None = None
    from_probabilities: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.over not in OVER:
            raise SettingError(
                f"{self.name} is taken over samples or voxels, not {self.over!r}. "
                f"{suggestion(self.over, OVER)}"
            )
        refuse_mean(self.classes, self.name)

    def evidence(self, outputs: Any, targets: Any) -> dict[str, np.ndarray]:
        """Return the voxels of the predicted region, of the true one and of their intersection.

        Shapes:
            Each ``(samples, classes)``.
        """
        batch = labelled(
            outputs,
            targets,
            ignored=self.ignored,
            from_probabilities=self.from_probabilities,
            metric=self.name,
        )
        class_names(self.classes, batch.classes, self.name)
        predicted = batch.predicted()
        both = np.where(predicted == batch.labels, predicted, batch.classes)
        return {
            "both": _count(batch, both),
            "predicted": _count(batch, predicted),
            "true": _count(batch, batch.labels),
        }

    def compute(self, evidence: Any) -> dict[str, float]:
        """Return the figure of each class, and their mean."""
        if self.over == "voxels":
            sums = {}
            for name, counts in evidence.items():
                sums[name] = counts.sum(axis=0, keepdims=True)
            evidence = sums
        figures = self._figures(**evidence)
        present = evidence["predicted"] + evidence["true"] != 0
        return by_class(figures, present, self.classes, self.include_background, self.name)

    @abstractmethod
    def _figures(self, both: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, kw_only=True)
class Dice(Overlap):
    """Twice the intersection by the sum of both regions: figures by class, and ``"mean"``.

    A class that is neither predicted nor true in a sample has no figure there and is left out of
    the mean over samples; predicted but absent, or present but missed, it counts 0. A class without
    any figure is NaN and left out of the mean over classes. All are NaN where a score is NaN.

    Args:
        classes: Names of the classes; their numbers when not given.
        over: ``"samples"``: the mean of every sample's figure; ``"voxels"``: one figure from the
            voxels of all samples.
        include_background: Whether class 0 is among the figures and the mean.
        ignored: The label of voxels that do not count.
        from_probabilities: Whether scores are probabilities; it matters for those of one channel
            only.

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

    def _figures(self, both: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        return _ratios(2 * both, predicted + true)


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

    def _figures(self, both: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        return _ratios(both, predicted + true - both)


def by_class(
    figures: np.ndarray,
    defined: np.ndarray,
    classes: Sequence[str] | None,
    include_background: bool,
    metric: str,
) -> dict[str, float]:
    """Return the mean of each class over the samples where it is defined, and the mean of these.

    Shapes:
        Figures and defined ``(samples, classes)``.
    """
    names = class_names(classes, figures.shape[1], metric)
    present = defined.sum(axis=0)
    means = _ratios(np.where(defined, figures, 0).sum(axis=0), present)
    if not include_background:
        names = names[1:]
        means = means[1:]
        present = present[1:]
    has_mean = present > 0
    by_name = dict(zip(names, means.tolist(), strict=True))
    by_name["mean"] = float(_ratios(means[has_mean].sum(), has_mean.sum()))
    return by_name


def refuse_mean(classes: Sequence[str] | None, metric: str) -> None:
    """Raise an error if a class has the name of the mean over classes."""
    if classes is not None and "mean" in classes:
        raise SettingError(
            f"{metric}: a class cannot be called 'mean', which is the mean over classes"
        )


def _count(batch: Labelled, values: np.ndarray) -> np.ndarray:
    """Return the number of places of each class in each sample: ``(samples, classes)``.

    Samples with a NaN have NaN.
    """
    columns = batch.classes + 1  # the last one takes the places that do not count
    first_columns = np.arange(len(values))[:, np.newaxis] * columns  # of each sample
    places = first_columns + np.where(batch.counted, values, batch.classes)
    flat = np.bincount(places.ravel(), minlength=len(values) * columns)
    counts = flat.reshape(-1, columns)[:, :-1].astype(np.float64)
    counts[batch.nan] = np.nan
    return counts


def _ratios(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0 is NaN: there is no figure
        return np.divide(part, whole)
