"""Errors of outputs against their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike.errors import BatchError
from deliralike.training.metrics.metric import Figures, Metric, Rows
from deliralike.training.metrics.scores import array_of, ratio, refuse_mean


@dataclass(frozen=True)
class Errors(Metric):
    """The base of metrics of errors: arrays in float64, a sample's places along one axis.

    Attributes:
        columns: Names of the columns of outputs and targets, for a figure of each, and their mean;
            one figure of all places when not given.
        scale: What each column of outputs and targets is multiplied by first, so that errors of
            scaled targets are in the targets' units.
    """

    columns: Sequence[str] = ()
    scale: Sequence[float] = ()

    higher_is_better = False

    def __post_init__(self) -> None:
        """Check the names of columns."""
        super().__post_init__()
        refuse_mean(self.columns, "column", self.name)

    def evidence(self, outputs: Any, targets: Any) -> dict[str, Any]:
        """Return what the figure of a batch is made of; by column, where there are any."""
        if self.scale:
            factors = np.asarray(self.scale)
            outputs, targets = outputs * factors, targets * factors
        if not self.columns:
            return self._evidence(outputs, targets)
        shape = np.shape(outputs)
        if shape[1:2] != (len(self.columns),):
            raise BatchError(
                f"{self.name}: outputs of shape {shape}, wanted (samples, {len(self.columns)}) "
                f"for the columns {', '.join(self.columns)}"
            )
        of_column = replace(self, columns=(), scale=())
        return {
            name: of_column.evidence(outputs[:, number], targets[:, number])
            for number, name in enumerate(self.columns)
        }

    def compute(self, evidence: Any) -> Figures:
        """Return the figure of all samples; by column, where there are any."""
        if not self.columns:
            return self._compute(evidence)
        figures = {name: self._compute(evidence[name]) for name in self.columns}
        return figures | {"mean": float(np.mean(list(figures.values())))}

    def _evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return the sum over each sample's places, and the number of places."""
        errors, _ = self._flat(outputs, targets)
        return {
            "sum": self._cost(errors).sum(axis=1),
            "places": np.full(len(errors), errors.shape[1]),
        }

    def _compute(self, evidence: Any) -> float:
        """Return the mean over all places."""
        return ratio(evidence["sum"].sum(), evidence["places"].sum())

    def _cost(self, errors: np.ndarray) -> np.ndarray:
        return errors**2

    def _flat(self, outputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return errors and targets, ``(samples, places)``."""
        output = array_of(outputs, "outputs", self.name)
        target = array_of(targets, "targets", self.name)
        if output.shape != target.shape or not output.ndim:
            raise BatchError(
                f"outputs of shape {output.shape} do not fit targets of shape {target.shape}: "
                f"{self.name} wants the same shape, (samples, ...)"
            )
        output = output.reshape(len(output), -1).astype(np.float64)
        target = target.reshape(len(target), -1).astype(np.float64)
        return output - target, target


@dataclass(frozen=True)
class MeanAbsoluteError(Errors):
    """The mean of ``|output - target|`` over all samples and places; NaN where an output is.

    Shapes:
        ``(samples, ...)``, both the same.

    Example:
        >>> MeanAbsoluteError()(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        1.0
    """

    name = "mae"

    def _cost(self, errors: np.ndarray) -> np.ndarray:
        return np.abs(errors)


@dataclass(frozen=True)
class MeanSquaredError(Errors):
    """The mean of ``(output - target)**2`` over all samples and places; NaN where an output is.

    Shapes:
        ``(samples, ...)``, both the same.

    Example:
        >>> MeanSquaredError()(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        2.0
    """

    name = "mse"


@dataclass(frozen=True)
class RootMeanSquaredError(Errors):
    """The root of the mean squared error of all samples and places, not a mean of roots.

    It is NaN where an output is.

    Shapes:
        ``(samples, ...)``, both the same.

    Example:
        >>> RootMeanSquaredError()(np.array([1.0, 2.0]), np.array([1.0, 6.0])) ** 2
        8.000000000000002
    """

    name = "rmse"

    def _compute(self, evidence: Any) -> float:
        """Return the root of the mean over all places."""
        return float(np.sqrt(super()._compute(evidence)))


@dataclass(frozen=True)
class R2(Errors):
    """The fraction of the targets' variance that the outputs explain: 1 is perfect, 0 the mean.

    All places of all samples count as values of one quantity, unless `columns` are given. NaN where
    an output is, or where the targets do not vary.

    Shapes:
        ``(samples, ...)``, both the same.

    Example:
        >>> R2()(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
        0.5
    """

    name = "r2"
    higher_is_better = True

    def _evidence(self, outputs: Any, targets: Any) -> Rows:
        """Return each sample's squared errors, and its targets' mean and squared deviations."""
        _, target = self._flat(outputs, targets)
        mean = target.mean(axis=1, keepdims=True)
        return {
            **super()._evidence(outputs, targets),
            "mean": mean[:, 0],
            "squares": ((target - mean) ** 2).sum(axis=1),
        }

    def _compute(self, evidence: Any) -> float:
        """Return one minus the squared errors by the squared deviations of all targets."""
        places = evidence["places"]
        means = evidence["mean"]
        mean = ratio((places * means).sum(), places.sum())
        # Centred sums lose no digits.
        within = evidence["squares"].sum()
        between = (places * (means - mean) ** 2).sum()
        total = within + between
        return 1.0 - ratio(evidence["sum"].sum(), total)
