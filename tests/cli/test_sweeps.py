"""``deliralike train --seeds``, and what ``deliralike runs`` makes of the runs."""

import csv
import statistics

import numpy as np
import pytest

from deliralike import data
from tests.cli.test_commands import run

NAMES = [f"{lr}/seed={seed}" for lr in ("0.001", "0.1") for seed in (3, 4)]
SWEEP = (
    "train",
    "mlp",
    "--epochs",
    1,
    "--seed",
    3,
    "--seeds",
    2,
    "--set",
    "hidden=[5]",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two runs with each of two learning rates, and what the last call printed."""
    parent = tmp_path_factory.mktemp("sweep") / "all"
    for lr in ("0.001", "0.1"):
        printed = run(*SWEEP, "--lr", lr, "--out", parent / lr).stdout
    return printed, parent


def table(parent, *options):
    """The table as rows of numbers and texts, by way of a file."""
    path = parent.parent / "table.csv"
    run("runs", parent, "--csv", path, *options)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_seed_is_a_run_with_its_settings(swept):
    printed, parent = swept
    assert sorted(path.name for path in (parent / "0.1").iterdir()) == [
        "seed=3",
        "seed=4",
    ]
    assert "seed 4" in printed
    rows = {row["run"]: row for row in table(parent)}
    assert sorted(rows) == NAMES
    for name in NAMES:
        assert name == f"{rows[name]['optimizer.lr']}/seed={rows[name]['seed']}"


def test_seeds_are_one_line_with_mean_and_deviation(swept):
    printed, parent = swept
    values = [
        float(row["best"]) for row in table(parent) if row["optimizer.lr"] == "0.1"
    ]
    wanted = f"{np.mean(values):.4g} ± {statistics.stdev(values):.2g}"
    for text in (printed, run("runs", parent, "--mean").stdout):
        (line,) = [
            line for line in text.splitlines() if "seed=*" in line and wanted in line
        ]
        assert " 2 " in line


def test_the_best_run_comes_first(swept):
    _, parent = swept
    printed = run("runs", parent, "--sort", "best").stdout
    shown = [line.split()[0] for line in printed.splitlines() if "seed=" in line]
    rows = sorted(table(parent), key=lambda row: -float(row["best"]))
    assert shown == [row["run"] for row in rows]


def test_the_same_call_goes_on_with_what_has_not_finished(swept):
    _, parent = swept
    before = [float(row["time"]) for row in table(parent)]
    printed = run(*SWEEP, "--lr", "0.1", "--out", parent / "0.1").stdout
    assert "writing to" not in printed and "going on" not in printed
    assert [float(row["time"]) for row in table(parent)] == before


def test_a_mistake_is_said_before_there_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", None)
    parent = tmp_path / "never"
    ended = run(*SWEEP, "--set", "epochs=none", "--out", parent, code=2)
    assert "epochs" in ended.stderr and not parent.exists()


def test_an_unknown_column_is_named(swept):
    _, parent = swept
    assert "no column 'lr'" in run("runs", parent, "--sort", "lr", code=2).stderr
