"""Checked scores and labels in one shape, for metrics of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError, IndexRangeError, SettingError
from deliralike.training.metrics.metric import Metric


@dataclass(frozen=True)
class Labelled:
    """Scores and labels of a batch with all places of a sample (its pixels, say) along one axis.

    Attributes:
        scores: Logits or probabilities of each class.
        labels: Whole numbers; 0 where the label does not count.
        counted: Whether the label counts.
        shape: The sample's own shape, of which `places` is the product; empty for one label a
            sample.

    Shapes:
        Scores ``(samples, classes, places)``, labels and counted ``(samples, places)``.
    """

    scores: np.ndarray
    labels: np.ndarray
    counted: np.ndarray
    shape: tuple[int, ...]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.scores.shape[1]

    @property
    def nan(self) -> np.ndarray:
        """The samples with a NaN among the scores that count; their evidence has to be NaN."""
        is_nan = np.isnan(self.scores).any(axis=1)
        return (is_nan & self.counted).any(axis=1)

    def predicted(self) -> np.ndarray:
        """Return the class of the highest score, the first of equal ones: ``(samples, places)``."""
        return self.scores.argmax(axis=1)


@dataclass(frozen=True, kw_only=True)
class LabelMetric(Metric):
    """The base of metrics of scores and labels, of which the ignored ones do not count."""

    ignored: int | None = None
    from_probabilities: bool = False

    def labelled(self, outputs: Any, targets: Any) -> Labelled:
        """Return the checked scores and labels of a batch.

        Scores with one channel are those of class 1 of two: logits of its odds, or with
        `from_probabilities` its probability; they become the scores of two classes.

        Shapes:
            Outputs ``(samples, classes, ...)`` and targets ``(samples, ...)``.

        Raises:
            BatchError: The outputs are no array, do not fit the labels, or the labels are not whole
                numbers.
            IndexRangeError: A label names no class.
        """
        scores = array_of(outputs, "scores", self.name)
        labels = array_of(targets, "labels", self.name)
        wanted = (*scores.shape[:1], *scores.shape[2:])
        if scores.ndim < 2 or labels.shape != wanted:
            raise BatchError(
                f"scores of shape {scores.shape} do not fit labels of shape {labels.shape}: wanted "
                "(samples, classes, ...)"
            )
        if labels.dtype.kind not in "iub":
            raise BatchError(
                f"labels of {self.name} are whole numbers, not {labels.dtype}: use "
                "labels.astype('int64')"
            )
        flat = scores.reshape(*scores.shape[:2], -1)
        flat = _two_classes(flat, self.from_probabilities)
        labels = labels.reshape(len(labels), -1).astype(np.int64, copy=False)
        counted = np.ones(labels.shape, bool)
        if self.ignored is not None:
            counted = labels != self.ignored
        _refuse_outside(labels, counted, flat.shape[1], self.name, self.ignored)
        return Labelled(flat, np.where(counted, labels, 0), counted, scores.shape[2:])


@dataclass(frozen=True, kw_only=True)
class ClassMetric(LabelMetric):
    """The base of metrics with a figure for each class, which may have a name."""

    classes: Sequence[str] | None = None

    def labelled(self, outputs: Any, targets: Any) -> Labelled:
        """Return the checked scores and labels of a batch of as many classes as there are names."""
        batch = super().labelled(outputs, targets)
        self.class_names(batch.classes)
        return batch

    def class_names(self, count: int) -> list[str]:
        """Return the names of the classes: those given, else their numbers.

        Raises:
            SettingError: There are more or fewer names than classes, or two are the same.
        """
        names = list(map(str, range(count) if self.classes is None else self.classes))
        if len(names) != count:
            raise SettingError(
                f"{self.name} was given {len(names)} names of classes, and the scores have {count} "
                "classes"
            )
        for place, name in enumerate(names):
            if name in names[:place]:
                raise SettingError(f"{self.name}: two classes are called {name!r}")
        return names


def class_numbers(scores: np.ndarray, axis: int = 1) -> np.ndarray:
    """Return the class of the highest score; one score alone is above or below zero.

    Example:
        >>> class_numbers(np.array([[0.1, 2.0, -1.0]])).tolist()
        [1]
        >>> class_numbers(np.array([[0.5], [-0.5]])).tolist()
        [1, 0]
    """
    if scores.shape[axis] == 1:
        return (scores.take(0, axis) > 0).astype(np.int64)
    return scores.argmax(axis)


def array_of(value: Any, what: str, metric: str) -> np.ndarray:
    """Return a host array in float32, float64 or a type of whole numbers.

    Raises:
        BatchError: The value is a container, or empty.
    """
    if not isinstance(value, np.ndarray | np.generic):
        raise BatchError(
            f"{metric} wants one NumPy array of {what}, not {nest.described(value)}: give a "
            "function of (outputs, targets) that picks it"
        )
    array = np.asarray(value)
    if array.size == 0:
        raise BatchError(
            f"{metric} needs at least one sample, and the {what} have the shape {array.shape}"
        )
    if array.dtype.kind in "iub" or array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64)


def refuse_mean(names: Sequence[str], kind: str, metric: str) -> None:
    """Refuse the name that the mean has among the figures.

    Raises:
        SettingError: A class or column is called ``"mean"``.
    """
    if "mean" in names:
        raise SettingError(
            f"{metric}: a {kind} cannot be called 'mean', which is the mean of all"
        )


def counted_by_row(
    numbers: np.ndarray, size: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return how often each number below `size` occurs in each row, or the sum of its weights.

    Shapes:
        ``(rows, places)``, twice, give ``(rows, size)``.

    Example:
        >>> counted_by_row(np.array([[0, 2, 2], [1, 1, 1]]), 3).tolist()
        [[1, 0, 2], [0, 3, 0]]
    """
    first_places = np.arange(len(numbers))[:, np.newaxis] * size
    flat_weights = None if weights is None else weights.ravel()
    places = (first_places + numbers).ravel()
    return np.bincount(places, flat_weights, len(numbers) * size).reshape(-1, size)


def ratio(part: float, whole: float) -> float:
    """Return ``part / whole``; NaN where there is nothing to divide by."""
    if not whole:
        return float("nan")
    return float(part / whole)


def _two_classes(scores: np.ndarray, from_probabilities: bool) -> np.ndarray:
    if scores.shape[1] != 1:
        return scores
    other = np.zeros_like(scores)
    if from_probabilities:
        other = 1 - scores
    return np.concatenate([other, scores], axis=1)


def _refuse_outside(
    labels: np.ndarray,
    counted: np.ndarray,
    classes: int,
    metric: str,
    ignored: int | None,
) -> None:
    outside = counted & ((labels < 0) | (labels >= classes))
    if outside.any():
        sample = int(np.flatnonzero(outside.any(axis=1))[0])
        if ignored is not None:
            hint = ""
        else:
            hint = "; a label that does not count is named by ignored=…"
        raise IndexRangeError(
            f"{metric}: sample {sample} of the batch has the label {labels[outside][0]}, and the "
            f"classes are 0 to {classes - 1}{hint}"
        )
