"""Training, written once for all backends: the loop, evaluation, and what is recorded on the way.

Pictures are in `deliralike.training.curves`, which loads matplotlib.
"""

from deliralike.training.averaging import WeightAverage
from deliralike.training.callbacks import (
    Callback,
    Checkpoint,
    Checkpoints,
    EarlyStopping,
    Freeze,
    JsonLines,
    MLflow,
    Monitor,
    ProgressBar,
    ReduceLROnPlateau,
    StopOnNaN,
    TensorBoard,
    WandB,
    Writer,
)
from deliralike.training.classification import classification_loss
from deliralike.training.evaluation import evaluate, predict
from deliralike.training.history import Epoch, History, Step
from deliralike.training.metrics import Metric
from deliralike.training.run import Run
from deliralike.training.trainer import Trainer

__all__ = [
    "Callback",
    "Checkpoint",
    "Checkpoints",
    "EarlyStopping",
    "Epoch",
    "Freeze",
    "History",
    "JsonLines",
    "MLflow",
    "Metric",
    "Monitor",
    "ProgressBar",
    "ReduceLROnPlateau",
    "Run",
    "Step",
    "StopOnNaN",
    "TensorBoard",
    "Trainer",
    "WandB",
    "WeightAverage",
    "Writer",
    "classification_loss",
    "evaluate",
    "predict",
]
