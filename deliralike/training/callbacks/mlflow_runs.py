"""Values of a run for MLflow, on a tracking server or in a database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from deliralike.data.packages import needed
from deliralike.training.callbacks.later import Later
from deliralike.training.callbacks.tensorboard import scalars
from deliralike.training.callbacks.writer import Writer
from deliralike.training.fields import TEXT, refuse_wrong_fields
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class MLflow(Writer):
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
        needed("mlflow", package="mlflow", extra="mlflow", purpose="MLflow")
        self._tracking = needed(
            "mlflow.tracking", package="mlflow", extra="mlflow", purpose="MLflow"
        )
        self._entities = needed(
            "mlflow.entities", package="mlflow", extra="mlflow", purpose="MLflow"
        )
        self.experiment = experiment
        self.tracking_uri = tracking_uri
        self.name = name
        self.params = dict(params or {})
        self.id: str | None = None
        self._client: Any = None
        self._steps = Later(self._add)

    def on_start(self, run: Run) -> None:
        """Begin a run of MLflow, or go on with that of the checkpoint."""
        self._client = self._tracking.MlflowClient(tracking_uri=self.tracking_uri)
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

    def on_step(self, run: Run, step: Step) -> None:
        """Take a step."""
        self._steps.add(step)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Log its steps, and the metrics at the last step of the epoch."""
        self._steps.flush()
        values = {f"validation/{name}": value for name, value in epoch.held_out.items()}
        self._log(values.items(), epoch.steps - 1)

    def on_end(self, run: Run) -> None:
        """Finish the run; it has failed if it came to no end."""
        if self._client is not None:
            self._steps.flush()
            status = "KILLED" if run.interrupted else "FAILED"
            if run.is_complete:
                status = "FINISHED"
            self._client.set_terminated(self.id, status)
            self._client = None

    def state(self) -> dict[str, Any]:
        """Return the id of the run, to go on with it."""
        return {"id": self.id or ""}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the id of a run."""
        refuse_wrong_fields("state of MLflow", state, {"id": TEXT})
        self.id = state["id"] or None

    def _add(self, step: Step) -> None:
        values = {f"train/{tag}": value for tag, value in scalars(step).items()}
        self._log(values.items(), step.step)

    def _log(self, values: Iterable[tuple[str, float]], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(name, value, now, step) for name, value in values]
        if metrics:
            self._client.log_batch(self.id, metrics=metrics)
