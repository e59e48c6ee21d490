"""What comes from files reaches the terminal as text, never as an order to it."""

import json

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from deliralike.cli import app


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
    assert r"\x1b[2Jgone\x07" in printed


def test_the_names_in_a_file_give_no_orders_to_the_terminal(tmp_path):
    safetensors.numpy.save_file({"\x1b[2J": np.ones(3, np.float32)}, tmp_path / "x.safetensors")
    result = run("convert", tmp_path / "x.safetensors", tmp_path / "y.npz", "--model", "mlp")
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    "status",
    [{"seconds": None}, {"seconds": "9"}, {"reason": 3}, {"metrics": [1]}, {"started": True}],
    ids=str,
)
def test_a_damaged_folder_of_a_run_is_a_line_beside_the_others(tmp_path, status):
    written_run(tmp_path, "bad", **status)
    written_run(tmp_path, "good", seconds=59.0)
    result = run("runs", tmp_path)
    assert result.exit_code == 0
    assert "59 s" in result.output
    name = next(iter(status))
    assert f"does not hold the status of a run: {name} is" in result.output
