"""A run is a folder: what it holds, how it goes on, and the folds of a cross-validation."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file
from scipy import stats
from sklearn.model_selection import StratifiedKFold

from deliralike import data
from deliralike.errors import CheckpointError, DataUnavailable, SettingError
from deliralike.training import Callback, predict
from deliralike.training.checkpoint import folder_of_run
from deliralike.training.experiment import (
    Experiment,
    Interval,
    Settings,
    Status,
    load_result,
    load_run,
    read_history,
    read_settings,
    read_status,
)
from deliralike.training.experiment.building import complete, fold_of
from deliralike.training.experiment.compare import higher_is_better, read_runs
from deliralike.training.experiment.folder import (
    lock_folder,
    track_status,
    write_status,
)
from deliralike.training.experiment.record import code_version
from deliralike.training.metrics import Accuracy
from tests.training.experiments import StopAt

pytestmark = pytest.mark.usefixtures("drawn")

# 1438 samples in batches of 300 are 5 steps an epoch, the last of them on 238 samples.
SETTINGS = Settings(
    network="mlp",
    network_settings={"hidden": [7], "dropout": 0.2},
    batch_size=300,
    epochs=3,
    seed=4,
    schedule="cosine",
    average=0.5,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that came to its end; tests only read it."""
    return Experiment(SETTINGS).run(tmp_path_factory.mktemp("runs") / "whole")


def interrupted(folder, step, error=KeyboardInterrupt, **changes):
    with pytest.raises(error):
        Experiment(SETTINGS, **changes).run(folder, callbacks=[StopAt(step, error)])
    return folder


def same_run(found, wanted):
    """Whether two runs recorded and left the same, bit for bit."""
    weights, other = (
        load_file(result.folder / "weights.safetensors") for result in (found, wanted)
    )
    assert found.history.losses.tolist() == wanted.history.losses.tolist()
    assert [each.held_out for each in found.history.epochs] == [
        each.held_out for each in wanted.history.epochs
    ]
    assert found.metrics == wanted.metrics
    assert all((other[name] == value).all() for name, value in weights.items())
    return True


# The folder
# -----------------------------------------------------------------------------


def test_the_folder_says_everything_about_the_run(finished):
    assert {path.name for path in finished.folder.iterdir()} == {
        "checkpoints",
        "code.json",
        "curves.png",
        "environment.json",
        "epochs.csv",
        "metrics.jsonl",
        "settings.toml",
        "status.json",
        "steps.csv",
        "weights.safetensors",
    }
    (environment,) = json.loads((finished.folder / "environment.json").read_text())
    assert (environment["numpy"], environment["device"], environment["seed"]) == (
        np.__version__,
        "cpu",
        4,
    )
    assert {
        "backend",
        "devices",
        "precision",
        "python",
        "system",
        "threads",
    } < environment.keys()


def test_the_settings_of_a_run_are_complete(finished):
    settings = read_settings(finished.folder / "settings.toml")
    assert settings == finished.settings
    assert settings.network_settings == {
        "in_features": 64,
        "out_features": 10,
        "hidden": (7,),
        "dropout": 0.2,
    }
    assert settings.optimizer_settings == {
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "nesterov": False,
        "dampening": 0.0,
    }
    assert settings.schedule_settings == {"steps": 15}
    assert settings.metrics == ({"name": "accuracy"}, {"name": "loss"})


def test_the_averaged_weights_are_those_that_are_kept_and_judged(finished):
    network, _, dataset = load_run(finished.folder)
    (scores,) = predict(network, dataset.held_out.inputs)
    assert Accuracy()(scores, dataset.held_out.labels) == finished.metrics["accuracy"]
    checkpoint = finished.folder / "checkpoints" / "step-00000015"
    averaged, own = (
        load_file(checkpoint / f"{n}.safetensors") for n in ("network", "unaveraged")
    )
    state = network.neutral_state()
    assert all((averaged[name] == value).all() for name, value in state.items())
    assert not all((own[name] == value).all() for name, value in state.items())


def test_the_network_of_a_result_is_read_when_it_is_not_in_memory(finished):
    again = load_result(finished.folder)
    assert again.network is again.network
    assert again.network is not finished.network
    assert (again.metrics, again.settings, again.stopped) == (
        finished.metrics,
        finished.settings,
        "",
    )


@pytest.mark.parametrize("status", [None, "failed", "interrupted"])
def test_a_run_that_has_not_finished_has_no_result(status, finished, tmp_path):
    """Its metrics would be those of an earlier epoch, or none."""
    for name in ("settings.toml", "steps.csv", "epochs.csv"):
        shutil.copy(finished.folder / name, tmp_path)
    if status is not None:
        write_status(tmp_path, Status(status, metrics={"accuracy": 0.5}))
    with pytest.raises(SettingError, match="has not finished: resume it"):
        load_result(tmp_path)


def test_a_run_never_writes_over_another(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")}
    with pytest.raises(SettingError, match="exists already and is left as it is"):
        Experiment(SETTINGS).run(finished.folder)
    assert {
        path: path.stat().st_mtime_ns for path in finished.folder.rglob("*")
    } == before


def test_settings_that_cannot_be_made_leave_no_folder(tmp_path):
    with pytest.raises(
        SettingError,
        match="network 'unet' is for segmentation, dataset 'digits' is for classification",
    ):
        Experiment(SETTINGS, network="unet", network_settings={}).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_code_is_a_commit_that_says_whether_files_were_changed(tmp_path):
    def git(*arguments):
        identity = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "commit.gpgsign=false",
        ]
        subprocess.run(
            ["git", *identity, *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    assert code_version(tmp_path)["commit"] is None
    git("init")
    (tmp_path / "train.py").write_text("1")
    git("add", "train.py")
    git("commit", "-m", "first")
    assert (
        len(code_version(tmp_path)["commit"]),
        code_version(tmp_path)["changed"],
    ) == (40, False)
    (tmp_path / "train.py").write_text("2")
    assert code_version(tmp_path)["changed"] is True


# Status
# -----------------------------------------------------------------------------


def test_the_status_follows_the_run(tmp_path):
    with lock_folder(tmp_path), track_status(tmp_path) as outcome:
        assert read_status(tmp_path).status == "running"
        outcome.reason, outcome.metrics = "enough", {"loss": float("nan")}
    status = read_status(tmp_path)
    assert (status.status, status.reason, np.isnan(status.metrics["loss"])) == (
        "finished",
        "enough",
        True,
    )
    assert 0 <= status.seconds < 600


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KeyboardInterrupt(), "interrupted", "Ctrl-C"),
        (ValueError("too bad"), "failed", "ValueError: too bad"),
    ],
)
def test_the_status_says_how_a_run_ended_early(tmp_path, error, status, reason):
    with pytest.raises(type(error)), lock_folder(tmp_path), track_status(tmp_path):
        raise error
    assert (read_status(tmp_path).status, read_status(tmp_path).reason) == (
        status,
        reason,
    )


def test_a_run_without_a_process_was_killed(tmp_path):
    write_status(tmp_path, Status("running"))
    assert read_status(tmp_path).status == "killed"


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    with lock_folder(tmp_path):
        write_status(tmp_path, Status("running"))
        code = (
            "from pathlib import Path; from deliralike.training.experiment.folder import *\n"
            f"folder = Path({str(tmp_path)!r}); print(read_status(folder).status)\n"
            "with lock_folder(folder): pass"
        )
        other = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
    assert other.stdout == "running\n"
    assert "is going on in another process" in other.stderr


def test_a_run_trains_on_a_disk_without_locks(tmp_path, monkeypatch):
    """As its checkpoints are written there: some network file systems refuse."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_folder(tmp_path), folder_of_run(tmp_path / "checkpoints"):
        pass


# Going on
# -----------------------------------------------------------------------------


def test_a_run_goes_on_bit_for_bit_within_an_epoch(finished, tmp_path, drawn):
    folder = interrupted(tmp_path / "run", 7)
    assert drawn == [folder / "curves.png"]
    assert read_status(folder).status == "interrupted"
    assert len(read_history(folder).steps) == 7
    assert same_run(Experiment(folder).run(folder, resume=True), finished)
    assert len(json.loads((folder / "environment.json").read_text())) == 2
    assert drawn == [folder / "curves.png"] * 2


def test_a_run_that_failed_before_its_first_checkpoint_begins_anew(finished, tmp_path):
    folder = interrupted(tmp_path / "run", 2, error=ZeroDivisionError)
    assert same_run(Experiment(SETTINGS).run(folder, resume=True), finished)


def test_a_finished_run_is_not_repeated(finished):
    before = (finished.folder / "environment.json").read_text()
    assert same_run(Experiment(SETTINGS).run(finished.folder, resume=True), finished)
    assert (finished.folder / "environment.json").read_text() == before


def test_a_finished_run_goes_on_for_more_epochs(finished, tmp_path):
    experiment = Experiment(SETTINGS, schedule_settings={"steps": 15})
    experiment.with_(epochs=1).run(tmp_path / "run")
    assert same_run(experiment.run(tmp_path / "run", resume=True), finished)


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 5), ("batch_size", 20), ("clip_norm", 1.0)]
)
def test_another_run_does_not_go_on_in_the_folder(finished, name, value):
    old = getattr(SETTINGS, name)
    with pytest.raises(
        SettingError,
        match=f"holds a run with {name}={old}, and it cannot go on with {name}={value}",
    ):
        Experiment(SETTINGS, **{name: value}).run(finished.folder, resume=True)


def test_a_plateau_in_the_settings_lowers_the_learning_rate(tmp_path):
    plateau = {"monitor": "loss", "factor": 0.1, "patience": 1, "min_delta": 100}
    experiment = Experiment(SETTINGS, schedule=None, plateau=plateau)
    steps = experiment.run(tmp_path / "run").history.steps
    rates = {step.epoch: step.lr for step in steps}
    assert rates == pytest.approx({0: 0.05, 1: 0.05, 2: 0.005})


def test_early_stopping_ends_a_run_and_is_its_reason(tmp_path):
    stopping = {
        "monitor": "loss",
        "patience": 1,
        "min_delta": 100.0,
        "restore_best": True,
    }
    result = Experiment(SETTINGS, early_stopping=stopping, average=None).run(
        tmp_path / "run"
    )
    assert len(result.history.epochs) == 2
    assert result.stopped == read_status(result.folder).reason != ""
    assert result.metrics == pytest.approx(
        dict(result.history.epochs[0].held_out), rel=1e-12
    )


def test_files_of_tensorboard_are_written_when_asked_for(tmp_path):
    asked = {
        "tensorboard": True,
        "stop_on_nan": 1,
        "epochs": 4,
        "batch_size": 719,
    }
    result = Experiment(SETTINGS, **asked).run(tmp_path / "run")
    assert os.listdir(result.folder / "tensorboard")


# Data and code of one's own
# -----------------------------------------------------------------------------


def dataset(count=40):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(count, 2, 5, 3)).astype(np.float32)
    samples = data.Samples(inputs, (inputs.mean(axis=(1, 2, 3)) > 0).astype(np.int64))
    return data.Dataset(
        "own", samples.take(slice(30)), samples.take(slice(30, None)), ("low", "high")
    )


def test_an_experiment_takes_data_losses_and_callbacks_of_ones_own(backend, tmp_path):
    made = []

    def callbacks():
        made.append(Callback())
        return made[-1:]

    def loss(prediction, target):
        return backend.nn.cross_entropy(prediction, target)

    experiment = Experiment(
        {"network": "mlp", "epochs": 1, "backend": backend.name},
        dataset=dataset(),
        losses={"first": loss, "second": loss},
        callbacks=callbacks,
    )
    result = experiment.run(tmp_path / "one")
    assert (
        experiment.with_(seed=1)
        .run(tmp_path / "two")
        .settings.network_settings["in_features"]
        == 30
    )
    assert len(made) == 2
    assert set(result.history.steps[0].losses) == {"loss", "first", "second"}
    (epoch,) = result.history.epochs
    assert epoch.held_out["loss"] == pytest.approx(
        2.0 * epoch.held_out["first"], rel=1e-6
    )


def test_an_experiment_is_made_from_a_file_a_folder_a_mapping_or_settings(
    finished, tmp_path
):
    made = [
        Experiment(finished.folder / "settings.toml"),
        Experiment(str(finished.folder)),
        Experiment(finished.settings),
    ]
    assert [each.settings for each in made] == [finished.settings] * 3
    assert Experiment({"network": "mlp"}, seed=3).settings == Settings(
        network="mlp", seed=3
    )
    with pytest.raises(
        SettingError, match="made from Settings, a file or a mapping, not a int"
    ):
        Experiment(3)


def test_a_network_over_two_devices_trains_as_on_one(tmp_path):
    whole = [
        Experiment(SETTINGS, dtype="float64", epochs=1, devices=devices).run(
            tmp_path / str(len(devices))
        )
        for devices in (["cpu"], ["cpu", "cpu"])
    ]
    assert whole[1].network.parallelism.is_replicated
    assert whole[1].history.losses == pytest.approx(whole[0].history.losses, rel=1e-10)
    assert (
        load_file(whole[1].folder / "weights.safetensors").keys()
        == whole[0].network.neutral_state().keys()
    )


# Folds
# -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossed(tmp_path_factory):
    """Three folds."""
    return Experiment(SETTINGS).folds(3, tmp_path_factory.mktemp("folds") / "all")


def test_folds_are_those_of_scikit_learn():
    whole = data.load("digits")
    labels = np.concatenate([whole.train.labels, whole.held_out.labels])
    found = [
        fold_of(whole, replace(SETTINGS, folds=3, fold=fold)) for fold in (1, 2, 3)
    ]
    wanted = StratifiedKFold(3, shuffle=True, random_state=4).split(labels, labels)
    for part, (train, held_out) in zip(found, wanted, strict=True):
        assert (part.train.labels == labels[train]).all()
        assert (part.held_out.labels == labels[held_out]).all()


def test_a_fold_alone_is_the_same_as_in_the_row(crossed, tmp_path):
    alone = Experiment(SETTINGS).with_(folds=3, fold=2).run(tmp_path / "alone")
    assert same_run(alone, crossed.runs[1])


def test_the_summary_is_students_interval_over_the_folds(crossed):
    values = [run.metrics["accuracy"] for run in crossed.runs]
    found = crossed.metrics["accuracy"]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx(
        (np.mean(values), low, high), rel=1e-12
    )
    written = json.loads((crossed.folder / "summary.json").read_text())
    assert written["metrics"]["accuracy"]["values"] == values
    assert str(Interval.of([0.25])) == "0.25 [nan, nan]"


def test_folds_of_one_figure_have_an_interval_of_no_width():
    assert str(Interval.of([1.0, 1.0, 1.0])) == "1 [1, 1]"


def test_finished_folds_are_not_repeated_and_an_unfinished_one_goes_on(
    crossed, tmp_path
):
    calls = []

    def callbacks():
        calls.append(len(calls))
        return [StopAt(7)] if len(calls) == 2 else []

    experiment = Experiment(SETTINGS, folds=3, callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt):
        experiment.folds(folder=tmp_path / "folds")
    assert [
        read_status(path).status for path in sorted((tmp_path / "folds").glob("fold-*"))
    ] == [
        "finished",
        "interrupted",
    ]
    result = experiment.folds(folder=tmp_path / "folds")
    assert all(same_run(*pair) for pair in zip(result.runs, crossed.runs, strict=True))
    assert len(calls) == 4
    assert experiment.folds(folder=tmp_path / "folds").metrics == result.metrics
    assert len(calls) == 4


def test_folds_in_a_folder_with_others_are_refused(crossed):
    with pytest.raises(
        SettingError, match="holds a run with seed=4, and it cannot go on with seed=5"
    ):
        Experiment(SETTINGS, seed=5).folds(3, crossed.folder)
    with pytest.raises(
        SettingError, match="holds a run with folds=3, and it cannot go on with folds=4"
    ):
        Experiment(SETTINGS).folds(4, crossed.folder)
    with pytest.raises(SettingError, match="exists already"):
        Experiment(SETTINGS).folds(3, crossed.folder.parent)


def test_folds_without_a_number_and_a_run_of_all_folds_are_refused(tmp_path):
    with pytest.raises(
        SettingError, match=r"have no folds: give their number, folds=5"
    ):
        Experiment(SETTINGS).folds(folder=tmp_path / "x")
    with pytest.raises(
        SettingError,
        match=r"are of 3 folds: call folds\(\), or choose one of them with fold=1",
    ):
        Experiment(SETTINGS, folds=3).run(tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_folds_for_segmentation_are_runs_of_neighbours():
    inputs = np.arange(9.0, dtype=np.float32).reshape(9, 1, 1, 1)
    samples = data.Samples(inputs, inputs[:, 0].astype(np.int64))
    slices = data.Dataset(
        "slices",
        samples.take(slice(7)),
        samples.take(slice(7, None)),
        ("a", "b"),
        "segmentation",
    )
    parts = [
        fold_of(slices, Settings(network="unet", folds=3, fold=fold))
        for fold in (1, 2, 3)
    ]
    found = [part.held_out.inputs.ravel() for part in parts]
    assert [each.tolist() for each in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


# Beside each other
# -----------------------------------------------------------------------------


def test_runs_are_found_with_their_best_and_last_figures(crossed, finished):
    rows = read_runs(crossed.folder.parent, "loss")
    assert [row.folder.name for row in rows] == ["fold-1", "fold-2", "fold-3"]
    losses = crossed.runs[0].history.held_out("loss")
    assert (rows[0].best, rows[0].last) == (losses.min(), losses[-1])
    (row,) = read_runs(finished.folder)
    assert (row.metric, row.best) == (
        "accuracy",
        finished.history.held_out("accuracy").max(),
    )


def test_a_damaged_run_stands_beside_the_others(tmp_path):
    contents = {
        "a": {"settings.toml": "network =", "status.json": "{}"},
        "b": {"settings.toml": 'network = "mlp"', "status.json": '{"colour": 3}'},
        "c": {"settings.toml": 'network = "mlp"', "status.json": "{}"},
        "d": {"settings.toml": 'network = "mlp"'},
    }
    for name, files in contents.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    rows = read_runs(tmp_path)
    assert [(row.folder.name, row.status, row.problem) for row in rows] == [
        (name, "unreadable", True) for name in contents
    ]
    no_status = "does not hold the status of a run"
    reasons = ("settings.toml", no_status, no_status, "there is no status.json")
    assert all(words in row.reason for words, row in zip(reasons, rows, strict=True))


def test_less_is_better_for_errors_only():
    names = ("accuracy", "dice/mean", "loss", "mse", "hausdorff95", "own")
    assert [name for name in names if higher_is_better(name)] == [
        "accuracy",
        "dice/mean",
        "own",
    ]


def test_segmentation_is_judged_by_the_overlap_of_its_classes():
    samples = data.Samples(
        np.zeros((4, 1, 6, 5), np.float32), np.zeros((4, 6, 5), np.int64)
    )
    masks = data.Dataset(
        "masks", samples, samples, ("background", "cell"), "segmentation"
    )
    settings = complete(Settings(network="unet"), masks)
    assert settings.metrics[0] == {"name": "dice", "classes": ("background", "cell")}
    assert settings.network_settings == {"in_channels": 1, "out_channels": 2, "dims": 2}


# Refused, or gone on with on purpose
# -----------------------------------------------------------------------------

SHORT = Settings(
    network="mlp", network_settings={"hidden": [5]}, batch_size=719, epochs=1
)


def files_in(folder):
    """Every file with its bytes and when it was written."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def twice(network, inputs, labels):
    return 2 * network.nn.cross_entropy(network(inputs), labels)


def test_a_refused_resume_leaves_every_file_of_the_run_as_it_was(tmp_path):
    folder = Experiment(SHORT).run(tmp_path / "run").folder
    before = files_in(folder)
    with pytest.raises(
        CheckpointError,
        match="loss was None, here it is function twice.*accept=\\['loss'\\]",
    ):
        Experiment(SHORT, epochs=2, losses=twice).run(folder, resume=True)
    assert files_in(folder) == before
    (torn,) = (folder / "checkpoints").glob("step-*/network.safetensors")
    torn.write_bytes(torn.read_bytes()[:-1])
    before = files_in(folder)
    with pytest.raises(CheckpointError, match="it was cut short or changed"):
        Experiment(SHORT, epochs=2).run(folder, resume=True)
    assert files_in(folder) == before
    assert read_status(folder).status == "finished"
    assert set(read_status(folder).metrics) == {"accuracy", "loss"}


def test_a_run_goes_on_with_what_is_changed_on_purpose(tmp_path):
    folder = Experiment(SHORT).run(tmp_path / "run").folder
    changed = Experiment(
        SHORT, epochs=2, losses=twice, clip_norm=0.5, transforms=["flip"]
    )
    result = changed.run(
        folder, resume=True, accept=["loss", "clip_norm", "transforms"]
    )
    assert (len(result.history.steps), result.settings.clip_norm) == (4, 0.5)
    again = changed.with_(epochs=3).run(
        folder, resume=True
    )  # the checkpoint is one of the changed run now
    assert len(again.history.steps) == 6


def test_a_run_on_ones_own_data_says_so_and_wants_them_again(tmp_path):
    named = replace(dataset(), name="digits")  # as those that everybody can load
    experiment = Experiment({"network": "mlp", "epochs": 1}, dataset=named)
    folder = experiment.run(tmp_path / "run").folder
    assert 'data = "own:digits"' in (folder / "settings.toml").read_text()
    message = (
        "data: the run was made on data of its own, called 'digits', "
        "which are not kept: give them again"
    )
    for refused in (
        lambda: load_run(folder),
        lambda: Experiment(folder).run(folder, resume=True),
    ):
        with pytest.raises(DataUnavailable, match=message):
            refused()
    network, settings, found = load_run(folder, dataset=named)
    assert (settings.data, len(found.held_out.labels)) == ("own:digits", 10)
    weights = load_result(folder).network.neutral_state()
    assert all(
        (weights[name] == value).all()
        for name, value in network.neutral_state().items()
    )
    assert len(experiment.with_(epochs=2).run(folder, resume=True).history.epochs) == 2


NUMBERS = {"cat": 0.0, "dog": 1.0, "eel": 2.0}  # a class of the run's by its name


def table(path, names):
    """A table in which the input of every sample says its class."""
    rows = [f"{NUMBERS[name]},{name}\n" for name in names]
    path.write_text("".join(["x,label\n", *rows]))
    return str(path)


def archive(path, names):
    inputs = np.array([[NUMBERS[name]] for name in names], np.float32)
    np.savez(path, x=inputs, y=np.array(names))
    return str(path)


def folder_of_pictures(path, names):
    for number, name in enumerate(names):
        (path / name).mkdir(parents=True, exist_ok=True)
        grey = np.full((3 + number % 2, 4), round(100 * NUMBERS[name]), np.uint8)
        Image.fromarray(grey).save(path / name / f"{number}.png")
    return str(path)


KINDS = {
    "other.csv": (table, {}, 1.0),
    "other.npz": (archive, {}, 1.0),
    "other": (folder_of_pictures, {"size": [2, 3], "mode": "L"}, 100 / 255),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_data_of_fewer_classes_have_the_numbers_of_the_runs_classes(
    tmp_path, kind
):
    write, options, step = KINDS[kind]
    first = write(tmp_path / kind.replace("other", "first"), ["cat", "dog", "eel"] * 4)
    settings = {"network": "mlp", "network_settings": {"hidden": [2]}, "epochs": 1}
    folder = (
        Experiment(settings, data=first, data_settings=options)
        .run(tmp_path / "run")
        .folder
    )
    other = write(tmp_path / kind, ["eel", "dog"] * 5)
    _, _, found = load_run(folder, dataset=other)
    assert found.classes == ("cat", "dog", "eel")
    numbers = found.held_out.inputs.reshape(len(found.held_out.labels), -1)[:, 0] / step
    np.testing.assert_allclose(found.held_out.labels, numbers)
    assert set(found.held_out.labels) == {1, 2}


def test_other_data_with_a_class_that_the_run_has_not_are_refused(tmp_path):
    first = table(tmp_path / "first.csv", ["cat", "eel"] * 5)
    settings = {"network": "mlp", "network_settings": {"hidden": [2]}, "epochs": 1}
    folder = Experiment(settings, data=first).run(tmp_path / "run").folder
    other = table(tmp_path / "other.csv", ["cat", "dog"] * 5)
    with pytest.raises(
        SettingError, match="label 'dog', which is none of the 2 classes cat, eel"
    ):
        load_run(folder, dataset=other)
    samples = data.Samples(np.zeros((4, 1), np.float32), np.arange(4) % 2)
    given = data.Dataset("given", samples, samples, ("dog", "eel"))
    with pytest.raises(
        SettingError, match="'given' has the label 'dog', which is none of the 2"
    ):
        load_run(folder, dataset=given)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "seed = 4",
            "seed = 5",
            "holds a run with seed=4, and it cannot go on with seed=5",
        ),
        (
            "[7]",
            "[8]",
            r"network_settings=.*'hidden': \(7,\).* cannot go on with .*\(8,\)",
        ),
    ],
)
def test_a_finished_run_whose_settings_were_edited_gives_no_old_figures(
    finished, tmp_path, old, new, message
):
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    file = folder / "settings.toml"
    file.write_text(file.read_text().replace(old, new))
    assert new in file.read_text()
    with pytest.raises(SettingError, match=message):
        Experiment(folder).run(folder, resume=True)
    assert load_result(folder).settings == finished.settings


def test_folders_are_numbered_when_none_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment(SETTINGS, epochs=1, batch_size=719)
    assert [str(experiment.run().folder) for _ in range(2)] == [
        "runs/mlp-0001",
        "runs/mlp-0002",
    ]


def test_metrics_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(
        SettingError, match=r"metrics.jsonl' cannot be read: Is a directory"
    ):
        read_history(tmp_path)
