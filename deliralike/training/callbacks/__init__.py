"""What watches a run: one callback a file."""

from deliralike.training.callbacks.callback import Callback
from deliralike.training.callbacks.checkpoint import Checkpoint, Checkpoints
from deliralike.training.callbacks.csv_tables import Csv
from deliralike.training.callbacks.early_stopping import EarlyStopping
from deliralike.training.callbacks.json_lines import JsonLines
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.callbacks.tensorboard import TensorBoard
from deliralike.training.callbacks.writer import Writer

__all__ = [
    "Callback",
    "Checkpoint",
    "Checkpoints",
    "Csv",
    "EarlyStopping",
    "JsonLines",
    "Monitor",
    "TensorBoard",
    "Writer",
]
