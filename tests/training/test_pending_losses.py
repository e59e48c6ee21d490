"""Losses stay on the device until somebody looks, and are then those of a run that read each."""

import copy
import json
import pickle
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends, rules, zoo
from deliralike.training import Trainer
from deliralike.training.callbacks import Callback, JsonLines
from deliralike.training.history import Step
from deliralike.training.pending_losses import AT_MOST, PendingLosses

NAMES = ("torch", "chainer", "jax")
SIZES = [5, 5, 5, 2]  # of the batches of an epoch


def trainer(name, callbacks=(), **settings):
    network = zoo.build(
        "mlp", backend=name, in_features=3, out_features=2, dtype="float64", seed=3
    )
    return Trainer(network, rules.rule("sgd", lr=0.3), callbacks=callbacks, **settings)


def samples(count=sum(SIZES)):
    generator = np.random.default_rng(0)
    return generator.normal(size=(count, 3)), generator.integers(0, 2, count)


class Reading(Callback):
    """A callback that looks at each step at once, as every run did."""

    def __init__(self):
        self.losses = []

    def on_step(self, run, step):
        self.losses.append(step.loss)


class Counting:
    """Counts the calls that read, and how many numbers each of them read."""

    def __init__(self, monkeypatch, backend):
        self.counts = []
        numbers = backend.numbers

        def counted(backend, values):
            self.counts.append(len(values))
            return numbers(values)

        monkeypatch.setattr(type(backend), "numbers", counted)


@pytest.mark.parametrize("name", NAMES)
def test_losses_are_read_once_an_epoch_unless_somebody_looks(name, monkeypatch):
    counting = Counting(monkeypatch, backends.get(name))
    unread = trainer(name).fit(samples(), epochs=2, batch_size=5)
    assert counting.counts == [4, 4]
    counting.counts.clear()
    reading = Reading()
    trainer(name, [reading]).fit(samples(), epochs=2, batch_size=5)
    assert counting.counts == [1] * 8
    assert_array_equal(unread.losses, reading.losses)
    assert [step.samples for step in unread.steps] == 2 * SIZES


@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_count_by_their_samples(name):
    history = trainer(name, accumulate=4).fit(samples(), epochs=1, batch_size=5)
    x, y = samples()
    network = zoo.build(
        "mlp", backend=name, in_features=3, out_features=2, dtype="float64", seed=3
    )
    backend = network.backend
    found = backend.gradients(
        lambda net, x, y: net.nn.cross_entropy(net(x), y), network, x, y
    )
    assert_allclose([history.losses[0]], [found.loss], rtol=1e-12)


def test_the_host_is_no_further_ahead_than_said():
    on_device = []
    unread = PendingLosses(lambda values: [float(value) for value in values])
    for number in range(3 * AT_MOST):
        known = {"step": number, "epoch": 0, "dispatch_seconds": 0.0, "lr": 0.1}
        on_device.append(unread.add([{"loss": number}], [1], **known))
        assert sum("loss" not in vars(step) for step in on_device) <= AT_MOST
    unread.read()
    assert [step.loss for step in on_device] == list(range(3 * AT_MOST))


def test_a_step_that_waits_is_a_record_as_any_other():
    def waiting():
        unread = PendingLosses(lambda values: [value / 2 for value in values])
        known = {
            "step": 1,
            "epoch": 0,
            "dispatch_seconds": 0.0,
            "lr": 0.1,
            "data_seconds": 0.25,
        }
        return unread.add([{"loss": 3.0, "kl": 1.0}], [4], **known)

    for look in (
        asdict,
        repr,
        copy.copy,
        copy.deepcopy,
        lambda step: replace(step, epoch=1),
    ):
        step = waiting()
        look(step)
        assert (step.loss, step.losses, step.samples) == (
            1.5,
            {"loss": 1.5, "kl": 0.5},
            4,
        )
    step = pickle.loads(pickle.dumps(waiting()))
    assert step == Step(1, 0, 1.5, step.seconds, 4, {"loss": 1.5, "kl": 0.5}, 0.1, 0.25)
    with pytest.raises(AttributeError, match="a Step has no attribute 'accuracy'"):
        _ = waiting().accuracy


def test_steps_share_the_time_that_was_waited(monkeypatch):
    clock = iter([10.0, 16.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    unread = PendingLosses(lambda values: values)
    steps = []
    for number in range(3):
        known = {
            "step": number,
            "epoch": 0,
            "dispatch_seconds": float(number),
            "lr": 0.1,
        }
        steps.append(unread.add([{"loss": 0.0}], [1], **known))
    assert [step.seconds for step in steps] == [2.0, 3.0, 4.0]


def test_a_step_of_the_networks_own_keeps_no_graph_alive():
    class Own(torch.nn.Linear):
        def train_step(self, batch, optimizers):
            loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
            optimizers["default"].update(
                lambda net, x, y: ((net(x) - y) ** 2).mean(), *batch
            )
            return {"loss": loss}

    class Looking(Callback):
        def on_step(self, run, step):
            waiting = run.pending._waiting
            self.graphs = [each.results[0]["loss"].grad_fn for each in waiting]

    looking = Looking()
    fitted = Trainer(Own(3, 1), rules.rule("sgd", lr=0.1), callbacks=[looking])
    batch = np.ones((6, 3), np.float32), np.ones((6, 1), np.float32)
    fitted.fit(batch, batch_size=2)
    assert looking.graphs == [None] * 3


class FailingAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, run, step):
        if run.step == self.step:
            raise RuntimeError("the disk is gone")


def test_a_run_that_fails_has_written_every_step(tmp_path):
    wanted = trainer("torch").fit(samples(), epochs=1, batch_size=5).losses[:3]
    callbacks = [JsonLines(tmp_path / "run.jsonl"), FailingAt(3)]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        trainer("torch", callbacks).fit(samples(), epochs=1, batch_size=5)
    lines = [
        json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()
    ]
    assert_array_equal([line["loss"] for line in lines], wanted)
