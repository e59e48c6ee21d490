"""A run that is killed again and again: ``python -m tests.training.killed BACKEND FOLDER COUNT``.

This process loads the framework and trains nothing; each attempt is a fork of it, which goes on
from the latest checkpoint. It prints how often it stopped one, how often that left a checkpoint
half written or half removed, and what differs in the end. Attempts are killed before the n-th call
that changes the disk.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from deliralike import Network, backends, data, weights
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, Trainer

EPOCHS = 9  # of four steps
WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}


class Tiny(Network):
    def __init__(self):
        super().__init__()
        self.first = self.nn.Linear(3, 5)
        self.norm = self.nn.BatchNorm1d(5)
        self.dropout = self.nn.Dropout(0.2)
        self.last = self.nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.dropout(self.norm(self.first(x))))


def train(backend, folder):
    """All that is left of the run; the weights are in `result` when it is done."""
    generator = np.random.default_rng(3)
    samples = data.Samples(generator.normal(size=(26, 3)), generator.integers(0, 2, 26))
    backends.get(backend).seed(0 if Checkpoints.latest(folder) is None else os.getpid())
    network = Tiny.on(backend, dtype="float64")()
    watch = Checkpoint(folder, every_steps=1, keep=2, monitor="loss")
    rule = rules.rule("adam", lr=0.01)
    trainer = Trainer(
        network, rule, callbacks=[watch], accumulate=2, average=0.9, rng="native"
    )
    trainer.fit(
        samples, samples, epochs=EPOCHS, batch_size=4, resume=Checkpoints.latest(folder)
    )
    state = {
        f"state/{name}": value
        for name, value in trainer.optimizers["default"].neutral_state().items()
    }
    weights.write(result(folder), network.neutral_state() | state)


def result(folder):
    """Beside the folder, which is the trainer's alone: a kill while this is written may leave a
    part of it."""
    return folder.with_suffix(".safetensors")


def forked(work):
    """The exit code of a process that does it: 1 after an error."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def kill_before(call, folder):
    """Let this process be killed before a call that changes the folder, or removes something below
    it."""
    left = [call]

    def count(event, arguments):
        if event not in WATCHED or (
            event in ("open", "os.mkdir") and str(folder) not in str(arguments[0])
        ):
            return
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def killed_once(backend, folder, number):
    """Kill a child at a call of its own choice."""
    call = 3 + 37 * number % 131

    def work():
        kill_before(call, folder)
        train(backend, folder)

    return forked(work)


def main(backend, base, count):
    backends.get(backend)  # loads the framework, and computes nothing with it
    assert forked(lambda: train(backend, base / "whole")) == 0
    wanted = weights.read(result(base / "whole"))
    folder, stops, chains, torn, different = base / "killed", 0, 0, 0, set()
    while stops < count or not result(folder).exists():
        if stops < count:
            code = killed_once(backend, folder, stops)
        else:
            code = forked(lambda: train(backend, folder))
        assert code in (0, -signal.SIGKILL), code
        stops += code != 0
        torn += folder.exists() and any(
            name.startswith(".") for name in os.listdir(folder)
        )
        if code == 0:
            found = weights.read(result(folder))
            different |= {
                name
                for name in wanted | found
                if found[name].tobytes() != wanted[name].tobytes()
            }
            chains += 1
            left = sorted(name for name in os.listdir(folder) if name.startswith("."))
            assert not left, left
            if stops < count:
                shutil.rmtree(folder)
                result(folder).unlink()
    print(f"stops={stops} chains={chains} torn={torn} different={sorted(different)}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
