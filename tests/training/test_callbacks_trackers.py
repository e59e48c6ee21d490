"""Weights & Biases and MLflow: what they are given, by packages that write down their calls."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from deliralike.errors import DataUnavailable
from deliralike.training import MLflow, WandB
from deliralike.training.experiment import Settings
from tests.training.small_runs import Do, fail, samples, trainer


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    for name, make in (("wandb", lambda: WandB("p")), ("mlflow", lambda: MLflow("e"))):
        monkeypatch.setitem(__import__("sys").modules, name, None)
        message = f"needs the package '{name}'.*deliralike.{name}"
        with pytest.raises(DataUnavailable, match=message):
            make()


def test_settings_name_the_trackers():
    settings = Settings(data="digits", network="mlp", wandb={"project": "cells"})
    assert settings.wandb == {"project": "cells"}


class OfWandb:
    """Weights & Biases: runs have the id that they are given, or "new"."""

    make = staticmethod(
        lambda: WandB("p", mode="offline", config={"lr": 0.1}, tags=["tried"])
    )
    ends = (0, 1)

    def __init__(self):
        self.package = MagicMock()
        self.package.init.side_effect = self.begin
        self.options, self.logged, self.status = [], [], None

    def begin(self, **options):
        self.options.append(options)
        return SimpleNamespace(
            id=options.get("id", "new"),
            define_metric=lambda name, step_metric: None,
            log=lambda row: self.logged.append((row.pop("step"), row)),
            finish=lambda exit_code: setattr(self, "status", exit_code),
        )

    def settings(self):
        return self.options[0]["config"]


class OfMlflow:
    """A client of MLflow, whose runs are called "new"."""

    make = staticmethod(lambda: MLflow("cells", name="first", params={"lr": 0.1}))
    ends = ("FINISHED", "FAILED")

    def __init__(self):
        self.package = MagicMock()
        self.package.entities.Metric = lambda *metric: metric
        client = self.package.MlflowClient.return_value
        client.create_run.return_value.info.run_id = "new"
        client.set_terminated.side_effect = lambda _, status: setattr(
            self, "status", status
        )
        client.update_run.side_effect = lambda name, status: self.options.append(status)
        client.log_batch.side_effect = self.log
        self.client, self.options, self.logged, self.status = client, [], [], None

    def log(self, name, metrics):
        assert name == "new"
        self.logged.append(
            (metrics[0][3], {metric: value for metric, value, *_ in metrics})
        )

    def settings(self):
        return {
            name: value
            for _, name, value in (c.args for c in self.client.log_param.mock_calls)
        }


@pytest.fixture(params=[OfWandb, OfMlflow])
def service(request, monkeypatch):
    fake = request.param()
    monkeypatch.setitem(
        __import__("sys").modules, request.param.__name__[2:].lower(), fake.package
    )
    return fake


def test_a_tracker_has_losses_rates_metrics_and_settings(service):
    run = trainer("torch", [service.make()], metrics=["accuracy"]).fit(
        samples(), samples(3), epochs=2, batch_size=4
    )
    steps = [(step, row) for step, row in service.logged if "train/loss" in row]
    assert [(step, row["train/loss"]) for step, row in steps] == list(
        enumerate(run.losses)
    )
    assert [row["train/lr"] for _, row in steps] == [0.1] * 4
    epochs = [
        (step, row["validation/accuracy"])
        for step, row in service.logged
        if len(row) < 3
    ]
    assert epochs == list(zip((1, 3), run.held_out("accuracy"), strict=True))
    assert (service.settings(), service.status) == ({"lr": 0.1}, service.ends[0])


def test_a_tracker_marks_a_run_that_fails_and_goes_on_in_the_run_of_a_checkpoint(
    service,
):
    first, again = service.make(), service.make()
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer("torch", [first, Do("on_epoch", fail)]).fit(
            samples(), samples(3), epochs=2
        )
    assert service.status == service.ends[1]
    again.load_state(first.state())
    again.on_start(None)
    assert again.id == first.id == "new"
    resumed = service.options[-1]
    if service.ends[0]:
        assert resumed == "RUNNING"
    else:
        assert (resumed["id"], resumed["resume"]) == ("new", "allow")
