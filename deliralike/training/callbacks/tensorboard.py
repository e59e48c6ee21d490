"""Metrics for TensorBoard, written without TensorFlow and without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliralike.data.packages import needed
from deliralike.training.callbacks.tracker import Tracker
from deliralike.training.history import Epoch
from deliralike.training.run import Run


class TensorBoard(Tracker):
    """Write values of steps as ``train/…`` and metrics of epochs as ``validation/…``.

    The values of a step are losses, learning rate and speed. The callback needs the package
    tensorboardX. TensorBoard hides the values of other runs in the folder, and of a resumed
    run those after the checkpoint.

    Args:
        folder: The folder for ``tensorboard --logdir folder``.

    Raises:
        DataUnavailable: The package is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        """Import the package; nothing is written before the run starts."""
        super().__init__()
        self.folder = Path(folder)
        self._package = needed(
            "tensorboardX",
            package="tensorboardX",
            extra="tensorboard",
            purpose="TensorBoard",
        )
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        """Open a new file of events."""
        self._writer = self._package.SummaryWriter(
            str(self.folder), purge_step=run.step
        )

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Add its steps, and the metrics at the last step of the epoch."""
        super().on_epoch(run, epoch)
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        """Close the file."""
        if self._writer is not None:
            self.flush()
            self._writer.close()
            self._writer = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add values at a step."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
