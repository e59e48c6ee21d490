"""Training, written once for all backends: the loop, evaluation, and what is recorded on the way.

Pictures are in `deliralike.training.curves`, which loads matplotlib.
"""

from deliralike.training.callbacks import Callback, Run
from deliralike.training.evaluation import Metric, accuracy, cross_entropy, evaluate, predict
from deliralike.training.history import Epoch, History, Step
from deliralike.training.logging import JsonLines
from deliralike.training.loop import classification_loss, fit

__all__ = [
    "Callback",
    "Epoch",
    "History",
    "JsonLines",
    "Metric",
    "Run",
    "Step",
    "accuracy",
    "classification_loss",
    "cross_entropy",
    "evaluate",
    "fit",
    "predict",
]
