"""Metrics for TensorBoard, written without TensorFlow and without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deliralike.data.packages import needed
from deliralike.network.steps import TOTAL
from deliralike.training.callbacks.csv_tables import rates
from deliralike.training.callbacks.later import Later
from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class TensorBoard(Writer):
    """Write values of steps as ``train/…`` and metrics of epochs as ``validation/…``.

    The values of a step are losses, learning rate and speed. The callback needs the package
    tensorboardX. When a run is resumed, TensorBoard hides the values after the checkpoint.

    Args:
        folder: The folder for ``tensorboard --logdir folder``.

    Raises:
        DataUnavailable: The package is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        """Import the package; nothing is written before the run starts."""
        self.folder = Path(folder)
        self._package = needed(
            "tensorboardX", package="tensorboardX", extra="tensorboard", purpose="TensorBoard"
        )
        self._writer: Any = None
        self._steps = Later(self._add)

    def on_start(self, run: Run) -> None:
        """Open a new file of events."""
        self._writer = self._package.SummaryWriter(str(self.folder), purge_step=run.step or None)

    def on_step(self, run: Run, step: Step) -> None:
        """Take a step."""
        self._steps.add(step)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add its steps, and the metrics at the last step of the epoch."""
        self._steps.flush()
        for name, value in epoch.held_out.items():
            self._writer.add_scalar(f"validation/{name}", value, epoch.steps - 1)
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        """Close the file."""
        if self._writer is not None:
            self._steps.flush()
            self._writer.close()
            self._writer = None

    def _add(self, step: Step) -> None:
        for tag, value in scalars(step).items():
            self._writer.add_scalar(f"train/{tag}", value, step.step)


def scalars(step: Step) -> dict[str, float]:
    """Return the values of a step by name: losses, learning rates and speed."""
    scalars = {TOTAL: step.loss, **step.losses}
    for tag, lr in rates(step).items():
        if lr is not None:
            scalars[tag] = lr
    seconds = step.seconds + step.data_seconds or 1e-9
    scalars["samples_per_second"] = step.samples / seconds
    return scalars
