"""A run that is resumed gives what the uninterrupted one gives: bit for bit on the same backend."""

import inspect

import pytest

from deliralike.training import Callback, Trainer, checkpoint
from deliralike.training.state import gather
from tests.training import runs

EPOCHS = 3  # of five batches, two to a step and the last one alone: three steps
AVERAGE = "average" in inspect.signature(Trainer).parameters


class Keep(Callback):
    """Write a checkpoint after a number of steps, or of epochs."""

    runs_last = True

    def __init__(self, folder, steps=None, epochs=None):
        self.folder, self.steps, self.epochs = folder, steps, epochs

    def on_step(self, run, step):
        if run.step == self.steps:
            checkpoint.write(self.folder, gather(run))
            if self.stops:
                run.stop("for now")

    def on_epoch(self, run, epoch):
        if run.epoch == self.epochs:
            checkpoint.write(self.folder, gather(run))

    stops = False


def made(backend, *callbacks, **options):
    return runs.trainer(backend, *callbacks, **({"average": 0.9} if AVERAGE else {}) | options)


MOMENTS = {"inside an epoch": {"steps": 4}, "before evaluation": {"steps": 6}, "between epochs": {"epochs": 1}}


@pytest.mark.parametrize("replicas", [None, 2])
@pytest.mark.parametrize("rng", ["portable", "native"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(backend, tmp_path, rng, replicas):
    devices = None if replicas is None else [backend.devices()[0]] * replicas
    keeps = [Keep(tmp_path / name, **moment) for name, moment in MOMENTS.items()]
    runs.start_all_chance(11)
    whole = made(backend.name, *keeps, rng=rng, devices=devices)
    history = whole.fit(runs.loader(), runs.samples(9), epochs=EPOCHS)
    for keep in keeps:
        runs.start_all_chance(99)
        resumed = made(backend.name, seed=2, rng=rng, devices=devices)
        more = resumed.fit(runs.loader(), runs.samples(9), epochs=EPOCHS, resume=keep.folder)
        assert runs.differing(runs.outcome(whole), runs.outcome(resumed)) == [], keep.folder.name
        done = len(history.steps) - len(more.steps)
        assert [step.loss for step in more.steps] == [step.loss for step in history.steps[done:]]
        assert [epoch.held_out for epoch in more.epochs] == [epoch.held_out for epoch in history.epochs]
