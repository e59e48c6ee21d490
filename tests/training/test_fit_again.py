"""Runs one after another: objects that were in an earlier run begin anew, a trainer goes on."""

import itertools
from unittest.mock import MagicMock

import numpy as np
import pytest

from deliralike import data, training, weights
from deliralike.errors import CheckpointError
from deliralike.optim import rules
from tests.training.small_runs import network, samples, scripted, trainer

CALLBACKS = {
    "Checkpoint": lambda folder: training.Checkpoint(folder / "c", monitor="m"),
    "ReduceLROnPlateau": lambda _: training.ReduceLROnPlateau("m", patience=1),
    "EarlyStopping": lambda _: training.EarlyStopping(
        "m", patience=2, restore_best=True
    ),
    "JsonLines": lambda folder: training.JsonLines(folder / "run.jsonl"),
    "MLflow": lambda _: training.MLflow("e"),
    "ProgressBar": lambda _: training.ProgressBar(),
    "StopOnNaN": lambda _: training.StopOnNaN(),
    "TensorBoard": training.TensorBoard,
    "Freeze": lambda _: training.Freeze("norm.*", end=1),
    "WandB": lambda _: training.WandB("p"),
}
FIGURES = (
    [0.1, 0.5, 0.4],
    [0.9, 0.8, 0.7],
)  # of a first run and a second, the first ones better


@pytest.fixture(autouse=True)
def trackers(monkeypatch):
    """Packages of trackers whose runs are numbered."""
    mlflow, wandb = MagicMock(), MagicMock()
    numbers = map(str, itertools.count())
    mlflow.MlflowClient().create_run.side_effect = lambda *_, **__: MagicMock(
        info=MagicMock(run_id=next(numbers))
    )
    wandb.init.side_effect = lambda **options: MagicMock(
        id=options.get("id") or next(numbers)
    )
    monkeypatch.setitem(__import__("sys").modules, "mlflow", mlflow)
    monkeypatch.setitem(__import__("sys").modules, "wandb", wandb)


def fitted(callback, figures, backend="torch", **options):
    """A trainer after a run whose metric gives these figures, and the run's history."""
    each = trainer(backend, [callback], metrics={"m": scripted(*figures)}, **options)
    try:
        return each, each.fit(samples(), samples(3), epochs=3, batch_size=4)
    except CheckpointError as error:
        return each, error


def outcome(callback, trained, history, folder):
    """The result of a run: what the network, the callback and the files hold, without times."""
    found = {"state": callback.state()}
    if isinstance(callback, training.JsonLines):
        found = {}  # the length of a file with times in it
    found["history"] = (
        repr(history) if isinstance(history, Exception) else len(history.epochs)
    )
    found["weights"] = {
        k: v.tolist() for k, v in trained.network.neutral_state().items()
    }
    for name in ("best", "best_epoch", "waited", "samples"):
        found[name] = getattr(callback, name, None)
    found["files"] = {
        path.name: path.read_bytes().count(b"\n")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".csv", ".jsonl")
    }
    return found


def test_every_callback_is_tried_in_two_runs():
    known = {
        name
        for name in training.__all__
        if isinstance(kind := getattr(training, name), type)
        and issubclass(kind, training.Callback)
    }
    assert known - {"Callback", "Writer"} == set(CALLBACKS)


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_in_a_second_run_does_what_a_fresh_one_does(name, tmp_path):
    outcomes = []
    for folder, is_fresh in ((tmp_path / "a", True), (tmp_path / "a2", False)):
        folder.mkdir()
        callback = CALLBACKS[name](folder)
        fitted(callback, FIGURES[0])
        if is_fresh:
            callback = CALLBACKS[name](folder)
        result = outcome(callback, *fitted(callback, FIGURES[1]), folder)
        outcomes.append(repr(result).replace(str(folder), ""))
    fresh, same = outcomes
    if name in ("MLflow", "WandB"):  # of four runs, each the second of its pair
        fresh, same = fresh.replace("'id': '1'", ""), same.replace("'id': '3'", "")
    assert same == fresh


def test_records_of_an_earlier_run_are_kept_until_the_first_record_of_another(tmp_path):
    log = training.JsonLines(tmp_path / "run.jsonl")
    trainer("torch", [log, training.Checkpoint(tmp_path / "c")]).fit(samples())
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    with pytest.raises(CheckpointError, match="holds checkpoints already"):
        trainer("torch", [log, training.Checkpoint(tmp_path / "c")]).fit(samples())
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == before


def test_records_are_those_of_the_last_run(tmp_path):
    folders = tmp_path / "once", tmp_path / "twice"
    for runs, folder in enumerate(folders, 1):
        for _ in range(runs):
            trainer("torch", [CALLBACKS["JsonLines"](folder)]).fit(
                samples(), samples(3)
            )
    once, twice = (
        {p.name: p.read_text().count("\n") for p in f.iterdir()} for f in folders
    )
    assert once == twice


def test_an_average_that_was_in_another_trainer_begins_with_the_weights_of_the_second_run():
    net = network("torch")
    start = net.neutral_state()
    average = training.WeightAverage(net, 0.9)
    results = []
    for _ in range(2):
        net.load_neutral_state(start)
        each = training.Trainer(net, rules.rule("sgd", lr=0.1), average=average)
        each.fit(samples(), epochs=2)
        results.append(each.evaluate(samples(3))["loss"])
    assert results[0] == results[1]


# A second fit of one trainer ----------------------------------------------------------------------


def draws(sample, generator):
    """A transform that adds noise."""
    return sample[0] + generator.normal(size=3), sample[1]


@pytest.mark.parametrize("epochs", [(1, 1, 1), (2, 1)])
def test_fits_one_after_another_are_one_long_fit(backend, epochs, tmp_path):
    def make(folder):
        plateau = training.ReduceLROnPlateau(factor=0.5, patience=1, min_delta=0.5)
        stopping = training.EarlyStopping(patience=9)
        log = training.JsonLines(folder / "run.jsonl")
        kept = training.Checkpoint(folder / "c", keep=None)
        return trainer(backend.name, [log, kept, stopping, plateau], average=0.5)

    loader = data.Loader(samples(), 4, transform=draws)
    whole, parts = make(tmp_path / "whole"), make(tmp_path / "parts")
    history = whole.fit(loader, samples(3), epochs=3)
    steps, figures = [], []
    for count in epochs:
        part = parts.fit(loader, samples(3), epochs=count)
        steps += part.steps
        figures += part.epochs
    assert [(s.step, s.epoch, s.loss, s.lr) for s in steps] == [
        (s.step, s.epoch, s.loss, s.lr) for s in history.steps
    ]
    assert [e.held_out for e in figures] == [e.held_out for e in history.epochs]
    lines = [(tmp_path / each / "run.jsonl").read_text() for each in ("whole", "parts")]
    assert lines[0].count("\n") == lines[1].count("\n")
    names = [p.name for p in training.Checkpoints.all(tmp_path / "parts" / "c")]
    assert names == ["step-00000002", "step-00000004", "step-00000006"]


def test_a_second_fit_after_an_early_end_trains():
    stopping = training.EarlyStopping("m", patience=1)
    each = trainer("torch", [stopping], metrics={"m": scripted(0.1, 0.2, 0.3, 0.4)})
    first = each.fit(samples(), samples(3), epochs=5)
    second = each.fit(samples(), samples(3), epochs=5)
    assert [e.epoch for e in first.epochs] == [0, 1]
    assert [e.epoch for e in second.epochs] == [2, 3]


def test_a_generator_of_batches_is_read_in_a_second_fit():
    each = trainer("torch")
    for epoch in range(2):
        steps = each.fit(iter([(np.ones((2, 3)), np.array([0, 1]))])).steps
        assert [step.epoch for step in steps] == [epoch]


def test_a_checkpoint_of_a_second_fit_is_resumed_as_one_of_a_long_run(tmp_path):
    each = trainer("torch", [training.Checkpoint(tmp_path)], schedule="cosine")
    each.fit(samples(), epochs=1, batch_size=4)
    losses = each.fit(samples(), epochs=2, batch_size=4).losses
    resumed = trainer("torch", schedule="cosine")
    path = tmp_path / "step-00000004"
    assert resumed.fit(
        samples(), epochs=3, batch_size=4, resume=path
    ).losses.tolist() == (losses[2:].tolist())


# Averaged weights ---------------------------------------------------------------------------------


def test_the_best_weights_of_an_average_are_those_that_are_evaluated_afterwards(
    backend,
):
    stopping = training.EarlyStopping("loss", patience=2, restore_best=True)
    each = training.Trainer(
        network(backend.name),
        rules.rule("sgd", lr=5.0),
        metrics=["loss"],
        callbacks=[stopping],
        average=0.9,
    )
    history = each.fit(samples(), samples(5), epochs=8, batch_size=4)
    assert stopping.best_epoch != history.epochs[-1].epoch
    best = min(history.held_out("loss"))
    assert each.evaluate(samples(5))["loss"] == pytest.approx(best, rel=1e-12)
    assert training.evaluate(each.network, samples(5))["loss"] == pytest.approx(
        best, rel=1e-12
    )


def test_the_best_checkpoint_has_the_weights_that_were_the_best(backend, tmp_path):
    checkpoint = training.Checkpoint(tmp_path, monitor="loss")
    each = training.Trainer(
        network(backend.name),
        rules.rule("sgd", lr=5.0),
        metrics=["loss"],
        callbacks=[checkpoint],
        average=0.9,
    )
    each.fit(samples(), samples(5), epochs=4, batch_size=4)
    fresh = network(backend.name)
    fresh.load_neutral_state(
        weights.read(training.Checkpoints.best(tmp_path) / "network.safetensors")
    )
    loss = training.evaluate(fresh, samples(5))["loss"]
    assert loss == pytest.approx(checkpoint.best, rel=1e-12)
