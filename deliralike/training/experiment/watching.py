"""The callbacks of a run's settings, and the files that they write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import data
from deliralike.training.callbacks import (
    Callback,
    Checkpoint,
    Checkpoints,
    EarlyStopping,
    Images,
    JsonLines,
    MLflow,
    StopOnNaN,
    TensorBoard,
    WandB,
)
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.parts import make_transform
from deliralike.training.experiment.settings import Settings

SHOWN = 8  # samples in a picture


def callbacks_of(
    settings: Settings, dataset: data.Dataset, folder: Path
) -> Iterator[Callback]:
    """Yield new callbacks for a run in a folder."""
    yield JsonLines(folder / run_folder.METRICS)
    if settings.tensorboard:
        yield TensorBoard(folder / run_folder.TENSORBOARD)
    if settings.wandb is not None:
        yield WandB(**settings.wandb, folder=folder, config=asdict(settings))
    if settings.mlflow is not None:
        yield MLflow(**settings.mlflow, params=asdict(settings))
    if settings.pictures:
        yield Images(
            folder / run_folder.PICTURES,
            some_held_out(settings, dataset),
            settings.pictures,
        )
    if settings.early_stopping is not None:
        yield EarlyStopping(**settings.early_stopping)
    if settings.stop_on_nan:
        yield StopOnNaN(settings.stop_on_nan)
    if settings.checkpoints is not None:
        yield Checkpoint(folder / run_folder.CHECKPOINTS, **settings.checkpoints)


def some_held_out(settings: Settings, dataset: data.Dataset) -> Any:
    """Return samples from all over the held-out part, transformed as those of validation."""
    count = len(dataset.held_out.labels)
    places = np.unique(np.linspace(0, count - 1, SHOWN).astype(int))
    samples = dataset.held_out.take(places)
    transform = make_transform(settings.held_out_transforms)
    loader = data.Loader(
        samples, SHOWN, seed=settings.seed, shuffle=False, transform=transform
    )
    return next(loader.batches())


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the latest checkpoint of a run; None if there is none."""
    return Checkpoints.latest(folder / run_folder.CHECKPOINTS)
