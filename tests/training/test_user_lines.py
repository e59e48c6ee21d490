"""Errors and interrupts as a user's script shows them: the user's lines, and one line of how to go
on."""

import os
import signal
import subprocess
import sys
import textwrap
import traceback
import warnings

import numpy as np
import pytest

from deliralike import Network
from deliralike.errors import IndexRangeError
from deliralike.optim import rules
from deliralike.training import Trainer
from tests.training.small_runs import network, samples


class Broken(Network):
    """A network whose forward pass fails in a method of its own."""

    def __init__(self):
        super().__init__()
        self.layer = self.nn.Linear(3, 2)

    def forward(self, x):
        return self.scores(self.layer(x))

    def scores(self, x):
        return x.no_such_method()


def no_loss(prediction, target):
    return prediction.no_such_loss(target)


def run(backend, kind=None, losses=None, validation=None):
    net = network(backend.name) if kind is None else network(backend.name, kind)
    Trainer(net, rules.rule("sgd", lr=0.1), losses).fit(samples(), validation)


def functions_of(error):
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("validation", [None, samples(3)], ids=["step", "validation"])
def test_an_error_in_forward_shows_the_users_lines(backend, validation):
    with pytest.raises(AttributeError, match="no_such_method") as caught:
        run(backend, Broken, validation=validation)
    names = functions_of(caught.value)
    assert names[1:5] == ["run", "fit", "forward", "scores"]
    assert any("lines of packages are left out" in n for n in caught.value.__notes__)


def test_an_error_in_a_loss_shows_the_users_lines(backend):
    with pytest.raises(AttributeError, match="no_such_loss") as caught:
        run(backend, losses={"mine": no_loss})
    assert functions_of(caught.value)[1:4] == ["run", "fit", "no_loss"]


def test_an_error_that_the_package_raises_ends_at_the_users_line(backend):
    def too_few(prediction, target):
        return backend.nn.cross_entropy(prediction[:, :1], target)

    with pytest.raises(IndexRangeError) as caught:
        run(backend, losses={"mine": too_few})
    assert functions_of(caught.value)[1:] == ["run", "fit", "too_few"]


def test_all_lines_are_shown_where_it_is_asked_for(backend, monkeypatch):
    monkeypatch.setenv("DELIRALIKE_TRACEBACK", "full")
    with pytest.raises(AttributeError) as caught:
        run(backend, losses={"mine": no_loss})
    names = functions_of(caught.value)
    assert "_train_step" in names
    assert names.index("no_loss") > 8


def test_a_warning_of_nan_names_the_line_that_trains(backend):
    data = samples()
    data.inputs[0, 0] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Trainer(network(backend.name), rules.rule("sgd", lr=0.1)).fit(data)
    [warning] = [each for each in caught if "the loss is nan" in str(each.message)]
    assert warning.filename == __file__


SCRIPT = """
import os, signal, sys
from deliralike import rules, zoo
from deliralike.training import Callback, Checkpoint, Trainer
from deliralike.training.experiment import Experiment
from tests.training.small_runs import samples


class Press(Callback):
    def on_step(self, run, step):
        if step.step == 2:
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))


if sys.argv[2] == "experiment":
    Experiment({"network": "mlp"}, callbacks=lambda: [Press()]).run("run")
callbacks = [Press()]
if sys.argv[2] == "saves":
    callbacks.append(Checkpoint("saved"))
net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
trainer = Trainer(net, rules.rule("sgd", lr=0.1), callbacks=callbacks)
trainer.fit(samples(), epochs=9, batch_size=4)
"""


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "SIGINT",
            "saves",
            "stopped by Ctrl-C; saved in saved/step-00000003; "
            "to go on: fit(..., resume='saved/step-00000003')",
        ),
        (
            "SIGTERM",
            "",
            "stopped by SIGTERM; nothing was saved: the callback Checkpoint(folder) saves",
        ),
        (
            "SIGINT",
            "experiment",
            "stopped by Ctrl-C; to go on: run('run', resume=True), or on the command line "
            "deliralike train --resume run",
        ),
    ],
)
def test_a_script_that_a_signal_ends_says_how_to_go_on_in_one_line(
    name, kind, words, tmp_path
):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    paths = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "script.py", name, kind],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stderr.strip() == words
    assert done.returncode == 128 + getattr(signal, name)
