"""The metric interface: small evidence from every batch, one figure from that of all samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from deliralike.errors import SettingError
from deliralike.setting_types import TypedSettings

MetricFunction = Callable[[Any, Any], float]
Rows = dict[str, np.ndarray]  # evidence by name, one row a sample
Figures = float | dict[str, float]  # one, or several by name


class Metric(TypedSettings, ABC):
    """A figure that compares outputs with targets over all samples, never as a mean of batches.

    A batch is turned into `evidence` and can then be forgotten; `compute` sees the evidence of all
    samples at once, so the figure does not depend on where the batches end, and a bootstrap over
    samples is a choice of rows.

    Attributes:
        name: The name in results when no other name is given.
        higher_is_better: Whether a higher figure is the better one.
        pads: Whether rows of evidence that differ in length may be filled up with zeros.

    Example:
        >>> import numpy as np
        >>> from deliralike.training.metrics import Accuracy
        >>> scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
        >>> metric = Accuracy()
        >>> metric.compute(metric.evidence(scores, np.array([1, 0, 1])))
        1.0
    """

    name: str
    higher_is_better: bool
    pads: ClassVar[bool] = False

    @abstractmethod
    def evidence(self, outputs: Any, targets: Any) -> Any:
        """Return the evidence of a batch: a nest of arrays with one row for each sample."""

    @abstractmethod
    def compute(self, evidence: Any) -> Figures:
        """Return the figure, or several by name, from the rows of all samples."""

    def __call__(self, outputs: Any, targets: Any) -> Figures:
        """Return the figure for these samples alone."""
        return self.compute(self.evidence(outputs, targets))


class FromFunction(Metric):
    """A plain function ``(outputs, targets) -> float`` as a metric.

    Its evidence is all outputs and targets.
    """

    higher_is_better = True

    def __init__(self, function: MetricFunction) -> None:
        """Wrap a function, which returns a figure or a dict of figures."""
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def evidence(self, outputs: Any, targets: Any) -> Any:
        """Return the outputs and the targets unchanged."""
        return outputs, targets

    def compute(self, evidence: Any) -> Figures:
        """Return the function's result for all samples."""
        return self.function(*evidence)


def figures_of(name: str, result: Any) -> Figures:
    """Return what a metric computed as a number, or several by name.

    Raises:
        SettingError: It is something else, such as one number for each sample.
    """
    if isinstance(result, Mapping):
        return {key: _number(f"{name}/{key}", value) for key, value in result.items()}
    return _number(name, result)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        shape = getattr(value, "shape", None)
        what = repr(value) if shape is None else f"an array of shape {tuple(shape)}"
        raise SettingError(
            f"metric {name!r} gives {what}, wanted one number for all samples, such as the mean, "
            "or a dict of numbers by name"
        ) from None


def as_metric(metric: Metric | MetricFunction) -> Metric:
    """Return a metric unchanged, or a plain function ``(outputs, targets) -> float`` as a metric.

    Raises:
        SettingError: `metric` is neither.
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, type) or not callable(metric):
        raise SettingError(
            f"a metric is a Metric or a function of (outputs, targets), not {metric!r}: write "
            f"metrics.metric('accuracy')"
        )
    return FromFunction(metric)
