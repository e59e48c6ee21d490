"""The callbacks that a run's settings ask for, and the files that they fill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import data
from deliralike.training.callbacks import (
    Callback,
    Checkpoint,
    Checkpoints,
    Csv,
    EarlyStopping,
    Images,
    JsonLines,
    StopOnNaN,
    TensorBoard,
)
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.parts import make_transform
from deliralike.training.experiment.settings import Settings

SHOWN = 8  # samples in a picture


def callbacks_of(settings: Settings, dataset: data.Dataset, folder: Path) -> Iterator[Callback]:
    """What watches a run in a folder; all of it is new."""
    yield JsonLines(folder / at.METRICS)
    yield Csv(folder)
    if settings.tensorboard:
        yield TensorBoard(folder / at.TENSORBOARD)
    if settings.pictures:
        yield Images(folder / at.PICTURES, some_held_out(settings, dataset), settings.pictures)
    if settings.early_stopping is not None:
        yield EarlyStopping(**settings.early_stopping)
    if settings.stop_on_nan:
        yield StopOnNaN(settings.stop_on_nan)
    if settings.checkpoints is not None:
        yield Checkpoint(folder / at.CHECKPOINTS, **settings.checkpoints)


def some_held_out(settings: Settings, dataset: data.Dataset) -> Any:
    """Samples from all over the held-out part, transformed as those that are judged."""
    count = len(dataset.held_out.labels)
    chosen = dataset.held_out.take(np.unique(np.linspace(0, count - 1, SHOWN).astype(int)))
    transform = make_transform(settings.held_out_transforms)
    return next(
        data.Loader(chosen, SHOWN, seed=settings.seed, shuffle=False, transform=transform).batches()
    )


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that a run goes on from; None where there is none yet."""
    return Checkpoints.latest(folder / at.CHECKPOINTS)
