"""Transforms and metrics made from the names and numbers in settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deliralike.data import (
    CropByPosNegLabel,
    CutMix,
    Mixup,
    transforms,
)
from deliralike.errors import SettingError
from deliralike.training.by_name import make_by_name
from deliralike.training.callbacks.freeze import Freeze
from deliralike.training.experiment.checks import NAME
from deliralike.training.metrics import Metric
from deliralike.training.metrics.named import METRICS

Entry = Mapping[str, Any]

SCALING = "scale-columns"
TRANSFORMS: Mapping[str, Callable[..., Any]] = {
    "crop": transforms.Crop,
    "crop-by-pos-neg-label": CropByPosNegLabel,
    "flip": transforms.Flip,
    "noise": transforms.Noise,
    "normalise": transforms.Normalise,
    "pad-to": transforms.PadTo,
    SCALING: transforms.ScaleColumns,
}
BATCH_TRANSFORMS: Mapping[str, Callable[..., Any]] = {"cutmix": CutMix, "mixup": Mixup}


def make_each(
    kind: str, table: Mapping[str, Callable[..., Any]], entries: Sequence[Entry]
) -> list[Any]:
    """Return what entries name in a table, made with their numbers.

    Args:
        kind: What the table holds, for errors.

    Raises:
        UnknownName: The table has no such name.
        ArgumentError, SettingError: There is no such number, one is lacking, or makes no sense.
    """
    objects = []
    for entry in entries:
        numbers = {key: value for key, value in entry.items() if key != NAME}
        objects.append(make_by_name(kind, table, entry[NAME], numbers))
    return objects


def make_transform(entries: Sequence[Entry]) -> Callable[..., Any] | None:
    """Return the transforms of samples that entries name, composed; None for no entry."""
    if not entries:
        return None
    return transforms.Compose(make_each("transform", TRANSFORMS, entries))


def make_batch_transform(entries: Sequence[Entry]) -> Callable[..., Any] | None:
    """Return the transform of batches that the only entry names; None for no entry.

    Raises:
        SettingError: There are several.
    """
    mixings = make_each("transform of batches", BATCH_TRANSFORMS, entries)
    if len(mixings) > 1:
        names = " and ".join(repr(entry[NAME]) for entry in entries)
        raise SettingError(
            f"{names} cannot follow one another, as the first one makes probabilities of the "
            "classes: name one alone"
        )
    return mixings[0] if mixings else None


def with_classes(entries: Sequence[Entry], classes: int) -> list[dict[str, Any]]:
    """Return transforms of batches with the number of classes where it is left out."""
    return [{NAME: entry[NAME], "num_classes": classes, **entry} for entry in entries]


def make_metrics(entries: Sequence[Entry]) -> dict[str, Metric]:
    """Return the metrics that entries name, by name."""
    names = [entry[NAME] for entry in entries]
    return dict(zip(names, make_each("metric", METRICS, entries), strict=True))


def scaling_of(entries: Sequence[Entry]) -> transforms.ScaleColumns | None:
    """Return the scaling of a table's columns among the transforms; None for other data."""
    for entry in entries:
        if entry[NAME] == SCALING:
            return make_each("transform", TRANSFORMS, [entry])[0]
    return None


def in_units_of_targets(
    metrics: Sequence[Entry], scaling: transforms.ScaleColumns | None
) -> list[Entry]:
    """Return metrics of which those of errors turn scaled targets back into their units."""
    if scaling is None or not scaling.target_std:
        return [*metrics]
    found: list[Entry] = []
    for entry in metrics:
        takes_scale = metric_takes(entry[NAME], "scale")
        found.append({**entry, "scale": scaling.target_std} if takes_scale else entry)
    return found


def make_freezing(epochs: Mapping[str, Any]) -> list[Freeze]:
    """Return the callbacks that freeze parts for so many epochs, by pattern; None is for all."""
    return [Freeze(pattern, end=end) for pattern, end in epochs.items()]


def metric_takes(name: str, setting: str) -> bool:
    """Return whether a metric has a setting."""
    return setting in inspect.signature(METRICS[name]).parameters
