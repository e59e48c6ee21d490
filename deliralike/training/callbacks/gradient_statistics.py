"""Statistics of the gradients, parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import whole_number
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.tables import csv_line
from deliralike.training.callbacks.kept_gradients import KeptGradients
from deliralike.training.callbacks.lines import LineFile
from deliralike.training.callbacks.writer import Writer, begin
from deliralike.training.history import Step
from deliralike.training.run import Run

WHOLE = "(all)"
_COLUMNS = ("step", "epoch", "parameter", "norm", "largest", "zeros")


class GradientStatistics(Writer):
    """A CSV table with norm, largest magnitude and share of zeros of each gradient.

    A last row holds the statistics of all gradients together. The gradients are those of the
    update: of all replicas and micro-batches, after clipping. A parameter that took no part in the
    loss has empty cells. A NaN in a gradient makes its norm and its largest magnitude NaN.

    Args:
        path: The table, which each run begins anew. On resume it is cut back to its contents at
            the time of the checkpoint.
        every: The number of steps between two sets of rows, from step 0 on; each copies the
            gradients to the host.

    Columns:
        ``step``, ``epoch``, ``parameter`` (its neutral name; ``(all)`` for all of an optimizer),
        ``norm``, ``largest``, ``zeros``, and ``optimizer`` where there are several.

    Raises:
        SettingError: `every` is below one.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        """Check the settings."""
        self.every = whole_number("every", every, 1)
        self._table = LineFile(path)
        self._resumed_at: int | None = None
        self._recorded_steps: dict[str, int] = {}
        self._kept = KeptGradients()

    @property
    def path(self) -> Path:
        """The path of the table."""
        return self._table.path

    def on_start(self, run: Run) -> None:
        """Make the optimizers keep their gradients."""
        begin(self._table, run, self._resumed_at)
        self._resumed_at = None
        self._kept.begin(run.optimizers.values())
        for name, optimizer in run.optimizers.items():
            self._recorded_steps[name] = optimizer.steps

    def on_step(self, run: Run, step: Step) -> None:
        """Add rows for the optimizers that made an update."""
        for name, optimizer in run.optimizers.items():
            has_updated = optimizer.steps > self._recorded_steps[name]
            self._recorded_steps[name] = optimizer.steps
            if has_updated and step.step % self.every == 0:
                others = {"optimizer": name} if len(run.optimizers) > 1 else {}
                self._add_rows(optimizer, step, others)

    def _add_rows(
        self, optimizer: AbstractOptimizer, step: Step, others: Mapping[str, str]
    ) -> None:
        gradients = {}
        for name, gradient in optimizer.latest_gradients.items():
            gradients[name] = _host(optimizer, gradient)
        columns = (*_COLUMNS, *others)
        rows: list[Any] = [] if self._table.size else [columns]
        for statistics in _rows(gradients):
            row = {"step": step.step, "epoch": step.epoch, **statistics, **others}
            rows.append([row.get(name) for name in columns])
        self._table.add(*[csv_line(row).rstrip() for row in rows])

    def on_end(self, run: Run) -> None:
        """Make the optimizers drop their gradients again."""
        self._kept.end()

    def state(self) -> dict[str, Any]:
        """Return the size of the table."""
        return {"bytes": self._table.size}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the size to which the table is cut back."""
        self._resumed_at = state["bytes"]


def _host(optimizer: Any, gradient: Any) -> np.ndarray | None:
    if gradient is None:
        return None
    return np.asarray(optimizer.network.backend.numpy(gradient)).astype(np.float64)


def _rows(gradients: Mapping[str, np.ndarray | None]) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each gradient, then those of all gradients."""
    flat = []
    for name, gradient in gradients.items():
        statistics = {}
        if gradient is not None:
            statistics = _statistics(gradient)
            flat.append(gradient.ravel())
        yield {"parameter": name, **statistics}
    of_all = _statistics(np.concatenate(flat)) if flat else {}
    yield {"parameter": WHOLE, **of_all}


def _statistics(gradient: np.ndarray) -> dict[str, float]:
    largest = float(np.abs(gradient).max(initial=0.0))
    norm = largest
    if 0 < largest < np.inf:
        norm = float(np.linalg.norm(gradient / largest)) * largest  # never overflows
    zeros = float((gradient == 0).mean()) if gradient.size else 0.0
    return {"norm": norm, "largest": largest, "zeros": zeros}
