"""The callback that writes checkpoints: when, which are kept, which is the best, and what it does
in trouble."""

import json
import os

import numpy as np
import pytest

from deliralike import data
from deliralike.errors import CheckpointError, SettingError, UnknownName
from deliralike.optim import rules
from deliralike.training import Callback, Checkpoint, Checkpoints, Trainer, checkpoint
from tests.training.networks import Linear


class Script(Callback):
    """Validation metrics from a list, and something to do at a step."""

    def __init__(self, values=(), act=None):
        self.values, self.act = values, act

    def on_step(self, run, step):
        if self.act is not None:
            self.act(run)

    def on_epoch(self, run, epoch):
        if epoch.epoch < len(self.values):
            epoch.held_out["score"] = self.values[epoch.epoch]


def samples(count=10):
    return data.Samples(np.ones((count, 2), np.float32), np.zeros(count, np.int64))


def trained(*callbacks, epochs=1, losses=None, **options):
    """Two steps an epoch."""
    trainer = Trainer(
        Linear.on("torch")(2, 2), rules.rule("sgd", lr=0.1), losses, callbacks=callbacks
    )
    return trainer.fit(samples(), epochs=epochs, batch_size=5, **options)


def steps_in(folder):
    """The checkpoints there are by their steps, in the order of writing, each of which can be
    read."""
    found = Checkpoints.all(folder)
    assert [checkpoint.read(path)["run"]["position"]["step"] for path in found] == [
        int(p.name[5:]) for p in found
    ]
    return [int(path.name[5:]) for path in found]


@pytest.mark.parametrize(
    ("options", "epochs", "steps"),
    [
        ({}, 5, [6, 8, 10]),
        ({"keep": 1}, 3, [6]),
        ({"keep": None}, 4, [2, 4, 6, 8]),
        ({"every_epochs": 3, "keep": None}, 7, [6, 12, 14]),
        ({"every_epochs": None, "every_steps": 3, "keep": None}, 4, [3, 6, 8]),
        ({"every_epochs": None}, 2, [4]),
        ({"every_steps": 1, "keep": 4}, 3, [3, 4, 5, 6]),
    ],
)
def test_checkpoints_are_written_when_due_and_at_the_end_and_the_newest_are_kept(
    tmp_path, options, epochs, steps
):
    trained(Checkpoint(tmp_path, **options), epochs=epochs)
    assert steps_in(tmp_path) == steps
    assert Checkpoints.latest(tmp_path).name == f"step-{steps[-1]:08d}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoints.json",
        *(f"step-{n:08d}" for n in steps),
    ]


def test_a_run_that_is_stopped_leaves_its_last_step(tmp_path):
    trained(
        Script(act=lambda run: run.stop("enough") if run.step == 3 else None),
        Checkpoint(tmp_path),
        epochs=4,
    )
    assert steps_in(tmp_path) == [2, 3]


NAN = float("nan")
BEST = [
    ("min", [0.5, 0.2, 0.4, 0.3], 2),
    ("max", [0.5, 0.2, 0.4, 0.3], 1),
    ("min", [-1.0, -3.0, -2.0, 0.0], 2),
    ("max", [-3.0, -1.0, -2.0, -5.0], 2),
    ("min", [NAN, 0.3, NAN, 0.4], 2),
    ("max", [0.1, NAN, NAN, 0.05], 1),
    ("min", [0.3, 0.3, 0.3, 0.3], 1),
    ("min", [NAN, NAN, NAN, NAN], None),
]


@pytest.mark.parametrize(("mode", "values", "epoch"), BEST)
def test_the_best_epoch_is_kept_beside_the_newest(tmp_path, mode, values, epoch):
    watch = Checkpoint(tmp_path, keep=1, monitor="score", mode=mode)
    trained(Script(values), watch, epochs=4)
    assert steps_in(tmp_path) == sorted({8} | ({2 * epoch} if epoch else set()))
    best = Checkpoints.best(tmp_path)
    assert best is None if epoch is None else best.name == f"step-{2 * epoch:08d}"
    assert watch.best == (None if epoch is None else values[epoch - 1])


def test_the_best_epoch_is_written_when_none_is_due(tmp_path):
    trained(
        Script([3.0, 1.0, 2.0]),
        Checkpoint(tmp_path / "a", every_epochs=None, keep=1, monitor="score"),
        epochs=3,
    )
    assert steps_in(tmp_path / "a") == [4, 6]


def test_the_best_value_survives_a_resume(tmp_path):
    trained(Script([3.0, 1.0]), Checkpoint(tmp_path, keep=1, monitor="score"), epochs=2)
    again = Checkpoint(tmp_path, keep=1, monitor="score")
    trained(
        Script([0, 0, 2.0, 1.5]), again, epochs=4, resume=Checkpoints.latest(tmp_path)
    )
    assert again.best == 1.0
    assert steps_in(tmp_path) == [4, 8]
    assert Checkpoints.best(tmp_path).name == "step-00000004"


def test_after_going_back_the_latest_is_the_one_that_was_written_last(tmp_path):
    trained(Checkpoint(tmp_path, keep=None), epochs=3)
    back = Checkpoints.all(tmp_path)[0]
    stop = Script(act=lambda run: run.stop("enough") if run.step == 3 else None)
    trained(stop, Checkpoint(tmp_path, keep=3), epochs=3, resume=back)
    assert steps_in(tmp_path) == [4, 6, 3]
    assert Checkpoints.latest(tmp_path).name == "step-00000003"


def test_a_checkpoint_that_the_index_does_not_know_is_the_latest(tmp_path):
    trained(Checkpoint(tmp_path), epochs=3)
    (tmp_path / "checkpoints.json").write_text(
        json.dumps({"checkpoints": ["step-00000006", "gone"], "best": None})
    )
    assert steps_in(tmp_path) == [6, 2, 4]
    (tmp_path / "checkpoints.json").unlink()
    assert steps_in(tmp_path) == [2, 4, 6]


@pytest.mark.parametrize("text", ["", "[]", '{"checkpoints": 3, "best": null}'])
def test_a_damaged_index_says_what_to_do(tmp_path, text):
    trained(Checkpoint(tmp_path))
    (tmp_path / "checkpoints.json").write_text(text)
    with pytest.raises(
        CheckpointError, match="checkpoints.json is damaged .*: remove it"
    ):
        Checkpoints.latest(tmp_path)


def test_a_folder_without_checkpoints_has_no_latest(tmp_path):
    assert Checkpoints.all(tmp_path / "nowhere") == []
    assert Checkpoints.latest(tmp_path) is None
    assert Checkpoints.best(tmp_path) is None


def test_a_metric_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(
        UnknownName,
        match="there is no metric 'scroe' on validation data. Did you mean 'score'?",
    ):
        trained(Script([1.0]), Checkpoint(tmp_path, monitor="scroe"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_epochs": 0}, "every_epochs=0 must be a whole number of at least 1"),
        ({"every_steps": 1.5}, "every_steps=1.5 must be a whole number"),
        ({"keep": True}, "keep=True must be a whole number"),
        ({"mode": "mni"}, "mode='mni' is unknown"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    with pytest.raises(SettingError, match=message):
        Checkpoint(tmp_path, **options)


# Trouble
# -----------------------------------------------------------------------------


def interrupt(run):
    if run.step == 3:
        raise KeyboardInterrupt


def fail(run):
    if run.step == 3:
        raise RuntimeError("broken on purpose")


def test_ctrl_c_between_two_steps_leaves_a_checkpoint_of_the_last(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        trained(Script(act=interrupt), Checkpoint(tmp_path), epochs=4)
    assert steps_in(tmp_path) == [2, 3]


def test_an_error_leaves_what_was_written_before(tmp_path):
    with pytest.raises(RuntimeError, match="broken on purpose"):
        trained(Script(act=fail), Checkpoint(tmp_path), epochs=4)
    assert steps_in(tmp_path) == [2]


def test_ctrl_c_within_a_step_writes_nothing(tmp_path):
    calls = iter(range(9))

    def loss(network, inputs, labels):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return network.nn.cross_entropy(network(inputs), labels)

    with pytest.raises(KeyboardInterrupt):
        trained(Checkpoint(tmp_path), epochs=4, losses=loss)
    assert steps_in(tmp_path) == [2]


def test_a_full_disk_ends_the_run_and_keeps_the_old_ones(tmp_path, monkeypatch):
    def fill(run):
        if run.step == 3:

            def refuse(descriptor):
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(
        CheckpointError, match="step-00000004 was not written.*No space left on device"
    ) as caught:
        trained(Script(act=fill), Checkpoint(tmp_path), epochs=4)
    assert "in on_epoch of the callback Checkpoint" in caught.value.__notes__
    assert steps_in(tmp_path) == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoints.json",
        "step-00000002",
    ]


def test_an_index_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "checkpoints.json").mkdir()
    with pytest.raises(CheckpointError, match="checkpoints.json is damaged"):
        trained(Checkpoint(tmp_path))
