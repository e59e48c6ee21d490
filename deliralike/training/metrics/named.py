"""Metrics by name, for settings files and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from deliralike.training.by_name import make_by_name
from deliralike.training.metrics.labels import (
    Accuracy,
    ConfusionMatrix,
    CrossEntropy,
    TopK,
)
from deliralike.training.metrics.metric import Metric
from deliralike.training.metrics.ranking import AveragePrecision, RocAuc
from deliralike.training.metrics.regions import (
    F1,
    Dice,
    IoU,
    Precision,
    Sensitivity,
    Specificity,
)
from deliralike.training.metrics.regression import (
    R2,
    MeanAbsoluteError,
    MeanSquaredError,
    RootMeanSquaredError,
)
from deliralike.training.metrics.surface import (
    Hausdorff,
    SurfaceDice,
)


def metric(name: str, **settings: Any) -> Metric:
    """Return the metric of that name, with its settings.

    Raises:
        UnknownName: There is no such metric; the nearest names are given.
        ArgumentError: The metric has no such setting.
        SettingError: A setting makes no sense.

    Example:
        >>> metric("top-k", k=3).name
        'top-3'
    """
    return make_by_name("metric", METRICS, name, settings)


def known() -> list[str]:
    """Return the names of all metrics.

    Example:
        >>> known()[:3]
        ['accuracy', 'average-precision', 'confusion']
    """
    return sorted(METRICS)


METRICS: Mapping[str, Callable[..., Metric]] = {
    "accuracy": Accuracy,
    "average-precision": AveragePrecision,
    "confusion": ConfusionMatrix,
    "dice": Dice,
    "f1": F1,
    "hausdorff": Hausdorff,
    "hausdorff95": partial(Hausdorff, percentile=95.0),
    "iou": IoU,
    "loss": CrossEntropy,
    "mae": MeanAbsoluteError,
    "mse": MeanSquaredError,
    "precision": Precision,
    "r2": R2,
    "rmse": RootMeanSquaredError,
    "roc-auc": RocAuc,
    "sensitivity": Sensitivity,
    "specificity": Specificity,
    "surface-dice": SurfaceDice,
    "top-k": TopK,
}
