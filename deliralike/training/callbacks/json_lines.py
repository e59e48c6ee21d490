"""Metrics as JSON lines, with one object for each step and one for each epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deliralike.errors import StateError, naming
from deliralike.training.callbacks.callback import StepWriter
from deliralike.training.history import Epoch, Step
from deliralike.training.json_nests import State, without_nan
from deliralike.training.run import Run


class JsonLines(StepWriter):
    """Write every record to a file, which a run begins anew, steps after half a second at most.

    So a killed run leaves its records, and a run does not wait for the device at each step.

    A number that JSON cannot write (NaN or infinite) is written as null. When a run is resumed, the
    file is cut back to its contents at the time of the checkpoint.

    Args:
        path: The file; it is made if it does not exist.
        labels: Values in front of every record, for example ``backend="torch"``.

    Example line:
        ``{"backend": "torch", "kind": "step", "step": 0, "epoch": 0, "loss": 2.4, "samples": 64}``
    """

    def __init__(self, path: str | Path, **labels: Any) -> None:
        """Take the path; the file is made with the first record."""
        super().__init__()
        self.labels = labels
        self.path = Path(path)
        self._size = 0  # of the records that stay, in bytes
        self._resumed_at: int | None = None

    def on_start(self, run: Run) -> None:
        """Remove the records after the checkpoint, if the run is resumed."""
        resumed_at, self._resumed_at = self._resumed_at, None
        if resumed_at is not None and self.path.exists():
            self._cut_back(resumed_at)
        goes_on = resumed_at is not None or run.resumed or run.goes_on
        self._size = 0
        if goes_on and self.path.exists():
            self._size = self.path.stat().st_size

    def write_step(self, step: Step) -> None:
        """Write one step."""
        self._write("step", asdict(step))

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write its steps and one epoch."""
        super().on_epoch(run, epoch)
        self._write("epoch", asdict(epoch))

    def state(self) -> State:
        """Return the size of the file, with all steps so far."""
        self.flush()
        return {"bytes": self._size}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the size to which the file is cut back."""
        self._resumed_at = state["bytes"]

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        labelled = without_nan({**self.labels, "kind": kind, **record})
        line = json.dumps(labelled, allow_nan=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = "a" if self._size else "w"
        with (
            naming(self.path),
            self.path.open(mode, encoding="utf-8", newline="") as file,
        ):
            file.write(f"{line}\n")
            self._size = file.tell()

    def _cut_back(self, size: int) -> None:
        """Remove all lines after the first `size` bytes.

        A file that is shorter, as after a power cut, keeps its whole lines.

        Raises:
            StateError: No line ends there, so it is another file, which does not change.
        """
        with self.path.open("rb+") as file:
            content = file.read(size)
            if len(content) == size and content[-1:] not in (b"", b"\n"):
                raise StateError(
                    f"{os.fspath(self.path)!r} has no line that ends after {size} bytes, as it had "
                    "when the checkpoint was written: it is another file. Move it away, or record "
                    "to another path."
                )
            file.truncate(content.rfind(b"\n") + 1)
