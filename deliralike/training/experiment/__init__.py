"""Experiments: settings from a file, a run as a folder, cross-validation, comparison of runs."""

from deliralike.training.experiment.building import (
    build_network,
    complete,
    load_data,
    load_run,
)
from deliralike.training.experiment.experiment import Experiment
from deliralike.training.experiment.files import as_toml, read_settings, write_settings
from deliralike.training.experiment.folder import (
    CURVES,
    METRICS,
    SETTINGS,
    WEIGHTS,
    Status,
    new_folder,
    next_folder,
    read_history,
    read_status,
    refuse_existing,
)
from deliralike.training.experiment.folds import FoldsResult, Interval
from deliralike.training.experiment.new_samples import new_samples, predict_files
from deliralike.training.experiment.predictions import predict_held_out
from deliralike.training.experiment.run import RunResult, load_result
from deliralike.training.experiment.settings import Settings, documentation

__all__ = [
    "CURVES",
    "METRICS",
    "SETTINGS",
    "WEIGHTS",
    "Experiment",
    "FoldsResult",
    "Interval",
    "RunResult",
    "Settings",
    "Status",
    "as_toml",
    "build_network",
    "complete",
    "documentation",
    "load_data",
    "load_result",
    "load_run",
    "new_folder",
    "new_samples",
    "next_folder",
    "predict_files",
    "predict_held_out",
    "read_history",
    "read_settings",
    "read_status",
    "refuse_existing",
    "write_settings",
]
