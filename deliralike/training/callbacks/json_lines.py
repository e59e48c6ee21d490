"""Metrics as JSON lines: one object a line, one line a step and one an epoch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class JsonLines(Callback):
    """Append every record to a file, each written out at once, so that a run that is killed leaves what it recorded.

    A number that JSON cannot write (NaN or infinite) is written as null.

    Args:
        path: The file; it is made if it is not there.
        labels: Put in front of every record, for example ``backend="torch"``.

    Example line:
        ``{"backend": "torch", "kind": "step", "step": 0, "epoch": 0, "loss": 2.4, "seconds": 0.01, "samples": 64}``
    """

    def __init__(self, path: str | Path, **labels: Any) -> None:
        """Remember where to write; the file is first opened with the first record."""
        self.path = Path(path)
        self.labels = labels

    def on_step(self, run: Run, step: Step) -> None:
        """Write one step."""
        self._write("step", asdict(step))

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write one epoch."""
        self._write("epoch", asdict(epoch))

    def _write(self, kind: str, record: dict[str, Any]) -> None:
        line = json.dumps(_finite({**self.labels, "kind": kind, **record}), allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
