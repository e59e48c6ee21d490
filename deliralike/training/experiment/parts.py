"""What the names in settings stand for: transforms, metrics, schedules and callbacks, made from a name and numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deliralike.data import transforms
from deliralike.errors import ArgumentError, UnknownName, refuse_unknown_settings, suggestion
from deliralike.training import schedules
from deliralike.training.experiment.checks import NAME
from deliralike.training.metrics import Metric, metric
from deliralike.training.metrics.named import METRICS
from deliralike.training.schedules import Schedule

Entry = Mapping[str, Any]

TRANSFORMS: Mapping[str, Callable[..., Any]] = {
    "crop": transforms.Crop,
    "elastic": transforms.Elastic,
    "flip": transforms.Flip,
    "noise": transforms.Noise,
    "normalise": transforms.Normalise,
    "rotate": transforms.Rotate,
}


def make_transform(entries: Sequence[Entry]) -> Callable[..., Any] | None:
    """The transforms of samples that entries name, one after the other; None for no entry.

    Raises:
        UnknownName: There is no such transform.
        ArgumentError, SettingError: One has no such number, or lacks one, or it makes no sense.
    """
    made = [_made(TRANSFORMS, "transform", entry) for entry in entries]
    return transforms.Compose(made) if made else None


def make_metrics(entries: Sequence[Entry]) -> dict[str, Metric]:
    """The metrics that entries name, by name.

    Raises:
        UnknownName: There is no such metric.
        ArgumentError, SettingError: One has no such setting, or it makes no sense.
    """
    return {entry[NAME]: metric(entry[NAME], **_numbers(entry)) for entry in entries}


def make_schedule(name: str | None, numbers: Mapping[str, Any]) -> Schedule | None:
    """The schedule of that name with its numbers; None for none.

    Raises:
        UnknownName, ArgumentError, SettingError: There is no such schedule or number, or it makes
            no sense.
    """
    return None if name is None else schedules.schedule(name, **numbers)


def schedule_takes(name: str, setting: str) -> bool:
    """Whether a schedule has a setting."""
    return setting in inspect.signature(schedules.SCHEDULES[name]).parameters


def metric_takes(name: str, setting: str) -> bool:
    """Whether a metric has a setting."""
    return setting in inspect.signature(METRICS[name]).parameters


def _made(table: Mapping[str, Callable[..., Any]], kind: str, entry: Entry) -> Any:
    name, numbers = entry[NAME], _numbers(entry)
    if name not in table:
        raise UnknownName(f"there is no {kind} {name!r}. {suggestion(name, table)}")
    parameters = inspect.signature(table[name]).parameters
    refuse_unknown_settings(f"{kind} {name!r}", numbers, parameters)
    if missing := [
        key for key, each in parameters.items() if each.default is each.empty and key not in numbers
    ]:
        raise ArgumentError(
            f'{kind} {name!r} needs {" and ".join(missing)}: {{name = "{name}", {missing[0]} = …}}'
        )
    return table[name](**numbers)


def _numbers(entry: Entry) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != NAME}
