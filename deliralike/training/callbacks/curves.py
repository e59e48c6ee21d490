"""The curves of a run as a picture that is redrawn while the run goes on."""

from __future__ import annotations

import importlib
from pathlib import Path

from deliralike.errors import whole_number
from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch
from deliralike.training.run import Run


class Curves(Writer):
    """Draw loss, validation metrics and learning rate into a picture, after epochs and at the end.

    The picture is written aside and renamed, so that a viewer never sees half of one.

    Args:
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        every_epochs: The number of epochs between two pictures.
        title: The title above the picture.

    Raises:
        SettingError: `every_epochs` is below one.
    """

    def __init__(
        self, path: str | Path, every_epochs: int = 1, *, title: str = ""
    ) -> None:
        """Check the settings; nothing is drawn before the first epoch."""
        whole_number("every_epochs", every_epochs, 1)
        self.path = Path(path)
        self.every_epochs = every_epochs
        self.title = title

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Draw the picture, if it is due."""
        if run.epoch % self.every_epochs == 0:
            self.draw(run)

    def on_end(self, run: Run) -> None:
        """Draw the last picture, if there was a step."""
        if run.history.steps:
            self.draw(run)

    def draw(self, run: Run) -> None:
        """Draw the records of a run."""
        curves = importlib.import_module(
            "deliralike.training.curves"
        )  # loads matplotlib
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".new-{self.path.name}")
        curves.draw_curves({"this run": run.history}, aside, self.title)
        aside.replace(self.path)
