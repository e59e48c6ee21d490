"""Building of the data, the network, the loaders and the trainer that settings name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, data, own_code, weights, zoo
from deliralike.data import user_data
from deliralike.data.array_guessing import renumbered
from deliralike.data.folders import picture_form
from deliralike.data.transforms import ScaleColumns
from deliralike.errors import (
    ArgumentError,
    DataUnavailable,
    SettingError,
    ShapeError,
    matching,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.recomputed import checkpoint_blocks
from deliralike.network.steps import TOTAL
from deliralike.network.wrapper import has_own
from deliralike.training.callbacks import Callback
from deliralike.training.evaluation import predict
from deliralike.training.experiment.checks import NAME, located
from deliralike.training.experiment.files import read_settings
from deliralike.training.experiment.folder import (
    SETTINGS,
    WEIGHTS,
    read_last_start,
    refuse_no_run,
)
from deliralike.training.experiment.parts import (
    SCALING,
    in_units_of_targets,
    make_batch_transform,
    make_metrics,
    make_transform,
    metric_takes,
    scaling_of,
    with_classes,
)
from deliralike.training.experiment.record import digest_of
from deliralike.training.experiment.settings import Settings, names
from deliralike.training.trainer import Trainer

# The metrics of a task when settings name none; a metric of classes gets their names.
METRICS_BY_TASK: Mapping[str, tuple[str, ...]] = {
    "regression": ("mae", "r2"),
    "segmentation": ("dice",),
}
METRICS_OF_OTHERS = ("accuracy", "loss")
_VALUES_AT_ONCE = 2**23  # of inputs, in a batch of held-out samples
_GIVEN = "own:"  # before the name of data that were given


def name_of_given_data(dataset: data.Dataset) -> str:
    """Return the value of the setting `data` for given data, which no name loads.

    Example:
        >>> samples = data.Samples(np.zeros((3, 2)), np.zeros(3, np.int64))
        >>> name_of_given_data(data.Dataset("digits", samples, samples, ("a",)))
        'own:digits'
    """
    return f"{_GIVEN}{dataset.name}"


def has_given_data(settings: Settings) -> bool:
    """Return whether the data of a run were given, and no name loads them."""
    return settings.data.startswith(_GIVEN)


def load_data(settings: Settings) -> data.Dataset:
    """Return the dataset that settings name; for a fold, the fold's samples.

    Raises:
        DataUnavailable: The settings are of a run whose data were given.
        UnknownName, ArgumentError: There is no such dataset, or no such option of it.
        DataUnavailable: A package is missing.
    """
    if has_given_data(settings):
        raise DataUnavailable(
            "data: the run was made on data of its own, called "
            f"{settings.data.removeprefix(_GIVEN)!r}, which are not kept: give them again "
            "(Experiment(..., dataset=...), load_run(..., dataset=...)), or name a dataset to "
            "use instead (--data NAME)"
        )
    with located("data"):
        dataset = data.load(settings.data, **settings.data_settings)
    return fold_of(dataset, settings)


def fold_of(dataset: data.Dataset, settings: Settings) -> data.Dataset:
    """Return the dataset with the samples of one fold; the whole one if the settings have no fold.

    The training and the held-out part are joined and split anew: each sample is held out in one
    of the folds. Folds have the classes' proportions where there is one label a sample. Those for
    segmentation are runs of neighbours, since a slice has nearly the labels of the next one; no
    patient is in two folds, where the data name them.

    Raises:
        SettingError: There are too few samples for so many folds.
    """
    if settings.fold is None or settings.folds is None:
        return dataset
    samples = data.Samples(
        np.concatenate([dataset.train.inputs, dataset.held_out.inputs]),
        np.concatenate([dataset.train.labels, dataset.held_out.labels]),
    )
    has_classes = samples.labels.ndim == 1 and samples.labels.dtype.kind in "iub"
    with located("folds"):
        all_folds = data.folds(
            len(samples.labels),
            settings.folds,
            labels=samples.labels if has_classes else None,
            groups=dataset.groups or None,
            seed=settings.seed,
            shuffle=dataset.task != "segmentation",
        )
    fold = all_folds[settings.fold - 1]
    return replace(
        dataset,
        train=samples.take(fold.train),
        held_out=samples.take(fold.held_out),
        groups=(),
    )


def complete(settings: Settings, dataset: data.Dataset) -> Settings:
    """Return the settings with every number that was left out.

    The numbers come from the data, the task, and tables of usual numbers.

    Raises:
        ArgumentError: There is no such setting of the network.
        SettingError: The network is for another task than the data.
    """
    if settings.transforms is None:
        settings = settings.with_(**_usual_transforms(settings, dataset))
    architecture = zoo.find(settings.network)
    _refuse_unknown(architecture, settings)
    is_score = dataset.task == "regression" and architecture.task == "classification"
    if architecture.task not in ("", dataset.task) and not is_score:
        raise SettingError(
            f"network {settings.network!r} is for {architecture.task}, dataset {dataset.name!r} "
            f"is for {dataset.task}: see 'deliralike zoo'"
        )
    given = architecture.rename_settings(settings.network_settings)
    chosen = _from_data(architecture, dataset) | given
    batches = data.batch_count(
        len(dataset.train.labels), settings.batch_size, settings.drop_last
    )
    updates = -(-batches // settings.accumulate)  # of an epoch
    length = settings.length(settings.epochs * updates)
    usual = METRICS_BY_TASK.get(dataset.task, METRICS_OF_OTHERS)
    return settings.with_(
        batch_transforms=with_classes(settings.batch_transforms, len(dataset.classes)),
        network_settings=chosen,
        optimizer_settings=asdict(settings.rule()),
        schedule_settings={**length, **settings.schedule_settings},
        metrics=settings.metrics or [_metric(name, dataset) for name in usual],
    )


def _usual_transforms(settings: Settings, dataset: data.Dataset) -> dict[str, Any]:
    """Return the settings of transforms that are usual for the data.

    Columns of a table, and measured targets, are scaled: networks do not learn from numbers in the
    thousands.
    """
    if not dataset.columns or settings.held_out_transforms:
        return {"transforms": dataset.transforms}
    inputs, labels = dataset.train
    scaling = ScaleColumns.of(inputs, labels if dataset.task == "regression" else None)
    entries = [{NAME: SCALING, **asdict(scaling)}]
    return {"transforms": entries, "held_out_transforms": entries}


def _refuse_unknown(architecture: zoo.Architecture, settings: Settings) -> None:
    """Raise an error for a setting that the network does not have; it may be one of the run."""
    of_run = {name: name for name in names()}
    of_run |= {each.name: f"optimizer.{each.name}" for each in fields(settings.rule())}
    for name, value in settings.network_settings.items():
        try:
            architecture.arguments(**{name: value})
        except ArgumentError as error:
            near = get_close_matches(name, of_run, n=1, cutoff=0.75)
            if not near:
                raise
            raise ArgumentError(
                f"{architecture.name} has no setting {name!r}. Did you mean that of the run, "
                f"{of_run[near[0]]!r}?"
            ) from error


def refuse_too_few_outputs(settings: Settings, dataset: data.Dataset) -> None:
    """Raise an error where cross-entropy has fewer scores than there are classes, or one alone."""
    if dataset.task != "regression" and len(dataset.classes) == 1:
        raise SettingError(
            f"dataset {dataset.name!r} has one class, {dataset.classes[0]!r}: there is nothing to "
            "tell apart. A folder of pictures has a subfolder for each class"
        )
    name = zoo.find(settings.network).outputs
    outputs = settings.network_settings.get(name or "")
    if isinstance(outputs, int) and outputs < len(dataset.classes):
        raise SettingError(
            f"{name}={outputs} is less than the {len(dataset.classes)} classes of dataset "
            f"{dataset.name!r}: leave it out, or give losses of your own"
        )


def build_network(settings: Settings, dataset: data.Dataset) -> AbstractNetwork:
    """Build the network of complete settings, replicated over their devices, and try it.

    Raises:
        ArgumentError: There is no such setting of the network.
        ShapeError: The network cannot take inputs of this shape.
        UnknownName: A pattern of the settings matches no weight.
    """
    with _advice_on_shapes(dataset):
        network = untried_network(settings, zoo.Input.like(dataset.held_out.inputs))
        # A shape that does not fit raises its error here, before all else.
        next(predict(network, dataset.held_out.inputs[:2]))
    names = network.neutral_slots()
    for setting in ("groups", "freeze"):
        for pattern in getattr(settings, setting):
            matching(pattern, names, f"{setting}: no weight")
    return network


@contextmanager
def _advice_on_shapes(dataset: data.Dataset) -> Iterator[None]:
    """Add what to do to the error of a network that cannot take samples of this shape."""
    try:
        yield
    except (ShapeError, SettingError) as error:
        if isinstance(error, ShapeError) or "image_size" in str(error):
            error.add_note(
                f"the samples of {dataset.name!r} have the shape {dataset.sample_shape}: take a "
                "network for such samples (small pictures: resnet8), or other pictures (those of "
                "a folder are scaled by --set data.size=64, and read in grey by --set data.mode=L)"
            )
        raise


def untried_network(settings: Settings, sample: zoo.Input) -> AbstractNetwork:
    """Build the network of complete settings, replicated over their devices.

    A class of another framework is ported with such samples.
    """
    called_with = {}
    if own_code.is_name(settings.network):
        called_with["input_shape"] = sample
    network = zoo.build(
        settings.network,
        backend=settings.backend,
        seed=settings.seed,
        dtype=settings.dtype,
        device=settings.devices[0] if settings.devices else None,
        weights=settings.weights,
        **called_with,
        **settings.network_settings,
    )
    if settings.checkpoint_blocks:  # few backends of other packages can
        checkpoint_blocks(network, *settings.checkpoint_blocks)
    if len(settings.devices) > 1:
        return backends.DataParallel(
            network, settings.devices, buffers=settings.buffers
        )
    return network


def make_trainer(
    network: AbstractNetwork,
    settings: Settings,
    callbacks: Iterable[Callback],
    losses: Any,
) -> Trainer:
    """Return the trainer of complete settings for a network."""
    scaling = scaling_of(settings.held_out_transforms)
    metrics = make_metrics(in_units_of_targets(settings.metrics, scaling))
    if isinstance(losses, Mapping) and len(losses) > 1:
        # That name is the sum of the losses, not the cross-entropy.
        metrics.pop(TOTAL, None)
    return Trainer(
        network,
        settings.rule(),
        losses,
        metrics,
        callbacks,
        schedule=settings.full_schedule if settings.schedule else None,
        precision=settings.precision,
        compile=settings.compile,
        accumulate=settings.accumulate,
        clip_norm=settings.clip_norm,
        clip_value=settings.clip_value,
        average=settings.average,
        groups=settings.groups or None,
        layer_decay=settings.layer_decay,
        seed=settings.seed,
        rng=settings.rng,
    )


def usual_losses(
    network: AbstractNetwork, settings: Settings, task: str
) -> dict[str, Any] | None:
    """Return the losses of a task; None for those of the network, which it has by itself."""
    if has_own(network, "train_step"):
        return None
    if settings.batch_transforms:
        # The default loss takes rows of floats for measured targets, and probabilities for a
        # mistake.
        return {"loss": network.nn.cross_entropy}
    if task == "segmentation":
        return {"loss": network.nn.dice_ce_loss}
    return None


def loaders(
    settings: Settings, dataset: data.Dataset
) -> tuple[data.Loader, data.Loader]:
    """Return the loaders of training and of held-out batches, as settings define them."""
    shared: dict[str, Any] = {
        "seed": settings.seed,
        "workers": settings.workers,
        "worker_kind": settings.worker_kind,
    }
    train_samples, transform = _scaled_ahead(dataset.train, settings.transforms or ())
    train = data.Loader(
        train_samples,
        settings.batch_size,
        drop_last=settings.drop_last,
        transform=transform,
        batch_transform=make_batch_transform(settings.batch_transforms),
        **shared,
    )
    held_out_samples, transform = _scaled_ahead(
        dataset.held_out, settings.held_out_transforms
    )
    held_out = data.Loader(
        held_out_samples,
        max(1, min(512, _VALUES_AT_ONCE // math.prod(dataset.sample_shape))),
        shuffle=False,
        transform=transform,
        **shared,
    )
    return train, held_out


def _scaled_ahead(samples: Any, transforms: Sequence[Any]) -> tuple[Any, Any]:
    """Return samples and the transform that is left: rows of a table are scaled all at once.

    One by one they would take six times as long as the step of a small network.
    """
    scaling = scaling_of(transforms[:1])
    if scaling is None:
        return samples, make_transform(transforms)
    return scaling(samples), make_transform(transforms[1:])


def load_run(
    folder: str | Path,
    backend: str | None = None,
    dataset: str | data.Dataset | None = None,
) -> tuple[AbstractNetwork, Settings, data.Dataset]:
    """Load the trained network of a run folder, its settings and its data.

    Args:
        backend: Another backend than the run's own.
        dataset: The name of other data, or the data that were given to the run.

    Raises:
        SettingError: The folder is not that of a run.
        DataUnavailable: Data were given to the run, and are not given here; or the name of its data
            gives other samples today.
        StateError, WeightFileError: The weights do not fit, or cannot be read.
    """
    settings = _settings_of(folder, backend)
    start = read_last_start(Path(folder))
    classes = start["classes"]
    if isinstance(dataset, data.Dataset):
        samples = fold_of(dataset, settings)
    elif dataset is None or dataset == settings.data:
        samples = load_data(settings)
    else:
        options = _options_of_other(settings, dataset, start)
        settings = settings.with_(
            data=dataset, data_settings=options, fold=None, folds=None
        )
        samples = load_data(settings)
    if dataset is None and start["samples"] != digest_of(samples):
        raise DataUnavailable(
            f"data: {settings.data!r} gives other samples than those that the run was made on, "
            f"which had the digest {start['samples']}: bring those back, or use the ones of today "
            f"on purpose, --data {settings.data}"
        )
    samples = renumbered(samples, classes)
    network = build_network(settings.with_(weights=None), samples)
    weights.load(network, Path(folder) / WEIGHTS)
    return network, settings, samples


def _options_of_other(
    settings: Settings, name: str, start: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options with which other data of a run are loaded.

    Those of the run hold for data of the same kind; tables and archives are told the classes, as
    they may not have all of them. Pictures get the size of the run's samples, in grey or colours.
    """
    options: dict[str, Any] = {}
    if user_data.kind(name) == user_data.kind(settings.data):
        options |= settings.data_settings
    if user_data.kind(name) in (".csv", ".npz"):
        options["classes"] = list(start["classes"])
    form = picture_form(start["sample_shape"])
    if form is not None and user_data.kind(name) in (".csv", "folder"):
        options["size"], options["mode"] = form
    return options


def load_network(folder: str | Path, backend: str | None = None) -> AbstractNetwork:
    """Load the trained network of a run folder alone; see `load_run`."""
    settings = _settings_of(folder, backend)
    start = read_last_start(Path(folder))
    sample = zoo.Input(tuple(start["sample_shape"]), start["below"])
    network = untried_network(settings.with_(weights=None), sample)
    weights.load(network, Path(folder) / WEIGHTS)
    return network


def _settings_of(folder: str | Path, backend: str | None) -> Settings:
    refuse_no_run(Path(folder))
    settings = read_settings(Path(folder) / SETTINGS)
    return settings.with_(backend=backend or settings.backend)


def _metric(name: str, dataset: data.Dataset) -> dict[str, Any]:
    if metric_takes(name, "classes"):
        return {"name": name, "classes": dataset.classes}
    if metric_takes(name, "columns") and len(dataset.classes) > 1:
        return {"name": name, "columns": dataset.classes}
    return {"name": name}


def _from_data(architecture: zoo.Architecture, dataset: data.Dataset) -> dict[str, Any]:
    """Return the values that the data define for a network's settings, as far as it has them."""
    classes = len(dataset.classes)
    features = int(np.prod(dataset.sample_shape))
    values = {
        "in_channels": dataset.channels,
        "in_chans": dataset.channels,
        "n_channels": dataset.channels,
        "num_channels": dataset.channels,
        "image_size": dataset.sample_shape[-1],
        "in_features": features,
        "input_dim": features,
        "num_classes": classes,
        "out_features": classes,
        "out_channels": classes,
        architecture.outputs: classes,
        "dims": len(dataset.sample_shape) - 1,
    }
    return {name: values[name] for name in architecture.words if name in values}
