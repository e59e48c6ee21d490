"""Cross-validation: one run a fold, each from a fresh start, and what they say together."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.files import read_settings, write_settings
from deliralike.training.experiment.run import RunResult, refuse_another
from deliralike.training.experiment.settings import Settings

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """The mean of one figure per fold, and how sure it is.

    Attributes:
        mean: Over the folds.
        low, high: Student's interval for the mean at 95 %. Folds share most of their training data,
            so it is somewhat too narrow (Bengio and Grandvalet 2004); NaN for one fold alone.
        values: The figure of each fold in order.

    Example:
        >>> found = Interval.of([0.9, 0.92, 0.94])
        >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4)
        (0.92, 0.8703, 0.9697)
    """

    mean: float
    low: float
    high: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """The interval of the mean of these values."""
        mean, spread = float(np.mean(values)), math.nan
        if len(values) > 1:
            student = importlib.import_module("scipy.stats").t
            spread = float(
                student.ppf((1 + LEVEL) / 2, len(values) - 1)
                * np.std(values, ddof=1)
                / len(values) ** 0.5
            )
        return cls(mean, mean - spread, mean + spread, tuple(map(float, values)))

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class FoldsResult:
    """What the folds have left.

    Attributes:
        folder: It holds a folder for each of them.
        runs: Their results in order.
        metrics: Each figure over the folds, with its confidence interval.
    """

    folder: Path
    runs: tuple[RunResult, ...]
    metrics: Mapping[str, Interval]


RunFold = Callable[[Path, int], RunResult]


def run_folds(
    settings: Settings, folder: str | PathLike[str] | None, run_fold: RunFold
) -> FoldsResult:
    """Run every fold in a folder of its own, and write what they say together; see `Experiment.folds`."""
    if settings.folds is None:
        raise SettingError("these settings have no folds: give their number, folds=5")
    parent = folds_folder(settings, folder)
    runs = [
        run_fold(fold_folder(parent, number), number) for number in range(1, settings.folds + 1)
    ]
    result = FoldsResult(parent, tuple(runs), summary([run.metrics for run in runs]))
    content = {name: asdict(each) for name, each in result.metrics.items()}
    at.write_json(
        parent / at.SUMMARY, {"folds": settings.folds, "level": LEVEL, "metrics": content}
    )
    return result


def fold_folder(parent: Path, fold: int) -> Path:
    """Where one fold is."""
    return parent / f"fold-{fold}"


def folds_folder(settings: Settings, folder: str | PathLike[str] | None) -> Path:
    """The folder for the folds: a new one, or one with folds of the same settings.

    Raises:
        SettingError: There is something else in it.
    """
    settings = settings.with_(fold=None)
    if folder is None or not Path(folder).exists():
        made = at.new_or_next_folder(folder, f"{settings.network}-folds")
        write_settings(made / at.SETTINGS, settings)
        return made
    folder = Path(folder)
    if not (folder / at.SETTINGS).is_file():
        at.refuse_existing(folder)
    refuse_another(folder, read_settings(folder / at.SETTINGS), settings)
    return folder


def summary(figures: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """Each figure that all folds have, over the folds."""
    shared = [
        name
        for name in figures[0]
        if all(np.ndim(each.get(name, ())) == 0 and name in each for each in figures)
    ]
    return {name: Interval.of([each[name] for each in figures]) for name in shared}
