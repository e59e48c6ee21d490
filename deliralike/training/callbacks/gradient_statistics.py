"""How large the gradients are, parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.optimizer import AbstractOptimizer
from deliralike.training.callbacks.table import Table
from deliralike.training.callbacks.writer import Writer, begin
from deliralike.training.history import Step
from deliralike.training.run import Run

WHOLE = "(all)"


class GradientStatistics(Writer):
    """A CSV table with norm, largest magnitude and share of zeros of each gradient, and of all of them together.

    The gradients are those that the update was made with: of all replicas and micro-batches, after
    clipping. One that took no part in the loss has empty cells. A NaN in a gradient makes its norm
    and its largest NaN.

    Args:
        path: The table; it is made if it is not there. On resume it is cut back to the checkpoint's
            moment.
        every: Every how many steps there are rows, from step 0 on; each copies the gradients to the
            host.

    Columns:
        ``step``, ``epoch``, ``parameter`` (its neutral name; ``(all)`` for all of an optimizer),
        ``norm``, ``largest``, ``zeros``, and ``optimizer`` where there are several.

    Raises:
        SettingError: `every` is below one.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        """Nothing is kept yet."""
        if every < 1:
            raise SettingError(f"every={every!r} must be at least 1")
        self.every = every
        self._table = Table(path)
        self._resumed_at: Mapping[str, Any] | None = None
        self._seen: dict[str, int] = {}
        self._keeping: list[AbstractOptimizer] = []

    @property
    def path(self) -> Path:
        """The table."""
        return self._table.path

    def on_start(self, run: Run) -> None:
        """Let the optimizers keep their gradients."""
        begin(self._table, self._resumed_at)
        self._resumed_at = None
        self._seen = {name: optimizer.steps for name, optimizer in run.optimizers.items()}
        self._keeping = [each for each in run.optimizers.values() if not each.keep_gradients]
        for optimizer in self._keeping:
            optimizer.keep_gradients = True

    def on_step(self, run: Run, step: Step) -> None:
        """Add rows for the optimizers that made an update."""
        for name, optimizer in run.optimizers.items():
            updated, self._seen[name] = optimizer.steps > self._seen[name], optimizer.steps
            if updated and step.step % self.every == 0:
                which = {"optimizer": name} if len(run.optimizers) > 1 else {}
                rows = _rows(
                    {key: _host(optimizer, g) for key, g in optimizer.latest_gradients.items()}
                )
                self._table.add(
                    *({"step": step.step, "epoch": step.epoch, **row, **which} for row in rows)
                )

    def on_end(self, run: Run) -> None:
        """Let the optimizers do as before."""
        for optimizer in self._keeping:
            optimizer.keep_gradients, optimizer.latest_gradients = False, {}
        self._keeping = []

    def state(self) -> dict[str, Any]:
        """How much has been written."""
        return self._table.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Remember how much of the table to keep."""
        self._resumed_at = state


def _host(optimizer: Any, gradient: Any) -> np.ndarray | None:
    if gradient is None:
        return None
    return np.asarray(optimizer.network.backend.numpy(gradient)).astype(np.float64)


def _rows(gradients: Mapping[str, np.ndarray | None]) -> Iterator[dict[str, Any]]:
    for name, gradient in gradients.items():
        yield {"parameter": name, **(_statistics(gradient) if gradient is not None else {})}
    flat = [gradient.ravel() for gradient in gradients.values() if gradient is not None]
    yield {"parameter": WHOLE, **(_statistics(np.concatenate(flat)) if flat else {})}


def _statistics(gradient: np.ndarray) -> dict[str, float]:
    largest = float(np.abs(gradient).max(initial=0.0))
    norm = (
        float(np.linalg.norm(gradient / largest)) * largest if 0 < largest < np.inf else largest
    )  # never overflows
    return {
        "norm": norm,
        "largest": largest,
        "zeros": float((gradient == 0).mean()) if gradient.size else 0.0,
    }
