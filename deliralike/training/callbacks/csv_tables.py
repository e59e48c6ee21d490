"""Metrics as two CSV tables, with one row for each step and one for each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliralike.network.steps import TOTAL
from deliralike.training.callbacks.later import Later
from deliralike.training.callbacks.table import Table
from deliralike.training.callbacks.writer import Writer, begin
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class Csv(Writer):
    """Write every record to ``steps.csv`` or ``epochs.csv`` in a folder, each run to new ones.

    The rows of steps follow after half a second at most, so that a run does not wait for the device
    at each of them.

    A metric that appears later becomes a further column, empty in the rows before. When a run is
    resumed, the tables are cut back to their contents at the time of the checkpoint.

    Args:
        folder: The folder of the tables; it is made if it does not exist.

    Columns:
        ``steps.csv`` has the fields of a `Step`, ``losses/NAME`` for each further loss, and
        ``lr/OPTIMIZER`` where there are several; ``epochs.csv`` has the fields of an `Epoch`, and
        ``validation/METRIC``.
    """

    def __init__(self, folder: str | Path) -> None:
        """Take the folder; the files are made with their first rows."""
        self.folder = Path(folder)
        self._tables = {kind: Table(self.folder / f"{kind}.csv") for kind in ("steps", "epochs")}
        self._steps = Later(lambda step: self._tables["steps"].add(step_row(step)))
        self._resumed_at: Mapping[str, Any] = {}

    def on_start(self, run: Run) -> None:
        """Remove the rows after the checkpoint, if the run is resumed."""
        for kind, table in self._tables.items():
            begin(table, run, self._resumed_at.get(kind))
        self._resumed_at = {}

    def on_step(self, run: Run, step: Step) -> None:
        """Take a step."""
        self._steps.add(step)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add the rows of its steps and of an epoch."""
        self._steps.flush()
        self._tables["epochs"].add(epoch_row(epoch))

    def on_end(self, run: Run) -> None:
        """Add the rows of the last steps."""
        self._steps.flush()

    def state(self) -> dict[str, Any]:
        """Return the sizes of the tables, with all steps so far."""
        self._steps.flush()
        return {kind: table.state() for kind, table in self._tables.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the sizes to which the tables are cut back."""
        self._resumed_at = state


def step_row(step: Step) -> dict[str, Any]:
    """Return the cells of a step by column."""
    row: dict[str, Any] = {
        "step": step.step,
        "epoch": step.epoch,
        "loss": step.loss,
        "seconds": step.seconds,
        "data_seconds": step.data_seconds,
        "samples": step.samples,
    }
    row |= rates(step)
    for name, value in step.losses.items():
        if name != TOTAL:
            row[f"losses/{name}"] = value
    return row


def rates(step: Step) -> dict[str, float | None]:
    """Return the learning rates of a step: ``lr``, or ``lr/OPTIMIZER`` where there are several."""
    if isinstance(step.lr, Mapping):
        return {f"lr/{name}": lr for name, lr in step.lr.items()}
    return {"lr": step.lr}


def epoch_row(epoch: Epoch) -> dict[str, Any]:
    """Return the cells of an epoch by column."""
    row: dict[str, Any] = {
        "epoch": epoch.epoch,
        "steps": epoch.steps,
        "evaluation_seconds": epoch.evaluation_seconds,
    }
    for name, value in epoch.held_out.items():
        row[f"validation/{name}"] = value
    return row
