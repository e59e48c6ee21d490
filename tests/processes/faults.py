"""What goes wrong in one of the processes of the tests."""

import os
import signal
import time
import warnings

import numpy as np

from deliralike import backends
from deliralike.conformance.planted import replicas as planted
from deliralike.data import Loader
from deliralike.rules import rule
from deliralike.training import Trainer
from deliralike.training.callbacks import Callback, StopOnNaN
from tests.processes import training

STEP = 4


class Fault(Callback):
    """Something happens after a step."""

    def __init__(self, what):
        self.what = what

    def on_step(self, run, step):
        if run.step == STEP:
            self.what()


def raising():
    raise ValueError("the disk is full of cats")


FAULTS = {
    "raises": raising,
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stops": lambda: time.sleep(600),
}


def one_fails(processes, fault, rank=1):
    """A run in which something happens to one process."""
    trainer: Trainer = training.trainer("torch", processes)
    trainer.callbacks += [Fault(FAULTS[fault])] if processes.rank == rank else []
    trainer.fit(training.pictures(), epochs=training.EPOCHS, batch_size=training.BATCH)


def other_steps(processes):
    """One process makes another step than the others."""
    if processes.rank == 1:
        processes.exchange("the ends of the earth", 1)
    else:
        processes.exchange("lunch", 1)


def one_has_nan(processes):
    """Why a run ended in which one sample of one process is not finite."""
    x, labels = training.pictures()
    x[11, 0, 3, 3] = np.nan
    trainer = training.trainer("torch", processes)
    trainer.callbacks += [StopOnNaN()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = trainer.fit(Loader((x, labels), training.BATCH, shuffle=False), epochs=1)
    return [history.stopped, len(history.steps)]


def fewer_batches(processes):
    """The second process has one batch less than the first."""
    subject = planted.subject("torch")
    network = backends.DistributedDataParallel(subject.network, processes)
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    with network.training_mode(True):
        for _ in range(3 - processes.rank):
            optimizer.update(subject.loss, *planted.batch(3))
