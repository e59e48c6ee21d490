"""Comparison of runs: the contents of their folders as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import DeliralikeError, SettingError, UnknownName, suggestion
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.files import read_content
from deliralike.training.history import History
from deliralike.training.metrics.named import METRICS

UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Row:
    """The present state of one run.

    Attributes:
        folder: The folder of the run.
        settings: The settings, as the file has them; empty where they cannot be read.
        history: The records so far.
        metric: The metric of the comparison; empty where the run has no such metric yet.
        status: See `Status`; ``"unreadable"`` for a folder that is damaged.
        reason: The reason for an early end, or the problem of the folder.
        seconds: The time that the run has taken.
    """

    folder: Path
    settings: Mapping[str, Any]
    history: History
    metric: str = ""
    status: str = UNREADABLE
    reason: str = ""
    seconds: float = 0.0

    @property
    def problem(self) -> bool:
        """Whether the run failed, or its folder cannot be read."""
        return self.status in (UNREADABLE, run_folder.FAILED)

    @property
    def values(self) -> np.ndarray:
        """The metric, epoch by epoch."""
        return self.history.held_out(self.metric)

    @property
    def last(self) -> float | None:
        """The latest value of the metric; None before the first epoch."""
        values = self.values
        if not len(values):
            return None
        return float(values[-1])

    @property
    def best(self) -> float | None:
        """The best value of the metric; None where there is no number."""
        values = self.values
        numbers = values[np.isfinite(values)]
        if not len(numbers):
            return None
        best = numbers.max() if higher_is_better(self.metric) else numbers.min()
        return float(best)


def higher_is_better(metric: str) -> bool:
    """Return whether a higher value of the metric of that name is better; true for unknown names.

    Example:
        >>> higher_is_better("accuracy"), higher_is_better("loss"), higher_is_better("dice/mean")
        (True, False, True)
    """
    kind = METRICS.get(metric.partition("/")[0])
    kind = getattr(kind, "func", kind)  # of a partial
    return bool(getattr(kind, "higher_is_better", True))


def read_runs(parent: str | Path, metric: str | None = None) -> list[Row]:
    """Return the runs in a folder and in folders below it, in the order of their names.

    Args:
        metric: The metric to compare by; each run's first one when left out.

    Raises:
        SettingError: There is no such folder, or there is no run in it.
        UnknownName: None of the runs has such a metric.
    """
    parent = Path(parent)
    if not parent.is_dir():
        raise SettingError(
            f"there is no folder {str(parent)!r}: name that of your runs, or begin one: "
            "'deliralike train' makes runs/"
        )
    folders = _folders_of_runs(parent)
    if not folders:
        raise SettingError(
            f"there is no run in {str(parent)!r}: no folder in it has a {run_folder.SETTINGS}"
        )
    rows = [read_run(folder, metric) for folder in folders]
    known: set[str] = set()
    for row in rows:
        known.update(row.history.metrics)
    if metric is not None and known and not any(row.metric for row in rows):
        raise UnknownName(
            f"no run has a metric {metric!r}. {suggestion(metric, known)}"
        )
    return rows


def read_run(folder: Path, metric: str | None) -> Row:
    """Return one run, also one that goes on, was killed or is damaged."""
    try:
        settings = read_content(folder / run_folder.SETTINGS)
        history = run_folder.read_history(folder)
        status = run_folder.read_status(folder)
    except DeliralikeError as error:
        return Row(folder, {}, History(), reason=str(error))
    if status is None:
        status = run_folder.Status(UNREADABLE, f"there is no {run_folder.STATUS}")
    return Row(
        folder,
        settings,
        history,
        _metric(history, metric),
        status.status,
        status.reason,
        status.seconds,
    )


def _metric(history: History, wanted: str | None) -> str:
    """Return the name of the metric in the records; of one with several figures, their mean."""
    recorded = history.metrics
    if wanted is None:
        for name in recorded:
            if "/" not in name or name.endswith("/mean"):
                return name
        return ""
    for name in (wanted, f"{wanted}/mean"):
        if name in recorded:
            return name
    return ""


def _folders_of_runs(parent: Path) -> list[Path]:
    """Return the folders with settings that hold no other such folder, which would be folds."""
    folders = {path.parent for path in parent.rglob(run_folder.SETTINGS)}
    parents: set[Path] = set()
    for folder in folders:
        parents.update(folder.parents)
    return sorted(folders - parents)
