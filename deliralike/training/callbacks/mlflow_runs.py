"""Values of a run for MLflow, on a tracking server or in a database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deliralike.data.packages import needed
from deliralike.training.callbacks.tracker import TrackedRun
from deliralike.training.run import Run


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
