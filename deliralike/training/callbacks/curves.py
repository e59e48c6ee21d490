"""The curves of a run as a picture that is drawn anew while it goes on."""

from __future__ import annotations

import importlib
from pathlib import Path

from deliralike.errors import SettingError
from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch
from deliralike.training.run import Run


class Curves(Writer):
    """Draw loss, every metric on validation data and the learning rate into one picture, after epochs and at the end.

    The picture is written aside and renamed, so that a viewer never sees half of one.

    Args:
        path: The ending chooses the format: ``.png``, ``.svg``, ``.pdf``.
        every_epochs: After how many epochs it is drawn anew.
        title: Stands above it.

    Raises:
        SettingError: `every_epochs` is below one.
    """

    def __init__(self, path: str | Path, every_epochs: int = 1, *, title: str = "") -> None:
        """Nothing is drawn yet."""
        if every_epochs < 1:
            raise SettingError(f"every_epochs={every_epochs!r} must be at least 1")
        self.path, self.every_epochs, self.title = Path(path), every_epochs, title

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Draw, if it is time."""
        if run.epoch % self.every_epochs == 0:
            self.draw(run)

    def on_end(self, run: Run) -> None:
        """Draw what there is."""
        if run.history.steps:
            self.draw(run)

    def draw(self, run: Run) -> None:
        """Draw what the run has recorded."""
        draw_curves = importlib.import_module(
            "deliralike.training.curves"
        ).draw_curves  # loads matplotlib
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".new-{self.path.name}")
        draw_curves({"this run": run.history}, aside, self.title).replace(self.path)
