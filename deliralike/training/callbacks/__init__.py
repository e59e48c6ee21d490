"""Callbacks, which watch a run: one in each file."""

from deliralike.training.callbacks.callback import Callback
from deliralike.training.callbacks.checkpoint import Checkpoint, Checkpoints
from deliralike.training.callbacks.early_stopping import EarlyStopping
from deliralike.training.callbacks.freeze import Freeze
from deliralike.training.callbacks.json_lines import JsonLines
from deliralike.training.callbacks.mlflow_runs import MLflow
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.callbacks.plateau import ReduceLROnPlateau
from deliralike.training.callbacks.progress import ProgressBar
from deliralike.training.callbacks.stop_on_nan import StopOnNaN
from deliralike.training.callbacks.tensorboard import TensorBoard
from deliralike.training.callbacks.weights_and_biases import WandB
from deliralike.training.callbacks.writer import Writer

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
