"""Cross-validation: one run for each fold, each from a fresh start, and a summary."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.files import read_settings, write_settings
from deliralike.training.experiment.run import RunResult, refuse_another
from deliralike.training.experiment.settings import Settings
from deliralike.weights.inflate import AnyPath

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """The mean of one figure over the folds, with its confidence interval.

    Attributes:
        mean: The mean over the folds.
        low, high: Student's interval for the mean at 95 %. Folds share most of their training data,
            so it is somewhat too narrow (Bengio and Grandvalet 2004); NaN for one fold alone.
        values: The figure of each fold in order.

    Example:
        >>> interval = Interval.of([0.9, 0.92, 0.94])
        >>> round(interval.mean, 4), round(interval.low, 4), round(interval.high, 4)
        (0.92, 0.8703, 0.9697)
    """

    mean: float
    low: float
    high: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the interval of the mean of these values."""
        mean = float(np.mean(values))
        count = len(values)
        spread = math.nan
        if count > 1:
            stats = importlib.import_module("scipy.stats")
            quantile = stats.t.ppf((1 + LEVEL) / 2, count - 1)
            spread = float(quantile * stats.sem(values))
        return cls(mean, mean - spread, mean + spread, tuple(map(float, values)))

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class FoldsResult:
    """The result of cross-validation.

    Attributes:
        folder: The folder, with a folder in it for each fold.
        runs: The results of the folds in order.
        metrics: Each figure over the folds, with its confidence interval.
    """

    folder: Path
    runs: tuple[RunResult, ...]
    metrics: Mapping[str, Interval]


RunFold = Callable[[Path, int], RunResult]


def run_folds(
    settings: Settings, folder: AnyPath | None, run_fold: RunFold
) -> FoldsResult:
    """Run every fold in its own folder, and write the summary; see `Experiment.folds`."""
    if settings.folds is None:
        raise SettingError("these settings have no folds: give their number, folds=5")
    parent = folds_folder(settings, folder)
    runs = []
    for number in range(1, settings.folds + 1):
        runs.append(run_fold(fold_folder(parent, number), number))
    intervals = summary([run.metrics for run in runs])
    result = FoldsResult(parent, tuple(runs), intervals)
    metrics = {name: asdict(interval) for name, interval in intervals.items()}
    content = {"folds": settings.folds, "level": LEVEL, "metrics": metrics}
    run_folder.write_json(parent / run_folder.SUMMARY, content)
    return result


def fold_folder(parent: Path, fold: int) -> Path:
    """Return the folder of one fold."""
    return parent / f"fold-{fold}"


def folds_folder(settings: Settings, folder: AnyPath | None) -> Path:
    """Return the folder for the folds: a new one, or one with folds of the same settings.

    Raises:
        SettingError: The folder holds something else.
    """
    settings = settings.with_(fold=None)
    if folder is None or not Path(folder).exists():
        new = run_folder.new_or_next_folder(folder, f"{settings.short_name}-folds")
        write_settings(new / run_folder.SETTINGS, settings)
        return new
    folder = Path(folder)
    if not (folder / run_folder.SETTINGS).is_file():
        run_folder.refuse_existing(folder)
    refuse_another(folder, read_settings(folder / run_folder.SETTINGS), settings)
    return folder


def summary(figures: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Return the interval of each figure that all folds have."""
    intervals = {}
    for name in figures[0]:
        values = [each[name] for each in figures if name in each]
        if len(values) == len(figures):
            intervals[name] = Interval.of(values)
    return intervals
