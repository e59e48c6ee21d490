"""Metrics over whole epochs: evidence from every batch, and a figure with confidence interval."""

from deliralike.training.metrics.evidence import Evidence
from deliralike.training.metrics.labels import (
    Accuracy,
    ConfusionMatrix,
    CrossEntropy,
    TopK,
)
from deliralike.training.metrics.metric import (
    FromFunction,
    Metric,
    MetricFunction,
    as_metric,
)
from deliralike.training.metrics.named import known, metric
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

__all__ = [
    "F1",
    "R2",
    "Accuracy",
    "AveragePrecision",
    "ConfusionMatrix",
    "CrossEntropy",
    "Dice",
    "Evidence",
    "FromFunction",
    "Hausdorff",
    "IoU",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "MetricFunction",
    "Precision",
    "RocAuc",
    "RootMeanSquaredError",
    "Sensitivity",
    "Specificity",
    "SurfaceDice",
    "TopK",
    "as_metric",
    "known",
    "metric",
]
