"""The evidence of a metric, collected batch by batch, with its figure and confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from deliralike import data, nest
from deliralike.errors import BatchError
from deliralike.training.metrics import bootstrap
from deliralike.training.metrics.metric import (
    Figures,
    Metric,
    MetricFunction,
    as_metric,
    figures_of,
)

Interval = tuple[float, float]


class Evidence:
    """The evidence that a metric keeps of its batches.

    Args:
        metric: A metric, or a function of (outputs, targets), for which all of both is kept.

    Example:
        >>> from deliralike.training.metrics import Accuracy
        >>> evidence = Evidence(Accuracy())
        >>> evidence.add(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 0]))
        >>> evidence.add(np.array([[0.3, 0.7]]), np.array([0]))
        >>> round(evidence.value(), 3), evidence.samples
        (0.667, 3)
    """

    def __init__(self, metric: Metric | MetricFunction) -> None:
        """Begin without any batch."""
        self.metric = as_metric(metric)
        self.samples = 0
        self._batches: list[Any] = []

    def add(self, outputs: Any, targets: Any) -> None:
        """Add the evidence of a batch.

        Raises:
            BatchError: The outputs do not fit the targets, or there is no sample.
        """
        rows = self.metric.evidence(outputs, targets)
        self.samples += data.size(rows)
        self._batches.append(rows)

    def merge(self, of_all: Callable[[list[Any]], list[Any]]) -> None:
        """Replace the batches by those of all processes, which `of_all` returns."""
        self._batches = of_all(self._batches)
        self.samples = sum(data.size(rows) for rows in self._batches)

    def rows(self) -> Any:
        """Return the evidence of all samples in their order: a nest of arrays, one row a sample.

        Raises:
            BatchError: Nothing was added.
        """
        if not self._batches:
            raise BatchError(
                f"{self.metric.name} has seen no samples: add a batch first"
            )
        self._batches = [concatenate(self._batches, pads=self.metric.pads)]
        return self._batches[0]

    def value(self) -> Figures:
        """Return the figure over all samples, or several figures by name.

        Raises:
            BatchError: Nothing was added.
            SettingError: The metric gives no number.
        """
        return figures_of(self.metric.name, self.metric.compute(self.rows()))

    def interval(
        self,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Interval | dict[str, Interval]:
        """Return a confidence interval by bootstrap over samples, or one for each figure.

        The same seed gives the same interval on every machine. Resamples for which the figure is
        undefined (NaN) are left out; both ends are NaN where the figure itself is.

        Args:
            level: The confidence, between 0 and 1.
            resamples: The number of draws of as many samples, with replacement.

        Returns:
            ``(low, high)``.

        Raises:
            BatchError: There are fewer than two samples.
            SettingError: `level` or `resamples` makes no sense.

        Source:
            Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

        Example:
            >>> from deliralike.training.metrics import Accuracy
            >>> evidence = Evidence(Accuracy())
            >>> scores = np.eye(2)[[0, 1, 1, 0, 1, 0, 0, 1]]
            >>> evidence.add(scores, np.array([0, 1, 0, 0, 1, 1, 0, 1]))
            >>> evidence.interval(level=0.9)
            (0.5, 1.0)
        """
        rows = self.rows()

        def statistic(numbers: np.ndarray) -> np.ndarray:
            return _figures(self.metric.compute(_take(rows, numbers)))

        value = self.value()
        ends = bootstrap.intervals(
            statistic,
            self.samples,
            level=level,
            resamples=resamples,
            seed=seed,
        )
        if isinstance(value, Mapping):
            return dict(zip(value, ends, strict=True))
        return ends[0]


def concatenate(batches: Sequence[Any], pads: bool = False) -> Any:
    """Join nests of arrays, row after row; leaves that are no arrays are those of the first.

    Args:
        pads: Whether rows of different lengths are filled up with zeros at their ends.

    Raises:
        BatchError: Rows of two batches differ in shape, and are not filled up.
    """

    def joined(*leaves: Any) -> Any:
        if not _is_rows(leaves[0]):
            return leaves[0]
        shapes = sorted({leaf.shape[1:] for leaf in leaves})
        if len(shapes) == 1:
            return np.concatenate(leaves)
        if not pads or len({shape[:-1] for shape in shapes}) > 1:
            raise BatchError(
                f"samples have the shapes {shapes[0]} and {shapes[-1]} in different batches, and "
                "all of them are wanted in one array, as for a function of outputs and targets: "
                "pad all batches to one length, or give a Metric that has one row for each sample"
            )
        return np.concatenate([_filled_up(leaf, shapes[-1]) for leaf in leaves])

    return nest.map(joined, *batches)


def _filled_up(rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    filled = np.zeros((len(rows), *shape), rows.dtype)
    filled[..., : rows.shape[-1]] = rows
    return filled


def _take(rows: Any, numbers: np.ndarray) -> Any:
    """Return the rows of these numbers in each leaf."""
    return nest.map_where(_is_rows, itemgetter(numbers), rows)


def _is_rows(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0


def _figures(value: Figures) -> np.ndarray:
    if isinstance(value, Mapping):
        return np.array(list(value.values()), np.float64)
    return np.array([value], np.float64)
