"""``deliralike train`` from settings, going on, folds, and ``deliralike runs``."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from deliralike.training.experiment import (
    Settings,
    Status,
    load_result,
    read_settings,
    read_status,
)
from deliralike.training.experiment.folder import read_history, write_status
from tests.cli.test_commands import ROOT, run, wrongly_refused

SETTINGS = """
network = "mlp"
batch_size = 300
epochs = 2
seed = 3

[network_settings]
hidden = [5]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a file of settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


def test_settings_are_printed_as_a_file_that_can_be_trained_from(place):
    printed = run(
        "settings",
        "mlp",
        "--set",
        "optimizer.lr=0.25",
        "--set",
        "hidden=(5,)",
        "--set",
        "epochs=1",
    ).stdout
    (place / "own.toml").write_text(printed)
    wanted = Settings(
        network="mlp",
        network_settings={"hidden": [5]},
        optimizer_settings={"lr": 0.25},
        epochs=1,
    )
    assert read_settings(place / "own.toml") == wanted
    assert "# Samples in each batch.\nbatch_size = 32\n" in printed
    run("train", "own.toml", "--batch-size", 719, "--out", "run")
    assert load_result("run").settings.optimizer_settings["lr"] == 0.25


def test_how_a_table_was_understood_is_said_before_training(place):
    lines = ["a,b,label,Split"]
    for number in range(30):
        part = "val" if number % 5 == 0 else "train"
        lines.append(f"{number % 3},{number / 30},{(3, 7, 10, '')[number % 4]},{part}")
    (place / "t.csv").write_text("\n".join(lines))
    printed = run(
        "train", "settings.toml", "--data", "t.csv", "--epochs", 1, "--out", "run"
    ).stdout
    assert " ".join(printed.split()).startswith(
        "data 't.csv', classification, 3 classes '3', '7', '10': 18 samples to train on and 5 held "
        "out, of shape (2,); labels of column 'label'; 7 rows without a label left out; split by "
        "column 'Split', 'train' and 'val'"
    )


def test_a_measured_quantity_trains_no_classifier(place):
    lines = ["a,target", *(f"{number},{number * number}" for number in range(60))]
    (place / "t.csv").write_text("\n".join(lines))
    result = run("train", "settings.toml", "--data", "t.csv", code=2)
    assert "has 60 different labels in 60 samples" in " ".join(result.output.split())


def test_options_come_before_the_file(place):
    options = [
        "--backend",
        "chainer",
        "--epochs",
        1,
        "--lr",
        0.125,
        "--set",
        "clip_norm=2",
        "--set",
        "dropout=0.5",
    ]
    run(
        "train",
        "settings.toml",
        *options,
        "--set",
        "drop_last=true",
        "--device",
        "@numpy",
        "--out",
        "run",
    )
    settings = load_result("run").settings
    assert (settings.backend, settings.epochs, settings.optimizer_settings["lr"]) == (
        "chainer",
        1,
        0.125,
    )
    assert (settings.clip_norm, settings.drop_last, settings.seed) == (2.0, True, 3)
    assert settings.network_settings["dropout"] == 0.5
    assert settings.network_settings["hidden"] == (5,)


def test_ctrl_c_says_how_to_go_on(place):
    command = [
        sys.executable,
        "-m",
        "deliralike",
        "train",
        "settings.toml",
        "--out",
        "run",
    ]
    command += [
        "--epochs",
        "100000",
    ]  # longer than this process may have to wait for its turn
    environment = {**os.environ, "PYTHONPATH": ROOT}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    while not (place / "run" / "metrics.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (
        130,
        "deliralike: stopped; to go on: deliralike train --resume run\n",
    )
    assert read_status(place / "run").status == "interrupted"
    assert "interrupted" in run("runs", ".").stdout
    epochs = len(read_history(place / "run").epochs) + 2
    assert (
        "going on in run" in run("train", "--resume", "run", "--epochs", epochs).stdout
    )


def test_a_run_goes_on_with_more_epochs_on_another_backend(place):
    run("train", "settings.toml", "--epochs", 1, "--out", "run")
    assert (
        "held-out accuracy"
        in run("train", "--resume", "run", "--epochs", 2, "--backend", "chainer").stdout
    )
    result = load_result("run")
    assert (result.settings.backend, len(result.history.epochs)) == ("chainer", 2)
    backends = [
        entry["backend"].split()[0]
        for entry in json.loads((place / "run" / "environment.json").read_text())
    ]
    assert backends == ["torch", "chainer"]


# Folds
# -----------------------------------------------------------------------------


def test_folds_end_with_their_means_and_are_not_repeated(place):
    printed = run("train", "settings.toml", "--folds", 3, "--out", "folds").stdout
    means = json.loads((place / "folds" / "summary.json").read_text())["metrics"]
    assert f"{means['accuracy']['mean']:.2%}" in printed
    again = run("train", "--resume", "folds").stdout
    assert again.count("finished already") == 3
    assert again.splitlines()[-3:] == printed.splitlines()[-3:]


def test_a_fold_alone_goes_to_its_place_among_the_others(place):
    run("train", "settings.toml", "--folds", 3, "--set", "fold=2", "--out", "folds")
    assert sorted(os.listdir("folds")) == ["fold-2", "settings.toml"]
    printed = run("train", "settings.toml", "--folds", 3, "--out", "folds").stdout
    assert printed.count("finished already: folds/fold-2") == 1
    assert (
        "359" not in run("predict", "folds/fold-2").stdout
    )  # judged on the fold's own 599 samples
    assert "of 599 held-out samples" in run("predict", "folds/fold-2").stdout


# The list of runs
# -----------------------------------------------------------------------------


#: Tests that share the runs of `several` share a process, so that they are made once.
OF_SEVERAL = pytest.mark.xdist_group("cli-several")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two runs, one that was killed, and one that is damaged."""
    folder = tmp_path_factory.mktemp("several") / "runs"
    for name, epochs in (("a", 1), ("b", 2)):
        run(
            "train",
            "mlp",
            "--set",
            "hidden=(4,)",
            "--batch-size",
            359,
            "--epochs",
            epochs,
            "--out",
            folder / name,
        )
    (folder / "killed").mkdir()
    (folder / "killed" / "settings.toml").write_text(
        (folder / "a" / "settings.toml").read_text()
    )
    write_status(folder / "killed", Status("running", seconds=7384.0))
    (folder / "torn").mkdir()
    (folder / "torn" / "settings.toml").write_text("=")
    return folder


@OF_SEVERAL
def test_runs_are_listed_with_what_tells_them_apart(several):
    lines = [line.split() for line in run("runs", several).stdout.splitlines()]
    rows = {
        line[0]: line
        for line in lines
        if line and line[0] in ("a", "b", "killed", "torn")
    }
    best = load_result(several / "b").history.held_out("accuracy").max()
    assert rows["a"][1:6] == ["mlp", "torch", "digits", "1/1", "accuracy"]
    assert f"{best:.4g}" in rows["b"]
    assert rows["killed"][-3:] == ["2:03", "h", "killed"]
    assert rows["torn"][-1] == "unreadable"


@OF_SEVERAL
def test_a_damaged_run_says_what_is_wrong_with_it(several):
    assert "torn: '" in run("runs", several).stdout
    assert "does not hold settings" in run("runs", several).stdout


@OF_SEVERAL
def test_another_metric_is_compared_by_name(several):
    printed = run("runs", several / "a", "--metric", "loss").stdout
    assert "data digits, metric loss" in printed


# Mistakes
# -----------------------------------------------------------------------------


#: What is wrong with a command, and what is said of it.
MISTAKES = [
    (
        "train",
        "SettingError: give a file of settings or a network to train, or --resume FOLDER",
    ),
    (
        "train mlp --resume x",
        "SettingError: give a file of settings or a network to train, or --resume FOLDER",
    ),
    (
        "train --resume x --out y",
        "SettingError: --resume goes on in the folder of the run: leave --out away",
    ),
    (
        "train --resume x",
        "SettingError: 'x' is not the folder of a run: there is no settings.toml in it",
    ),
    (
        "train nothing.toml",
        "SettingError: there is no file 'nothing.toml': 'deliralike settings' prints one",
    ),
    (
        "train bad.toml",
        "UnknownName: bad.toml: unknown setting 'epoch'. Did you mean 'epochs'?",
    ),
    (
        "train settings.toml --set epochs=0",
        "SettingError: settings.toml: epochs=0 must be a whole number",
    ),
    (
        "train settings.toml --set optimizer.rl=1",
        "optimizer_settings: optimizer 'sgd' has no setting 'rl'",
    ),
    ("train settings.toml --set depth=1", "ArgumentError: mlp has no setting 'depth'"),
    (
        "train settings.toml --set fold=2",
        "SettingError: settings.toml: fold=2 needs folds to be set",
    ),
    (
        "train settings.toml --folds 300",
        "SettingError: folds: 1797 samples in k=300 folds: n_splits=300 cannot be greater",
    ),
    (
        "train settings.toml --backend jaxx",
        "BackendUnavailable: settings.toml: backend: there is no backend 'jaxx'",
    ),
    (
        "settings mlpp",
        "UnknownName: network: the zoo has no 'mlpp'. Did you mean 'mlp'?",
    ),
    (
        "runs nowhere",
        "SettingError: there is no folder 'nowhere': name that of your runs",
    ),
    (
        "runs .",
        "SettingError: there is no run in '.': no folder in it has a settings.toml",
    ),
]


def test_a_mistake_is_one_message_and_exit_code_2(place):
    (place / "bad.toml").write_text('network = "mlp"\nepoch = 1')
    with_settings = [mistake for mistake in MISTAKES if "settings.toml" in mistake[0]]
    others = [mistake for mistake in MISTAKES if mistake not in with_settings]
    assert not (wrong := wrongly_refused(with_settings)), "\n".join(wrong)
    (place / "settings.toml").unlink()  # it would make the folder that of a run
    assert not (wrong := wrongly_refused(others)), "\n".join(wrong)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "epohcs=3",
            "mlp has no setting 'epohcs'. Did you mean that of the run, 'epochs'?",
        ),
        (
            "lr=0.1",
            "mlp has no setting 'lr'. Did you mean that of the run, 'optimizer.lr'?",
        ),
        ("depth=3", "mlp has no setting 'depth'. Known: activation"),
        (
            "num_classes=3",
            "out_features=3 is less than the 10 classes of dataset 'digits'",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_before_there_is_a_folder(
    place, setting, message
):
    assert (
        message in run("train", "mlp", "--set", setting, "--out", "none", code=2).stderr
    )
    assert not (place / "none").exists()


@pytest.mark.parametrize("network", ["lenet", "alexnet"])
def test_a_network_for_larger_pictures_says_what_to_take_instead(place, network):
    said = run("train", network, "--data", "digits", code=2).stderr
    assert "the samples of 'digits' have the shape (1, 8, 8)" in said
    assert "small pictures: resnet8" in said
    assert not (place / "runs").exists()


@OF_SEVERAL
def test_a_finished_run_is_refused_with_what_to_do(several):
    message = run("train", "--resume", several / "a", code=2).stderr
    assert (
        "has finished: there is nothing to go on with. For more: --epochs 6" in message
    )


def test_a_setting_is_changed_on_purpose_and_what_is_refused_changes_nothing(place):
    run("train", "settings.toml", "--epochs", 1, "--out", "run")
    before = {
        path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()
    }
    more = ("train", "--resume", "run", "--epochs", 2, "--set", "clip_norm=0.5")
    assert (
        "or take the change on purpose, accept=['clip_norm'] (--accept clip_norm)"
        in run(*more, code=2).stderr
    )
    run(*more, "--accept", "clipnorm", code=2)
    assert {
        path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()
    } == before
    run(*more, "--accept", "clip_norm")
    assert load_result("run").settings.clip_norm == 0.5
    assert (
        "--accept is for one run"
        in run(
            "train", "settings.toml", "--folds", 2, "--accept", "seed", code=2
        ).stderr
    )


@OF_SEVERAL
def test_a_metric_that_no_run_has_is_named(several):
    assert (
        "UnknownName: no run has a metric 'acuracy'. Did you mean 'accuracy'?"
        in run("runs", several, "--metric", "acuracy", code=2).stderr
    )
