"""Callbacks, which watch a run."""

from deliralike.training.callbacks.callback import Callback, Writer
from deliralike.training.callbacks.checkpoint import Checkpoint, Checkpoints
from deliralike.training.callbacks.freeze import Freeze
from deliralike.training.callbacks.json_lines import JsonLines
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.callbacks.patience import EarlyStopping, ReduceLROnPlateau
from deliralike.training.callbacks.progress import ProgressBar
from deliralike.training.callbacks.stop_on_nan import StopOnNaN
from deliralike.training.callbacks.trackers import MLflow, TensorBoard, WandB

__all__ = [
    "Callback",
    "Checkpoint",
    "Checkpoints",
    "EarlyStopping",
    "Freeze",
    "JsonLines",
    "MLflow",
    "Monitor",
    "ProgressBar",
    "ReduceLROnPlateau",
    "StopOnNaN",
    "TensorBoard",
    "WandB",
    "Writer",
]
