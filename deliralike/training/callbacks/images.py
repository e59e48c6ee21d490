"""Pictures of inputs, targets and predictions, drawn while a run goes on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import data
from deliralike.errors import SettingError, whole_number
from deliralike.network.steps import inputs_and_target
from deliralike.training.callbacks.writer import Writer
from deliralike.training.history import Epoch
from deliralike.training.run import Run

Draw = Callable[[Any, np.ndarray, np.ndarray, np.ndarray], None]


class Images(Writer):
    """Draw samples, targets and predictions after epochs, as ``epoch-0003.png``.

    The predictions are those that validation would evaluate; the network does not change.

    Args:
        folder: The folder of the pictures; it is made if it does not exist.
        samples: Inputs and targets as `evaluate` takes a batch: ``(inputs, targets)``, or
            ``"data"`` and ``"label"``.
        every_epochs: The number of epochs between two pictures.
        draw: A function ``(figure, inputs, targets, outputs)`` of a `matplotlib.figure.Figure` and
            NumPy arrays. When not given: class labels stand above the images; regions of labels are
            outlined; other targets stand beside the predictions. See
            `deliralike.training.callbacks.pictures`.
        dpi: Dots in an inch of the figure.

    Shapes:
        Inputs ``(samples, channels, height, width)`` or
        ``(samples, channels, depth, height, width)``, of which the middle slices are shown.

    Raises:
        SettingError: `every_epochs` is below one, or `draw` cannot be called.
        BatchError: The samples are no such batch; when a picture is drawn: they are no images.
    """

    def __init__(
        self,
        folder: str | Path,
        samples: Any,
        every_epochs: int = 1,
        draw: Draw | None = None,
        *,
        dpi: int = 110,
    ) -> None:
        """Check the settings and the samples."""
        whole_number("every_epochs", every_epochs, 1)
        if draw is not None and not callable(draw):
            raise SettingError(
                f"draw must be a function (figure, inputs, targets, outputs), not {draw!r}"
            )
        inputs, self.targets = inputs_and_target(samples)
        self.inputs = inputs if len(inputs) > 1 else inputs[0]
        data.size((self.inputs, self.targets))
        self.folder = Path(folder)
        self.every_epochs = every_epochs
        self.drawing = draw
        self.dpi = dpi

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Draw a picture, if it is due."""
        if run.epoch % self.every_epochs == 0:
            name = f"epoch-{epoch.epoch + 1:04d}.png"
            self.draw(run, self.folder / name)

    def draw(self, run: Run, path: Path) -> None:
        """Draw a picture of the network's present predictions."""
        # The import loads matplotlib.
        pictures = importlib.import_module("deliralike.training.callbacks.pictures")
        path.parent.mkdir(parents=True, exist_ok=True)
        outputs = np.concatenate(list(run.trainer.predict(self.inputs)))
        shown = self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs
        figure = pictures.new_figure(self.dpi)
        draw = self.drawing or pictures.draw
        draw(figure, np.asarray(shown), np.asarray(self.targets), outputs)
        figure.savefig(path)
