"""Metrics as JSON lines: one object a line, one line a step and one an epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deliralike.training.callbacks.lines import LineFile
from deliralike.training.callbacks.writer import Writer, begin
from deliralike.training.fields import COUNT, refuse_wrong_fields
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class JsonLines(Writer):
    """Append every record to a file, each written out at once, so that a run that is killed leaves what it recorded.

    A number that JSON cannot write (NaN or infinite) is written as null. When a run is resumed, the
    file is cut back to what it held when the checkpoint was written; so a file that is to be
    resumed belongs to one run.

    Args:
        path: The file; it is made if it is not there.
        labels: Put in front of every record, for example ``backend="torch"``.

    Example line:
        ``{"backend": "torch", "kind": "step", "step": 0, "epoch": 0, "loss": 2.4, "seconds": 0.01, "samples": 64}``
    """

    def __init__(self, path: str | Path, **labels: Any) -> None:
        """Remember where to write; the file is first opened with the first record."""
        self.labels = labels
        self._file = LineFile(path)
        self._resumed_at: int | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def on_start(self, run: Run) -> None:
        """Take back what was written after the checkpoint, if the run is resumed."""
        begin(self._file, self._resumed_at)
        self._resumed_at = None

    def on_step(self, run: Run, step: Step) -> None:
        """Write one step."""
        self._write("step", asdict(step))

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write one epoch."""
        self._write("epoch", asdict(epoch))

    def state(self) -> dict[str, Any]:
        """How much has been written."""
        return {"bytes": self._file.size}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Remember how much of the file to keep."""
        refuse_wrong_fields("state of JsonLines", state, {"bytes": COUNT})
        self._resumed_at = state["bytes"]

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        self._file.add(
            json.dumps(_finite({**self.labels, "kind": kind, **record}), allow_nan=False)
        )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
