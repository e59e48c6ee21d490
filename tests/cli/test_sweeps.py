"""``deliralike train --seeds --grid``, and what ``deliralike runs`` makes of the runs."""

import csv
import statistics

import numpy as np
import pytest

from deliralike import data
from deliralike.cli.sweeps import combinations
from deliralike.errors import SettingError
from tests.cli.test_commands import run

NAMES = [f"optimizer.lr={lr}_seed={seed}" for lr in ("0.1", "0.001") for seed in (3, 4)]
SWEEP = ("train", "mlp", "--epochs", 1, "--seed", 3, "--seeds", 2)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Four runs of one call, and what it printed."""
    parent = tmp_path_factory.mktemp("sweep") / "all"
    grid = ("--grid", "optimizer.lr=0.1,0.001", "--set", "hidden=[5]")
    return run(*SWEEP, *grid, "--out", parent).stdout, parent


def table(parent, *options):
    """The table as rows of numbers and texts, by way of a file."""
    path = parent.parent / "table.csv"
    run("runs", parent, "--csv", path, *options)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_combination_is_a_run_with_its_settings(swept):
    printed, parent = swept
    assert sorted(path.name for path in parent.iterdir()) == sorted(NAMES)
    assert f"run 4 of 4: {NAMES[3]}" in printed
    rows = {row["run"]: row for row in table(parent)}
    for name in NAMES:
        assert (
            name
            == f"optimizer.lr={rows[name]['optimizer.lr']}_seed={rows[name]['seed']}"
        )


def test_seeds_are_one_line_with_mean_and_deviation(swept):
    printed, parent = swept
    values = [
        float(row["best"]) for row in table(parent) if row["optimizer.lr"] == "0.1"
    ]
    wanted = f"{np.mean(values):.4g} ± {statistics.stdev(values):.2g}"
    for text in (printed, run("runs", parent, "--mean").stdout):
        (line,) = [line for line in text.splitlines() if "lr=0.1_seed=*" in line]
        assert wanted in line and " 2 " in line


def test_the_best_run_comes_first(swept):
    _, parent = swept
    printed = run("runs", parent, "--sort", "best").stdout
    shown = [line.split()[0] for line in printed.splitlines() if "seed=" in line]
    rows = sorted(table(parent), key=lambda row: -float(row["best"]))
    assert shown == [row["run"] for row in rows]


def test_the_same_call_goes_on_with_what_has_not_finished(swept):
    _, parent = swept
    before = [float(row["time"]) for row in table(parent)]
    grid = ("--grid", "optimizer.lr=0.1,0.001", "--set", "hidden=[5]")
    printed = run(*SWEEP, *grid, "--out", parent).stdout
    assert "writing to" not in printed and "going on" not in printed
    assert [float(row["time"]) for row in table(parent)] == before


def test_a_mistake_in_any_run_is_said_before_there_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", None)
    parent = tmp_path / "never"
    ended = run(*SWEEP, "--grid", "epochs=1,none", "--out", parent, code=2)
    assert "epochs" in ended.stderr and not parent.exists()


@pytest.mark.parametrize(
    ("grid", "seeds", "message"),
    [
        (["lr"], None, "'lr': wanted KEY=VALUE,VALUE"),
        (["lr="], None, "wanted KEY=VALUE,VALUE"),
        (["seed=1,2"], 2, "say the same"),
        (["lr=1,2", "lr=3"], None, "'lr' is given twice"),
        (["data=a b,a-b"], None, "two runs would have the folder 'data=a-b'"),
    ],
)
def test_wrong_grids_are_refused(grid, seeds, message):
    with pytest.raises(SettingError, match=message):
        list(combinations(grid, seeds))


def test_commas_within_brackets_belong_to_a_value():
    found = [
        values for _, values in combinations(["hidden=[8, 4],[2]", "norm=a,b"], None)
    ]
    assert found[0] == {"hidden": [8, 4], "norm": "a"}
    assert found[3] == {"hidden": [2], "norm": "b"}


def test_an_unknown_column_is_named(swept):
    _, parent = swept
    assert "no column 'lr'" in run("runs", parent, "--sort", "lr", code=2).stderr
