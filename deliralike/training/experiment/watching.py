"""The callbacks that a run's settings ask for, and the files that they fill."""

from __future__ import annotations

from pathlib import Path

from deliralike import data
from deliralike.training.callbacks import Callback, Csv, EarlyStopping, JsonLines
from deliralike.training.callbacks.checkpoint import Checkpoint, Checkpoints
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.settings import Settings


def callbacks_of(settings: Settings, dataset: data.Dataset, folder: Path) -> list[Callback]:
    """What watches a run in a folder; all of it is new."""
    found: list[Callback] = [JsonLines(folder / at.METRICS), Csv(folder)]
    if settings.early_stopping is not None:
        found.append(EarlyStopping(**settings.early_stopping))
    if settings.checkpoints is not None:
        found.append(Checkpoint(folder / at.CHECKPOINTS, **settings.checkpoints))
    return found


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that a run goes on from; None where there is none yet."""
    return Checkpoints.latest(folder / at.CHECKPOINTS)
