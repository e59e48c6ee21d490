"""The records of a run: one for each step, one for each epoch."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike.errors import listed
from deliralike.tables import (
    columns_that_fit,
    html_table,
    terminal_width,
    text_table,
    write_csv,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_EPOCHS = 10
_MOST_FIGURES = 12  # of a metric that are shown


@dataclass(frozen=True)
class Step:
    """One finished update.

    The device may still be computing it: whoever looks at its losses or at its time waits.

    Attributes:
        step: Counts updates of the whole run, from 0.
        epoch: Counts epochs, from 0.
        loss: The loss of the step's batch, before the update.
        seconds: The time of the step, waiting for the device included, which steps that are read
            together share.
        samples: The number of samples of the batch, of all its micro-batches together.
        losses: Every loss that the step gave, by name.
        lr: The learning rate that the update was made with; by the optimizer's name when there are
            several.
        data_seconds: The time that the step waited for its data, before `seconds` began.
    """

    step: int
    epoch: int
    loss: float
    seconds: float
    samples: int
    losses: Mapping[str, float] = field(default_factory=dict)
    lr: float | Mapping[str, float] | None = None
    data_seconds: float = 0.0

    def __getattr__(self, name: str) -> Any:
        """Read what the device computes, which a record of `PendingLosses` does not have before."""
        read = vars(self).get("_read")
        if read is None or name not in ("loss", "losses", "seconds"):
            raise AttributeError(f"a Step has no attribute {name!r}")
        read()
        return vars(self)[name]

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, for copies."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class Epoch:
    """One finished pass over the data.

    Attributes:
        epoch: Counts epochs, from 0.
        steps: The number of updates of the run so far.
        held_out: The results of `evaluate` on held-out data; empty without such data.
        evaluation_seconds: The time of the evaluation.
    """

    epoch: int
    steps: int
    held_out: Mapping[str, float] = field(default_factory=dict)
    evaluation_seconds: float = 0.0


@dataclass(repr=False)
class History:
    """Everything that a run recorded, in order; printed, a table of the latest epochs.

    Attributes:
        steps: One record for each update.
        epochs: One record for each epoch.
        stopped: Why the run ended early; empty when it did not.
    """

    steps: list[Step] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    stopped: str = ""

    @property
    def losses(self) -> np.ndarray:
        """The loss of every step, as an array."""
        return np.array([step.loss for step in self.steps], dtype=np.float64)

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics on held-out data, in order of appearance."""
        names: dict[str, None] = {}
        for epoch in self.epochs:
            names.update(dict.fromkeys(epoch.held_out))
        return list(names)

    def held_out(self, metric: str) -> np.ndarray:
        """Return one metric on held-out data, epoch by epoch."""
        results = [epoch.held_out for epoch in self.epochs]
        return np.array([result[metric] for result in results if metric in result])

    def learning_rates(self) -> dict[str, list[float]]:
        """Return the learning rates of each optimizer, step by step; NaN where it has none."""
        of_optimizers: dict[str, list[float]] = {}
        for step in self.steps:
            for name, rate in rates(step).items():
                values = of_optimizers.setdefault(name, [])
                values.append(float("nan") if rate is None else rate)
        return of_optimizers

    @property
    def seconds_per_step(self) -> float:
        """The median time of the steps on batches of the usual size.

        The first step, which may compile, is left out. NaN when there are fewer than two steps.
        """
        full = max((step.samples for step in self.steps), default=0)
        seconds = [step.seconds for step in self.steps[1:] if step.samples == full]
        if not seconds:
            return float("nan")
        return float(np.median(seconds))

    def write_csv(self, folder: str | Path) -> None:
        """Write ``steps.csv`` and ``epochs.csv`` into a folder: a row for each step or epoch.

        Steps have the columns ``step``, ``epoch``, ``loss``, ``lr``, ``samples``, ``seconds``,
        ``data_seconds``, and the other losses and rates by name. Epochs have ``epoch``, ``steps``,
        ``loss`` (the mean over the epoch's steps), ``evaluation_seconds``, the held-out figures as
        ``held_out/NAME``, and the means of the other losses.
        """
        write_csv(Path(folder, "steps.csv"), map(_step_record, self.steps))
        write_csv(Path(folder, "epochs.csv"), self._epoch_records())

    def plot(self, metrics: Sequence[str] | None = None, title: str = "") -> Figure:
        """Return a figure of matplotlib with the loss, the metrics and the learning rate.

        A notebook shows it; ``figure.savefig(path)`` saves it, ``figure.axes`` has its panels.

        Args:
            metrics: The metrics to draw; all metrics when None.

        Example:
            >>> history = History([Step(0, 0, 2.0, 0.1, 8), Step(1, 0, 1.0, 0.1, 8)])
            >>> [axes.get_title(loc="left") for axes in history.plot().axes]
            ['training loss, every step']
        """
        curves = importlib.import_module("deliralike.training.curves")
        return curves.figure_of({"this run": self}, title, metrics)

    def __repr__(self) -> str:
        """Return a line of totals and the latest epochs: the figures that fit the terminal."""
        if not self.epochs:
            return self._title()
        columns, rows = self._table()
        width, from_the_right = terminal_width(), columns[:0:-1]
        shown = columns_that_fit(columns, rows, width, from_the_right)
        cut = [row[: len(shown)] for row in rows]
        lines = [self._title(), text_table(shown, cut, right=columns)]
        if rest := columns[len(shown) :]:
            lines.append(f"and {listed(rest, 3)}: write_csv(folder), plot()")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table, for a notebook."""
        columns, rows = self._table()
        return html_table(columns, rows, right=columns, caption=self._title())

    def _title(self) -> str:
        title = f"History: {len(self.steps)} steps, {len(self.epochs)} epochs"
        if len(self.epochs) > _SHOWN_EPOCHS:
            title += f" (the last {_SHOWN_EPOCHS} are shown)"
        if self.stopped:
            title += f"; stopped: {self.stopped}"
        return title

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the cells of the latest epochs."""
        titles = {"epoch": "epoch", "steps": "steps", "loss": "training loss"}
        figures = dict.fromkeys(name for each in self.epochs for name in each.held_out)
        titles |= {f"held_out/{name}": name for name in shown_figures(figures)}
        losses = self.steps[-1].losses if self.steps else {}
        if len(losses) > 1:
            others = [name for name in losses if name != "loss"]
            titles |= {f"loss/{name}": f"training {name}" for name in others}
        records = self._epoch_records()[-_SHOWN_EPOCHS:]
        rows = []
        for record in records:
            rows.append([_cell(record.get(name)) for name in titles])
        return list(titles.values()), rows

    def _epoch_records(self) -> list[dict[str, Any]]:
        """Return the rows of ``epochs.csv``."""
        of_epochs: dict[int, dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for step in self.steps:
            for name, value in _losses_of(step).items():
                of_epochs[step.epoch][name].append(value)
        records = []
        for epoch in self.epochs:
            losses = of_epochs[epoch.epoch]
            means = {name: float(np.mean(values)) for name, values in losses.items()}
            record: dict[str, Any] = {
                "epoch": epoch.epoch,
                "steps": epoch.steps,
                "loss": means.pop("loss", float("nan")),
                "evaluation_seconds": epoch.evaluation_seconds,
            }
            for name, value in epoch.held_out.items():
                record[f"held_out/{name}"] = value
            records.append(record | means)
        return records


def shown_figures(names: Iterable[str]) -> list[str]:
    """Return the figures that lines, tables and curves show: of a metric with many its mean alone.

    A confusion matrix has no mean. All figures are in the records.

    Example:
        >>> shown_figures(["loss", "dice/a", "dice/mean", *(f"iou/{n}" for n in range(40))])
        ['loss', 'dice/a', 'dice/mean']
    """
    names = list(names)
    counts = Counter(name.partition("/")[0] for name in names)
    shown = []
    for name in names:
        metric = name.partition("/")[0]
        if counts[metric] <= _MOST_FIGURES or name == f"{metric}/mean":
            shown.append(name)
    return shown


def rates(step: Step) -> dict[str, float | None]:
    """Return the learning rates of a step: ``lr``, or ``lr/OPTIMIZER`` where there are several."""
    if isinstance(step.lr, Mapping):
        return {f"lr/{name}": lr for name, lr in step.lr.items()}
    return {"lr": step.lr}


def _step_record(step: Step) -> dict[str, Any]:
    """Return a row of ``steps.csv``."""
    record = {
        "step": step.step,
        "epoch": step.epoch,
        "loss": step.loss,
        **rates(step),
        "samples": step.samples,
        "seconds": step.seconds,
        "data_seconds": step.data_seconds,
    }
    return record | _losses_of(step)


def _losses_of(step: Step) -> dict[str, float]:
    """Return the loss of a step, and the others as ``loss/NAME``."""
    others = {name: value for name, value in step.losses.items() if name != "loss"}
    return {"loss": step.loss} | {f"loss/{name}": each for name, each in others.items()}


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
