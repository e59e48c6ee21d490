"""Runs beside each other: what their folders say, as rows and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from deliralike.errors import DeliralikeError, SettingError, UnknownName, suggestion
from deliralike.training.curves import literal
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.files import read_content
from deliralike.training.history import History
from deliralike.training.metrics.named import METRICS

UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Row:
    """One run, as it stands.

    Attributes:
        folder: Where it is.
        settings: What it was made with, as the file has them; empty where they cannot be read.
        history: What it has recorded so far.
        metric: What it is compared by; empty where it has no such metric yet.
        status: See `Status`; ``"unreadable"`` for a folder that is damaged.
        reason: Why it ended early, or what is wrong with the folder.
        seconds: How long it has run.
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
        """Whether something went wrong with it."""
        return self.status in (UNREADABLE, at.FAILED)

    @property
    def values(self) -> np.ndarray:
        """The metric, epoch by epoch."""
        return self.history.held_out(self.metric)

    @property
    def last(self) -> float | None:
        """The latest value of the metric; None before the first epoch."""
        return float(self.values[-1]) if len(self.values) else None

    @property
    def best(self) -> float | None:
        """The best value of the metric; None where there is no number."""
        numbers = self.values[np.isfinite(self.values)]
        if not len(numbers):
            return None
        return float(numbers.max() if higher_is_better(self.metric) else numbers.min())


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better, by its name; a name that is not in the table counts so.

    Example:
        >>> higher_is_better("accuracy"), higher_is_better("loss"), higher_is_better("dice/mean")
        (True, False, True)
    """
    kind = METRICS.get(metric.partition("/")[0])
    return bool(getattr(getattr(kind, "func", kind), "higher_is_better", True))


def read_runs(parent: str | Path, metric: str | None = None) -> list[Row]:
    """The runs in a folder and in folders below it, in the order of their names.

    Args:
        metric: What to compare by; each run's first one when left out.

    Raises:
        SettingError: There is no such folder, or there is no run in it.
        UnknownName: None of the runs has such a metric.
    """
    parent = Path(parent)
    if not parent.is_dir():
        raise SettingError(
            f"there is no folder {str(parent)!r}: 'deliralike train' makes runs/ where it is called"
        )
    found = {path.parent for path in parent.rglob(at.SETTINGS)}
    single = sorted(
        folder for folder in found if not any(folder in other.parents for other in found)
    )
    if not single:
        raise SettingError(
            f"there is no run in {str(parent)!r}: no folder in it has a {at.SETTINGS}"
        )
    rows = [read_run(folder, metric) for folder in single]
    known = {name for row in rows for epoch in row.history.epochs for name in epoch.held_out}
    if metric is not None and known and not any(row.metric for row in rows):
        raise UnknownName(f"no run has a metric {metric!r}. {suggestion(metric, known)}")
    return rows


def read_run(folder: Path, metric: str | None = None) -> Row:
    """One run, also one that goes on, was killed or is damaged."""
    try:
        settings, history = read_content(folder / at.SETTINGS), at.read_history(folder)
        status = at.read_status(folder) or at.Status(UNREADABLE, f"there is no {at.STATUS}")
    except DeliralikeError as error:
        return Row(folder, {}, History(), reason=str(error))
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
    """The name of the metric among those recorded; of one that has several figures, their mean."""
    recorded = list(dict.fromkeys(name for epoch in history.epochs for name in epoch.held_out))
    if wanted is None:
        means = [name for name in recorded if "/" not in name or name.endswith("/mean")]
        return next(iter(means), "")
    return next((name for name in (wanted, f"{wanted}/mean") if name in recorded), "")


# The picture --------------------------------------------------------------------------------------

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000", "#8a6f00")
_LINES = ("-", "--", ":", "-.")


def draw_runs(rows: Mapping[str, Row], path: str | Path) -> Path:
    """Draw the metric and the training loss of runs over their epochs, and save the picture.

    Raises:
        SettingError: No run has recorded an epoch, or a file cannot be written there.
    """
    shown = {name: row for name, row in rows.items() if row.history.epochs}
    if not shown:
        raise SettingError("there is nothing to draw: no run has finished an epoch yet")
    figure = Figure(figsize=(9.0, 6.4), dpi=120, layout="constrained", facecolor="white")
    above, below = figure.subplots(2, 1, sharex=True)
    metrics = dict.fromkeys(row.metric for row in shown.values() if row.metric)
    _prepared(above, f"held-out {', '.join(metrics)}")
    _prepared(below, "training loss, mean of each epoch")
    for index, (name, row) in enumerate(shown.items()):
        style = {
            "color": _COLOURS[index % len(_COLOURS)],
            "linestyle": _LINES[index // len(_COLOURS) % len(_LINES)],
        }
        above.plot(
            np.arange(1, len(row.values) + 1),
            row.values,
            label=literal(name),
            marker="o",
            markersize=3.5,
            **style,
        )
        losses = _losses(row.history)
        below.plot(np.arange(1, len(losses) + 1), losses, marker="o", markersize=3.5, **style)
    below.set_xlabel("epoch")
    below.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(
        *above.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9
    )
    _save(figure, Path(path))
    return Path(path)


def _losses(history: History) -> list[float]:
    by_epoch: dict[int, list[float]] = {}
    for step in history.steps:
        by_epoch.setdefault(step.epoch, []).append(step.loss)
    return [float(np.mean(by_epoch.get(epoch.epoch, [math.nan]))) for epoch in history.epochs]


def _prepared(axis: Any, title: str) -> None:
    axis.set_title(literal(title), loc="left", fontsize=10.5)
    axis.grid(True, color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise SettingError(f"the picture cannot be written to {str(path)!r}: {error}") from error
