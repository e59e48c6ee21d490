"""Weights & Biases and MLflow: what they are given, read back from their own files.

The packages are not in the environment of the tests; in one of your own that has the extras wandb
and mlflow all of them run.
"""

import json
import struct
import time

import numpy as np
import pytest

from deliralike.errors import DataUnavailable, SettingError
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
    with pytest.raises(SettingError, match="mlflow needs 'experiment'"):
        Settings(data="digits", network="mlp", mlflow={"name": "first"})


# Weights & Biases
# -----------------------------------------------------------------------------


def records(path):
    """The records of an offline run: blocks of 32 KiB of parts with checksum, length and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, part, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        part += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last
            found.append(Record.FromString(part))
            part = b""
    return found


def history(folder):
    """What was logged in each of the offline runs of a folder: rows of values by name."""
    rows = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records(path):
            if record.HasField("history"):
                items = record.history.item
                row = {(*i.nested_key, i.key)[-1 if i.key else 0]: i.value_json for i in items}
                rows.append({name: json.loads(value) for name, value in row.items()})
    return rows


def exits(folder):
    """The exit codes of the offline runs, which a process of wandb's writes last."""
    end = time.monotonic() + 60
    found = []
    while not found and time.monotonic() < end:
        for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
            found += [each.exit.exit_code for each in records(path) if each.HasField("exit")]
        time.sleep(0.05)
    return found


@pytest.fixture
def wandb(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    return pytest.importorskip("wandb", reason="pip install 'deliralike[wandb]'")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wandb_has_losses_rates_and_metrics(tmp_path, wandb):
    logger = WandB("p", folder=tmp_path, mode="offline", config={"lr": 0.1}, tags=["tried"])
    each = trainer("torch", [logger], metrics=["accuracy"])
    run = each.fit(samples(), samples(3), epochs=2, batch_size=4)
    assert exits(tmp_path) == [0]
    rows = history(tmp_path)
    steps = [row for row in rows if "train/loss" in row]
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    np.testing.assert_allclose([row["train/loss"] for row in steps], run.losses, rtol=1e-6)
    assert [row["train/lr"] for row in steps] == pytest.approx([0.1] * 4)
    epochs = [row for row in rows if "validation/accuracy" in row]
    assert [row["step"] for row in epochs] == [1, 3]
    found = [row["validation/accuracy"] for row in epochs]
    assert found == pytest.approx(run.held_out("accuracy").tolist())
    assert wandb.run is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wandb_marks_a_run_that_fails_and_goes_on_in_the_run_of_a_checkpoint(tmp_path, wandb):
    logger = WandB("p", folder=tmp_path, mode="offline")
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer("torch", [logger, Do("on_epoch", fail)]).fit(samples(), samples(3), epochs=2)
    assert exits(tmp_path) == [1]
    again = WandB("p", folder=tmp_path, mode="offline")
    again.load_state(logger.state())
    trainer("torch", [again]).fit(samples(), batch_size=4)
    assert again.id == logger.id
    assert all(logger.id in str(path) for path in tmp_path.glob("wandb/offline-run-*/*.wandb"))


# MLflow
# -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """An empty database, of which making the tables takes most of the time."""
    pytest.importorskip("mlflow", reason="pip install 'deliralike[mlflow]'")
    pytest.importorskip("sqlalchemy", reason="pip install 'deliralike[mlflow]'")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/runs.db"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_has_losses_rates_metrics_and_settings(database):
    from mlflow import active_run
    from mlflow.tracking import MlflowClient

    logger = MLflow("cells", tracking_uri=database, name="first", params={"lr": 0.1})
    each = trainer("torch", [logger], metrics=["accuracy"])
    run = each.fit(samples(), samples(3), epochs=2, batch_size=4)
    client = MlflowClient(tracking_uri=database)
    logged = client.get_metric_history(logger.id, "train/loss")
    assert [metric.step for metric in logged] == [0, 1, 2, 3]
    np.testing.assert_allclose([metric.value for metric in logged], run.losses, rtol=1e-6)
    accuracy = client.get_metric_history(logger.id, "validation/accuracy")
    assert [metric.step for metric in accuracy] == [1, 3]
    assert [each.value for each in accuracy] == pytest.approx(run.held_out("accuracy").tolist())
    found = client.get_run(logger.id)
    assert (found.info.status, found.info.run_name) == ("FINISHED", "first")
    assert found.data.params == {"lr": "0.1"}
    assert found.data.metrics["train/lr"] == pytest.approx(0.1)
    assert active_run() is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_marks_a_run_that_fails_and_goes_on_in_the_run_of_a_checkpoint(database):
    from mlflow.tracking import MlflowClient

    logger = MLflow("cells", tracking_uri=database)
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer("torch", [logger, Do("on_epoch", fail)]).fit(samples(), samples(3), epochs=2)
    client = MlflowClient(tracking_uri=database)
    assert client.get_run(logger.id).info.status == "FAILED"
    again = MLflow("cells", tracking_uri=database)
    again.load_state(logger.state())
    trainer("torch", [again]).fit(samples(), batch_size=4)
    assert again.id == logger.id
    assert client.get_run(logger.id).info.status == "FINISHED"
