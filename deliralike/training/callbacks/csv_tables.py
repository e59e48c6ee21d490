"""Metrics as two CSV tables: one row a step, and one row an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliralike.steps import TOTAL
from deliralike.training.callbacks.table import Table
from deliralike.training.callbacks.writer import Writer, begin
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class Csv(Writer):
    """Append every record to ``steps.csv`` or ``epochs.csv`` in a folder, each row written out at once.

    A metric that appears later becomes a further column, empty in the rows before. When a run is
    resumed, the tables are cut back to what they held when the checkpoint was written.

    Args:
        folder: Where they are; it is made if it is not there.

    Columns:
        ``steps.csv`` has what a `Step` has, ``losses/NAME`` for each further loss, and
        ``lr/OPTIMIZER`` where there are several; ``epochs.csv`` has what an `Epoch` has, and
        ``validation/METRIC``.
    """

    def __init__(self, folder: str | Path) -> None:
        """Remember where to write; the files are made with their first rows."""
        self.folder = Path(folder)
        self._tables = {kind: Table(self.folder / f"{kind}.csv") for kind in ("steps", "epochs")}
        self._resumed_at: Mapping[str, Any] = {}

    def on_start(self, run: Run) -> None:
        """Take back what was written after the checkpoint, if the run is resumed."""
        for kind, table in self._tables.items():
            begin(table, self._resumed_at.get(kind))
        self._resumed_at = {}

    def on_step(self, run: Run, step: Step) -> None:
        """Add a row."""
        self._tables["steps"].add(step_row(step))

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add a row."""
        self._tables["epochs"].add(epoch_row(epoch))

    def state(self) -> dict[str, Any]:
        """How much has been written."""
        return {kind: table.state() for kind, table in self._tables.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Remember how much of the tables to keep."""
        self._resumed_at = state


def step_row(step: Step) -> dict[str, Any]:
    """A step by column."""
    rates = (
        {f"lr/{name}": lr for name, lr in step.lr.items()}
        if isinstance(step.lr, Mapping)
        else {"lr": step.lr}
    )
    others = {f"losses/{name}": value for name, value in step.losses.items() if name != TOTAL}
    names = ("step", "epoch", "loss", "seconds", "data_seconds", "samples")
    return {**{name: getattr(step, name) for name in names}, **rates, **others}


def epoch_row(epoch: Epoch) -> dict[str, Any]:
    """An epoch by column."""
    names = ("epoch", "steps", "evaluation_seconds")
    metrics = {f"validation/{name}": value for name, value in epoch.held_out.items()}
    return {**{name: getattr(epoch, name) for name in names}, **metrics}
