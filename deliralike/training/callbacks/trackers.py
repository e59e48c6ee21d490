"""Values of a run for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deliralike.data.packages import needed
from deliralike.network.steps import TOTAL
from deliralike.training.callbacks.callback import StepWriter
from deliralike.training.history import Epoch, Step, rates
from deliralike.training.run import Run


class Tracker(StepWriter):
    """Hand on values of steps as ``train/…`` and metrics of epochs as ``validation/…``.

    The values of a step are losses, learning rates and speed. A subclass calls `flush` before its
    program ends.
    """

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Hand on values by name at a step."""

    def write_step(self, step: Step) -> None:
        """Hand on a step."""
        values = {f"train/{name}": value for name, value in scalars(step).items()}
        self.log(values, step.step)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Hand on its steps, and the metrics at the last step of the epoch."""
        super().on_epoch(run, epoch)
        values = {f"validation/{name}": value for name, value in epoch.held_out.items()}
        if values:
            self.log(values, epoch.steps - 1)


class TrackedRun(Tracker):
    """A tracker whose program has runs by id, so that a resumed run goes on in the same one.

    Attributes:
        id: The id of the run; None before it begins.
    """

    id: str | None = None
    fields = ("id",)

    def reset(self) -> None:
        """Begin another run."""
        self.id = None


def scalars(step: Step) -> dict[str, float]:
    """Return the values of a step by name: losses, learning rates and speed."""
    scalars = {TOTAL: step.loss, **step.losses}
    for tag, lr in rates(step).items():
        if lr is not None:
            scalars[tag] = lr
    seconds = step.seconds + step.data_seconds or 1e-9
    scalars["samples_per_second"] = step.samples / seconds
    return scalars


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
        # in a second values are in the file, also of a program that is killed
        self._writer = self._package.SummaryWriter(
            str(self.folder), purge_step=run.step, flush_secs=1
        )

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


class MLflow(TrackedRun):
    """Log values of steps as ``train/…`` and metrics of epochs as ``validation/…`` to MLflow.

    The values of a step are losses, learning rate and speed. The callback needs the package mlflow
    (mlflow-skinny is enough for a server). MLflow's active run and its global settings
    stay as they are. A resumed run of training goes on in the same run of MLflow; values after the
    checkpoint that were logged before are there twice.

    Args:
        experiment: The name of the experiment, which is made where there is none.
        tracking_uri: Where the runs are kept: ``"http://server:5000"`` or ``"sqlite:///runs.db"``;
            MLflow's own setting when not given. Version 3 of MLflow refuses folders unless its
            variable ``MLFLOW_ALLOW_FILE_STORE`` is ``true``.
        name: The name of the run; one is made up when not given.
        params: Settings that are shown with the run.

    Raises:
        DataUnavailable: The package is not installed.
    """

    def __init__(
        self,
        experiment: str,
        *,
        tracking_uri: str | None = None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Import the package; nothing is written before the run starts."""
        super().__init__()
        self._package = needed(
            "mlflow", package="mlflow", extra="mlflow", purpose="MLflow"
        )
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self.name = name
        self.params = dict(params or {})
        self._client: Any = None

    def on_start(self, run: Run) -> None:
        """Begin a run of MLflow, or go on with that of the checkpoint."""
        self._client = self._package.MlflowClient(tracking_uri=self.tracking_uri)
        if self.id is not None:
            self._client.update_run(self.id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(self.experiment)
        if experiment is None:
            experiment_id = self._client.create_experiment(self.experiment)
        else:
            experiment_id = experiment.experiment_id
        self.id = self._client.create_run(experiment_id, run_name=self.name).info.run_id
        for name, value in self.params.items():
            self._client.log_param(self.id, name, value)

    def on_end(self, run: Run) -> None:
        """Finish the run; it has failed if it came to no end."""
        if self._client is not None:
            self.flush()
            status = "KILLED" if run.interrupted else "FAILED"
            if run.is_complete:
                status = "FINISHED"
            self._client.set_terminated(self.id, status)
            self._client = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values at a step."""
        now = int(1000 * time.time())
        metrics = [
            self._package.entities.Metric(name, value, now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)
