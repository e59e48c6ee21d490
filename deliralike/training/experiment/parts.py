"""Transforms, metrics and schedules made from the names and numbers in settings."""

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
from deliralike.training import schedules
from deliralike.training.by_name import make_by_name
from deliralike.training.callbacks.freeze import Freeze
from deliralike.training.experiment.checks import NAME
from deliralike.training.metrics import Metric, metric
from deliralike.training.metrics.named import METRICS
from deliralike.training.schedules import Schedule

Entry = Mapping[str, Any]

TRANSFORMS: Mapping[str, Callable[..., Any]] = {
    "crop": transforms.Crop,
    "crop-by-pos-neg-label": CropByPosNegLabel,
    "flip": transforms.Flip,
    "noise": transforms.Noise,
    "normalise": transforms.Normalise,
    "pad-to": transforms.PadTo,
    "rotate": transforms.Rotate,
}
BATCH_TRANSFORMS: Mapping[str, Callable[..., Any]] = {"cutmix": CutMix, "mixup": Mixup}


def make_transform(entries: Sequence[Entry]) -> Callable[..., Any] | None:
    """Return the transforms of samples that entries name, composed; None for no entry.

    Raises:
        UnknownName: There is no such transform.
        ArgumentError, SettingError: One has no such number, or lacks one, or it makes no sense.
    """
    if not entries:
        return None
    composed = []
    for entry in entries:
        composed.append(
            make_by_name("transform", TRANSFORMS, entry[NAME], _numbers(entry))
        )
    return transforms.Compose(composed)


def make_batch_transform(entries: Sequence[Entry]) -> Callable[..., Any] | None:
    """Return the transform of batches that the only entry names; None for no entry.

    Raises:
        UnknownName, ArgumentError, SettingError: As `make_transform`; or there are several.
    """
    if not entries:
        return None
    mixings = []
    for entry in entries:
        numbers = _numbers(entry)
        mixings.append(
            make_by_name("transform of batches", BATCH_TRANSFORMS, entry[NAME], numbers)
        )
    if len(mixings) > 1:
        names = " and ".join(repr(entry[NAME]) for entry in entries)
        raise SettingError(
            f"{names} cannot follow one another, as the first one makes probabilities of the "
            "classes: name one alone"
        )
    return mixings[0]


def with_classes(entries: Sequence[Entry], classes: int) -> list[dict[str, Any]]:
    """Return transforms of batches with the number of classes where it is left out."""
    return [{NAME: entry[NAME], "num_classes": classes, **entry} for entry in entries]


def make_metrics(entries: Sequence[Entry]) -> dict[str, Metric]:
    """Return the metrics that entries name, by name.

    Raises:
        UnknownName: There is no such metric.
        ArgumentError, SettingError: One has no such setting, or it makes no sense.
    """
    metrics = {}
    for entry in entries:
        name = entry[NAME]
        metrics[name] = metric(name, **_numbers(entry))
    return metrics


def make_schedule(name: str | None, numbers: Mapping[str, Any]) -> Schedule | None:
    """Return the schedule of that name with its numbers; None if there is no name.

    Raises:
        UnknownName, ArgumentError, SettingError: There is no such schedule or number, or it makes
            no sense.
    """
    if name is None:
        return None
    return schedules.schedule(name, **numbers)


def make_freezing(epochs: Mapping[str, Any]) -> list[Freeze]:
    """Return the callbacks that freeze parts for so many epochs, by pattern; None is for all."""
    return [Freeze(pattern, end=end) for pattern, end in epochs.items()]


def schedule_takes(name: str, setting: str) -> bool:
    """Return whether a schedule has a setting."""
    return setting in inspect.signature(schedules.SCHEDULES[name]).parameters


def metric_takes(name: str, setting: str) -> bool:
    """Return whether a metric has a setting."""
    return setting in inspect.signature(METRICS[name]).parameters


def _numbers(entry: Entry) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != NAME}
