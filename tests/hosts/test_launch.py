"""Several machines for real: `deliralike launch` on each of two nodes, with a slow link between
them."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import run

ROOT = Path(__file__).parents[2]
TRAIN = [
    "train",
    "mlp",
    "--set",
    "hidden=[9]",
    "--epochs",
    "1",
    "--batch-size",
    "200",
    "--dtype",
    "float64",
]


def deliralike(*arguments):
    return [sys.executable, "-m", "deliralike", *arguments]


def losses(folder):
    with (folder / "steps.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_two_nodes_train_as_one_process_does(nodes, tmp_path):
    """The digits, in float64; the second node is started first, and the first one writes and shows
    all the same."""
    environment = os.environ | {
        "GLOO_SOCKET_IFNAME": nodes.device,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    address = f"{nodes.addresses[0]}:29400"
    started = {}
    for node in (1, 0):
        command = deliralike(
            "launch",
            "--processes",
            "1",
            "--nodes",
            "2",
            "--node",
            str(node),
            "--address",
            address,
            *TRAIN,
            "--out",
            str(tmp_path / "several"),
        )
        started[node] = subprocess.Popen(
            nodes.command(node, command),
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    said = {node: process.communicate(timeout=600)[0] for node, process in started.items()}
    assert [process.returncode for process in started.values()] == [0, 0], said
    assert "in 2 processes, writing to" in said[0]
    assert "writing to" not in said[1]

    run(*TRAIN, "--out", tmp_path / "alone")
    wanted = losses(tmp_path / "alone")
    assert len(wanted) > 5
    assert losses(tmp_path / "several") == pytest.approx(wanted, rel=1e-11)
