"""Values of a run for Weights & Biases, on its server or in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliralike.data.packages import needed
from deliralike.training.callbacks.tracker import TrackedRun
from deliralike.training.run import Run


class WandB(TrackedRun):
    """Log values of steps as ``train/…`` and metrics of epochs as ``validation/…``, over ``step``.

    The values of a step are losses, learning rate and speed. The callback needs the package wandb.
    A resumed run of training goes on in the same run of Weights & Biases; values after the
    checkpoint that were logged before are there twice.

    Args:
        project: The project.
        name: The name of the run; one is made up when not given.
        config: Settings that are shown with the run.
        folder: The folder for wandb's files, ``wandb/…`` in it; the working directory when not
            given.
        mode: ``"online"``, ``"offline"`` (send later by ``wandb sync``), ``"disabled"``; that of
            the environment variable WANDB_MODE when not given.
        options: What else ``wandb.init`` takes: ``entity``, ``group``, ``tags``.

    Raises:
        DataUnavailable: The package is not installed.
    """

    def __init__(
        self,
        project: str,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> None:
        """Import the package; nothing is written before the run starts."""
        super().__init__()
        self._package = needed(
            "wandb", package="wandb", extra="wandb", purpose="Weights & Biases"
        )
        self.options = {"project": project, "name": name, "mode": mode, **options}
        self.options["config"] = dict(config or {})
        self.options["dir"] = None if folder is None else str(folder)
        self._run: Any = None
        self.reset()

    def reset(self) -> None:
        """Begin another run, or go on with that of the options."""
        self.id = self.options.get("id")

    def on_start(self, run: Run) -> None:
        """Begin a run of Weights & Biases, or go on with that of the checkpoint."""
        again = {} if self.id is None else {"id": self.id, "resume": "allow"}
        self._run = self._package.init(**self.options | again)
        self._run.define_metric("*", step_metric="step")
        self.id = self._run.id

    def on_end(self, run: Run) -> None:
        """Finish the run; it has failed if it came to no end."""
        if self._run is not None:
            self.flush()
            self._run.finish(exit_code=0 if run.is_complete else 1)
            self._run = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values at a step."""
        self._run.log({"step": step, **values})
