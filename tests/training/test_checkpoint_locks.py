"""Two processes that write one folder: one of them is refused, and the folder is whole in any
case."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from deliralike import Network, data
from deliralike.errors import CheckpointError
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, Trainer, checkpoint

# Holds the folder of a run with the callback's own lock, in a fork of the holder too, until it is
# killed.
HOLDER = """
import os, sys, time
from deliralike.training.checkpoint import folder_of_run

with folder_of_run(sys.argv[1]):
    child = os.fork()
    if not child:  # which has closed what it inherited by now
        print(os.getpid(), flush=True)
    time.sleep(3600)
"""

# Writes one checkpoint again and again, beside a second process of the same kind, each of which may
# be refused.
WRITER = """
import os, sys
import numpy as np
from deliralike.errors import CheckpointError
from deliralike.training import checkpoint

folder, mark = sys.argv[1], int(sys.argv[2])
written = refused = 0
while written < 40 or not refused and written < 400:  # however often it is refused
    try:
        checkpoint.write(folder, {"network": {"a": np.full(50, mark)}, "run": {"mark": mark}})
        written += 1
    except CheckpointError as error:
        message = str(error)
        assert "is being written by another process" in message, error
        refused += 1
print(written, refused)
"""


class Slope(Network):
    def __init__(self):
        super().__init__()
        self.line = self.nn.Linear(2, 1)

    def forward(self, at):
        return self.line(at)


def trained(folder, **options):
    points = data.Samples(np.ones((6, 2), np.float32), np.zeros((6, 1), np.float32))
    trainer = Trainer(
        Slope.on("torch")(), rules.rule("sgd", lr=0.1), callbacks=[Checkpoint(folder)]
    )
    return trainer.fit(points, batch_size=3, **options)


def test_a_folder_that_another_process_holds_is_taken_over_when_that_is_dead(tmp_path):
    folder = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(
            CheckpointError, match="run is being written by another process: wait for"
        ):
            trained(folder)
        assert sorted(os.listdir(folder)) == [".lock"]
        holder.kill()
        holder.wait()
        trained(folder)  # its child lives on, and its file is still there
        assert sorted(os.listdir(folder)) == ["checkpoints.json", "step-00000002"]
    finally:
        os.kill(child, signal.SIGKILL)
        holder.kill()
        holder.stdout.close()
    trained(folder, resume=Checkpoints.latest(folder), epochs=2)
    assert sorted(os.listdir(folder)) == [
        "checkpoints.json",
        "step-00000002",
        "step-00000004",
    ]


def test_two_processes_that_write_one_checkpoint_leave_a_whole_one(tmp_path):
    folder = tmp_path / "c"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), mark],
            stdout=subprocess.PIPE,
            text=True,
        )
        for mark in ("1", "2")
    ]
    counts = [
        [int(count) for count in writer.communicate(timeout=600)[0].split()]
        for writer in writers
    ]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert all(written > 0 for written, _ in counts)
    found = checkpoint.read(folder)
    assert (found["network"]["a"] == found["run"]["mark"]).all()
    checkpoint.write(folder, {"run": {"mark": 3}})
    assert checkpoint.read(folder) == {"run": {"mark": 3}}
    assert os.listdir(tmp_path) == ["c"]


def test_a_run_that_is_refused_or_fails_lets_the_folder_go(tmp_path):
    trained(tmp_path)
    with pytest.raises(CheckpointError, match="holds checkpoints already"):
        trained(tmp_path)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        trained(tmp_path, resume=tmp_path / "nowhere")
    trained(tmp_path, resume=Checkpoints.latest(tmp_path), epochs=2)
    assert ".lock" not in os.listdir(tmp_path)


def test_a_lock_holds_within_one_process_too(tmp_path):
    with (
        checkpoint.folder_of_run(tmp_path),
        pytest.raises(CheckpointError, match="by another process"),
    ):
        trained(tmp_path)
    trained(tmp_path)
