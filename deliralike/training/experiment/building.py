"""From settings to what they name: the data, the network, the loaders and the trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, data, weights, zoo
from deliralike.errors import DataUnavailable, SettingError
from deliralike.network import AbstractNetwork
from deliralike.training.callbacks import Callback
from deliralike.training.evaluation import predict
from deliralike.training.experiment.checks import located
from deliralike.training.experiment.files import read_settings
from deliralike.training.experiment.folder import SETTINGS, WEIGHTS, refuse_no_run
from deliralike.training.experiment.parts import (
    make_metrics,
    make_schedule,
    make_transform,
    metric_takes,
)
from deliralike.training.experiment.settings import Settings
from deliralike.training.history import History
from deliralike.training.trainer import Trainer

# What judges a task's outputs when settings name nothing; a metric of classes is told their names.
METRICS_BY_TASK: Mapping[str, tuple[str, ...]] = {"segmentation": ("dice", "loss")}
METRICS_OF_OTHERS = ("accuracy", "loss")
_OWN = "own:"  # before the name of data that were given


def own_data(dataset: data.Dataset) -> str:
    """What settings say where the data were given, and no name loads them.

    Example:
        >>> samples = data.Samples(np.zeros((3, 2)), np.zeros(3, np.int64))
        >>> own_data(data.Dataset("digits", samples, samples, ("a",)))
        'own:digits'
    """
    return f"{_OWN}{dataset.name}"


def load_data(settings: Settings) -> data.Dataset:
    """The dataset that settings name; of a fold, that fold's samples.

    Raises:
        DataUnavailable: They are of a run whose data were given.
        UnknownName, ArgumentError: There is no such dataset, or no such option of it.
        DataUnavailable: A package is missing.
    """
    if settings.data.startswith(_OWN):
        raise DataUnavailable(
            "data: the run was made on data of its own, called "
            f"{settings.data.removeprefix(_OWN)!r}, which are not kept: give them again "
            "(Experiment(..., dataset=...), load_run(..., dataset=...)), or name a dataset to "
            "use instead (--data NAME)"
        )
    with located("data"):
        dataset = data.load(settings.data, **settings.data_settings)
    return fold_of(dataset, settings)


def fold_of(dataset: data.Dataset, settings: Settings) -> data.Dataset:
    """The dataset with the samples of one fold; all of it when the settings are of no fold.

    The training and the held-out part are shared out anew, together: each sample is held out in one
    of the folds. Folds have the classes' proportions where there is one label a sample. Those for
    segmentation are runs of neighbours, since a slice has nearly the labels of the next one.

    Raises:
        SettingError: There are too few samples for so many folds.
    """
    if settings.fold is None or settings.folds is None:
        return dataset
    samples = data.Samples(*map(np.concatenate, zip(dataset.train, dataset.held_out, strict=True)))
    labels = (
        samples.labels if samples.labels.ndim == 1 and samples.labels.dtype.kind in "iub" else None
    )
    shuffle = dataset.task != "segmentation"
    with located("folds"):
        shared = data.folds(
            len(samples.labels), settings.folds, labels=labels, seed=settings.seed, shuffle=shuffle
        )
    fold = shared[settings.fold - 1]
    return replace(dataset, train=samples.take(fold.train), held_out=samples.take(fold.held_out))


def complete(settings: Settings, dataset: data.Dataset) -> Settings:
    """The settings with every number that was left out: from the data, the task, and tables of usual numbers.

    Raises:
        ArgumentError: There is no such setting of the network.
        SettingError: The network is for another task than the data.
    """
    architecture = zoo.find(settings.network)
    if architecture.task != dataset.task:
        raise SettingError(
            f"network {settings.network!r} is for {architecture.task}, dataset {dataset.name!r} "
            f"is for {dataset.task}. For {dataset.task} there are: "
            f"{', '.join(zoo.list(task=dataset.task))}."
        )
    chosen = _from_data(architecture.settings, dataset) | dict(settings.network_settings)
    length = settings.length(settings.epochs * _updates(settings, dataset))
    usual = METRICS_BY_TASK.get(dataset.task, METRICS_OF_OTHERS)
    return settings.with_(
        network_settings=chosen,
        optimizer_settings=asdict(settings.rule()),
        schedule_settings={**length, **settings.schedule_settings},
        metrics=settings.metrics or [_metric(name, dataset) for name in usual],
    )


def build_network(settings: Settings, dataset: data.Dataset) -> AbstractNetwork:
    """The network that complete settings name, replicated over their devices; held-out samples have been through it.

    Raises:
        ArgumentError: There is no such setting of the network.
        ShapeError: The network cannot take inputs of this shape.
    """
    network = untried_network(settings)
    next(
        predict(network, dataset.held_out.inputs[:2])
    )  # a shape that does not fit shows here, before all else
    return network


def untried_network(settings: Settings) -> AbstractNetwork:
    """The network that complete settings name, replicated over their devices."""
    devices: list[str | None] = [*settings.devices] or [None]
    options: dict[str, Any] = {"seed": settings.seed, "dtype": settings.dtype, "device": devices[0]}
    network = zoo.build(
        settings.network, backend=settings.backend, **options, **settings.network_settings
    )
    return backends.DataParallel(network, settings.devices) if len(devices) > 1 else network


def make_trainer(
    network: AbstractNetwork,
    settings: Settings,
    callbacks: Iterable[Callback] = (),
    losses: Any = None,
) -> Trainer:
    """What trains a network as complete settings say."""
    optimizer = network.backend.optimizer(settings.rule(), network, groups=settings.groups or None)
    metrics, schedule = (
        make_metrics(settings.metrics),
        make_schedule(settings.schedule, settings.schedule_settings),
    )
    names = ("precision", "accumulate", "clip_norm", "clip_value", "average", "seed", "rng")
    options: dict[str, Any] = {name: getattr(settings, name) for name in names}
    return Trainer(network, optimizer, losses, metrics, callbacks, schedule=schedule, **options)


def loaders(settings: Settings, dataset: data.Dataset) -> tuple[data.Loader, data.Loader]:
    """The batches to learn from and those to judge by, as settings say."""
    shared: dict[str, Any] = {
        "seed": settings.seed,
        "workers": settings.workers,
        "worker_kind": settings.worker_kind,
    }
    learn, judge = make_transform(settings.transforms), make_transform(settings.held_out_transforms)
    train = data.Loader(
        dataset.train, settings.batch_size, drop_last=settings.drop_last, transform=learn, **shared
    )
    return train, data.Loader(dataset.held_out, 512, shuffle=False, transform=judge, **shared)


def train_network(
    network: AbstractNetwork,
    settings: Settings,
    dataset: data.Dataset,
    callbacks: Iterable[Callback] = (),
) -> History:
    """Train a network as complete settings say; nothing is written but by callbacks."""
    train, held_out = loaders(settings, dataset)
    return make_trainer(network, settings, callbacks).fit(train, held_out, epochs=settings.epochs)


def load_run(
    folder: str | Path, backend: str | None = None, dataset: str | data.Dataset | None = None
) -> tuple[AbstractNetwork, Settings, data.Dataset]:
    """The trained network of a run folder, on its own or another backend, with its settings and its or other data.

    Args:
        dataset: The name of other data, or the data of one's own that the run was made on.

    Raises:
        SettingError: The folder is not that of a run.
        DataUnavailable: The run was made on data of one's own, and they are not given.
        StateError, WeightFileError: The weights do not fit, or cannot be read.
    """
    settings = _settings_of(folder, backend)
    if isinstance(dataset, str) and dataset != settings.data:
        settings = settings.with_(data=dataset, data_settings={}, fold=None, folds=None)
    samples = (
        fold_of(dataset, settings) if isinstance(dataset, data.Dataset) else load_data(settings)
    )
    network = build_network(settings, samples)
    weights.load(network, Path(folder) / WEIGHTS)
    return network, settings, samples


def load_network(folder: str | Path, backend: str | None = None) -> AbstractNetwork:
    """The trained network of a run folder alone; see `load_run`."""
    network = untried_network(_settings_of(folder, backend))
    weights.load(network, Path(folder) / WEIGHTS)
    return network


def _settings_of(folder: str | Path, backend: str | None) -> Settings:
    refuse_no_run(Path(folder))
    settings = read_settings(Path(folder) / SETTINGS)
    return settings.with_(backend=backend or settings.backend)


def _metric(name: str, dataset: data.Dataset) -> dict[str, Any]:
    return (
        {"name": name, "classes": dataset.classes}
        if metric_takes(name, "classes")
        else {"name": name}
    )


def _updates(settings: Settings, dataset: data.Dataset) -> int:
    """How many updates an epoch has."""
    batches = data.batch_count(len(dataset.train.labels), settings.batch_size, settings.drop_last)
    return -(-batches // settings.accumulate)


def _from_data(known: Mapping[str, Any], dataset: data.Dataset) -> dict[str, Any]:
    """What the data say about a network's settings, for those that it has."""
    found = {
        "in_channels": dataset.channels,
        "image_size": dataset.sample_shape[-1],
        "in_features": int(np.prod(dataset.sample_shape)),
        "num_classes": len(dataset.classes),
        "out_features": len(dataset.classes),
        "out_channels": len(dataset.classes),
        "dims": len(dataset.sample_shape) - 1,
    }
    return {name: value for name, value in found.items() if name in known}
