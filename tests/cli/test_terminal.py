"""What comes from files reaches the terminal as text, never as an order to it."""

import io
import json
import logging
import traceback
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree
from typer.testing import CliRunner

from deliralike import terminal, weights, zoo
from deliralike.cli import app
from deliralike.errors import StateError
from deliralike.training.callbacks.progress import bars


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def written_run(parent, name, **status):
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text('network = "mlp"\n')
    (folder / "status.json").write_text(json.dumps({"status": "failed", **status}))
    return folder


def test_the_reason_of_a_run_gives_no_orders_to_the_terminal(tmp_path):
    written_run(tmp_path, "a", reason="\x1b[2Jgone\x07")
    printed = run("runs", tmp_path).output
    assert "\x1b" not in printed
    assert r"\x1b[2Jgone" in printed


def test_the_names_in_a_file_give_no_orders_to_the_terminal(tmp_path):
    safetensors.numpy.save_file(
        {"\x1b[2J": np.ones(3, np.float32)}, tmp_path / "x.safetensors"
    )
    result = run(
        "convert", tmp_path / "x.safetensors", tmp_path / "y.npz", "--model", "mlp"
    )
    assert "\x1b" not in result.output


ORDER = "\x1b[2J"


@pytest.mark.parametrize("kind", ["a line", "a table", "a tree within a panel"])
def test_what_is_printed_in_colour_gives_no_orders_to_the_terminal(kind):
    tree = Tree(ORDER)
    tree.add(Text(ORDER))
    table = Table("name", title=ORDER)
    table.add_row(ORDER)
    kinds = {
        "a line": Text(ORDER, "red"),
        "a table": table,
        "a tree within a panel": Panel(tree),
    }
    stream = io.StringIO()
    terminal.console(file=stream, force_terminal=True, color_system="standard").print(
        kinds[kind]
    )
    printed = stream.getvalue()
    assert ORDER not in printed
    assert r"\x1b[2J" in printed
    assert kind != "a line" or "\x1b[31m" in printed  # colours are there


def test_the_name_of_a_metric_gives_no_orders_to_the_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", stream)
    with bars(terminal.console(file=stream, force_terminal=True)) as shown:
        shown.add_task(
            "label", samples=0, text=f"{ORDER}loss 1", validation="", total=2
        )
        shown.refresh()
    assert r"\x1b[2Jloss" in stream.getvalue()
    assert ORDER not in stream.getvalue()


def test_a_record_of_the_log_gives_no_orders_to_the_terminal():
    run("--version")
    record = logging.LogRecord(
        "deliralike", logging.WARNING, "", 0, "%s", (ORDER,), None
    )
    assert logging.lastResort.format(record) == r"\x1b[2J"


def test_a_warning_gives_no_orders_to_the_terminal():
    with pytest.warns(UserWarning) as caught:
        terminal.warn(f"updates are blocking, since {ORDER}")
    assert str(caught[0].message) == r"updates are blocking, since \x1b[2J"
    assert caught[0].filename == __file__


def test_an_error_and_its_traceback_give_no_orders_to_the_terminal():
    try:
        raise StateError(f"no array for {ORDER}")
    except StateError as error:
        assert ORDER not in "".join(traceback.format_exception(error))
        assert str(error) == r"no array for \x1b[2J"


@pytest.mark.parametrize("load", [weights.load, zoo.load], ids=["weights", "zoo"])
def test_names_that_a_load_reports_reach_the_log_as_text(load, tmp_path, caplog):
    net = zoo.build("mlp", backend="torch", in_features=2, hidden=(), out_features=2)
    state = net.neutral_state() | {f"{ORDER}": np.ones(3, np.float32)}
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    torch.save({"model": tensors, "\x07": {"old": torch.ones(3)}}, tmp_path / "x.pth")
    with caplog.at_level("INFO"):
        load(net, tmp_path / "x.pth", strict=False)
    assert "\\x" in caplog.text
    assert not {"\x1b", "\x07"} & {*caplog.text}


def test_warnings_are_issued_in_one_place():
    source = Path(terminal.__file__).parent
    files = [
        path for path in source.rglob("*.py") if "warnings.warn(" in path.read_text()
    ]
    assert files == [source / "terminal.py"]


@pytest.mark.parametrize(
    "status",
    [
        {"seconds": None},
        {"seconds": "9"},
        {"reason": 3},
        {"metrics": [1]},
        {"started": True},
    ],
    ids=str,
)
def test_a_damaged_folder_of_a_run_is_a_line_beside_the_others(tmp_path, status):
    written_run(tmp_path, "bad", **status)
    written_run(tmp_path, "good", seconds=59.0)
    result = run("runs", tmp_path)
    assert result.exit_code == 0
    assert "59 s" in result.output
    name = next(iter(status))
    assert f"the status of a run: Status: {name}=" in result.output
