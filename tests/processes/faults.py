"""What goes wrong in one of the processes of the tests."""

import errno
import os
import signal
import warnings
from pathlib import Path

import numpy as np

from deliralike import backends, in_replicas
from deliralike.backends.processes.environment import restarts
from deliralike.data import Loader
from deliralike.optim.rules import rule
from deliralike.training import array_file, checkpoint
from deliralike.training.callbacks import Callback, StopOnNaN
from deliralike.training.experiment import Experiment
from deliralike.training.interrupt import Interrupted
from tests.processes import subjects, training

STEP = 4


class Fault(Callback):
    """Something happens after a step."""

    def __init__(self, what):
        self.what = what

    def on_step(self, run, step):
        if run.step == STEP:
            self.what()


def in_its_loss(processes, backend, in_backward):
    """An error in the second process between forward and backward, while the first one's loss is
    under way."""
    subject = subjects.subject(backend)
    network = backends.DistributedDataParallel(
        subject.network, processes, in_backward=in_backward
    )

    def loss(network, *batch):
        found = subject.loss.function(network, *batch)
        if processes.rank == 1:
            raise ValueError("the disk is full of cats")
        return found

    optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
    with network.training_mode(True), processes.report_errors(lambda: "the update"):
        optimizer.update(in_replicas(loss, "sum"), *subjects.batch(3))


def full_disk(processes, backend, folder):
    """A run whose disk is full in the middle of the fourth step's checkpoint; nothing can be
    cleaned up, either."""
    array_file.write_bytes = filling(array_file.write_bytes)
    checkpoint.shutil.rmtree = lambda *args, **options: None
    training.fitted(processes, backend, folder)


def filling(write):
    def half(path, pieces):
        if f"step-{STEP:08d}" not in str(path) or path.stem != "network":
            return write(path, pieces)
        whole = b"".join(pieces)
        path.write_bytes(whole[: len(whole) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return half


def asked_to_end(processes, backend, folder, name, rank):
    """A run in which a signal comes to one process; what it ends by, and when."""
    made = training.trainer(backend, processes, folder, every_steps=None)
    made.callbacks.insert(
        0,
        Fault(
            lambda: processes.rank != rank or signal.raise_signal(getattr(signal, name))
        ),
    )
    try:
        made.fit(training.data(), training.pictures(), epochs=training.EPOCHS)
    except Interrupted as error:
        return [str(error), error.signal, next(iter(made.optimizers.values())).steps]


def killed_once(processes, backend, folder):
    """An experiment of which one process is killed in the fourth step, the first time."""
    here = Path(folder)

    def kill():
        if processes.rank == 1 and not (here / "killed").exists():
            (here / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    settings = {
        "network": "mlp",
        "network_settings": {"hidden": [5]},
        "batch_size": 200,
        "epochs": 2,
        "backend": backend,
        "dtype": "float64",
        "checkpoints": {"every_steps": 3},
    }
    made = Experiment(settings, processes=processes).run(
        here / "run", resume=True, callbacks=[Fault(kill)]
    )
    return [made.history.losses.tolist(), restarts()]


def one_has_nan(processes, backend):
    """Why a run ended in which one sample of one process is not finite."""
    x, labels = training.pictures()
    x[11, 0, 3, 3] = np.nan
    trainer = training.trainer(backend, processes)
    trainer.callbacks += [StopOnNaN()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = trainer.fit(
            Loader((x, labels), training.BATCH, shuffle=False), epochs=1
        )
    return [history.stopped, len(history.steps)]
