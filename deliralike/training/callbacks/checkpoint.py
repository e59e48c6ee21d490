"""Checkpoints of a run, written while it goes on: the newest and the best ones are kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from deliralike.errors import CheckpointError, whole_number
from deliralike.training import checkpoint
from deliralike.training.array_file import replace_text
from deliralike.training.callbacks.callback import Writer
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.history import Epoch, Step
from deliralike.training.json_nests import State
from deliralike.training.run import Run
from deliralike.training.state import gather
from deliralike.weights.inflate import AnyPath

INDEX = "checkpoints.json"
_NAME = re.compile(r"\.?(step-[0-9]+)(?:\.new|\.old|\.gone|\.lock)?")


class Checkpoint(Writer):
    """Write the whole state of a run, so that ``fit(..., resume=folder)`` goes on as the run would.

    A checkpoint is written when it is due, when the run ends, and on Ctrl-C; none while an error,
    or a second Ctrl-C in `on_epoch` of a callback, ends the run, whose state may be half of one
    step and half of the next. The disk holds it before
    the next step begins. One that cannot be written ends the run with an error, and those from
    before are kept.

    Args:
        folder: The folder for ``step-00000123`` and so on, by the number of finished steps, and for
            ``checkpoints.json``, which lists them in the order of writing and names the best one;
            see `Checkpoints`.
        every_epochs: The number of epochs between two checkpoints; None for none.
        every_steps: The number of steps between two checkpoints; None for none.
        keep: The number of the newest checkpoints to keep; None for all of them.
        monitor: A metric on validation data, by which checkpoints are the best. The best one is
            written whether due or not, and kept besides the newest.
        mode: ``"min"`` where less is better, ``"max"`` where more is. NaN is never better.

    Raises:
        SettingError: An option makes no sense.
        CheckpointError: The folder holds the checkpoints of another run, another process is writing
            to it, or the disk refuses.
        UnknownName: There is no such metric.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from deliralike import data, rules, training, zoo
        >>> samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
        >>> def trainer(*callbacks):
        ...     net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        ...     return training.Trainer(net, rules.rule("sgd", lr=0.5), callbacks=callbacks)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     history = trainer(Checkpoint(folder)).fit(samples, epochs=2)
        ...     more = trainer().fit(samples, epochs=3, resume=Checkpoints.latest(folder))
        >>> [step.step for step in more.steps]
        [2]
    """

    runs_last = True
    fields = ("best", "best_name")
    main_only = False  # where the state is spread over processes, all of them gather it

    def __init__(
        self,
        folder: AnyPath,
        *,
        every_epochs: int | None = 1,
        every_steps: int | None = None,
        keep: int | None = 3,
        monitor: str | None = None,
        mode: str = "min",
    ) -> None:
        """Check the settings; nothing is written."""
        _check_count("every_epochs", every_epochs)
        _check_count("every_steps", every_steps)
        _check_count("keep", keep)
        self.folder = Path(folder)
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.keep = keep
        checked = Monitor(monitor or "", mode)  # checks the mode in any case
        self.monitor = None if monitor is None else checked
        self._holding = ExitStack()
        self.reset()

    def reset(self) -> None:
        """Forget the checkpoints of the run before."""
        self.best: float | None = None  # value so far
        self.best_name: str | None = None
        self._written: tuple[int, ...] = ()

    def on_start(self, run: Run) -> None:
        """Refuse a folder with checkpoints of another run, or to which another process writes."""
        if not run.is_main:
            return
        self._holding.enter_context(checkpoint.folder_of_run(self.folder))
        if run.resumed or self._written:
            return
        latest = Checkpoints.latest(self.folder)
        if latest is not None:
            raise CheckpointError(
                f"{self.folder} holds checkpoints already, {latest.name} the latest: go on with "
                "fit(..., resume=Checkpoints.latest(folder)), or give another folder"
            )

    def on_step(self, run: Run, step: Step) -> None:
        """Write a checkpoint if it is due, or if the run ends here."""
        is_due = self.every_steps is not None and run.step % self.every_steps == 0
        if run.stopped or is_due:
            self._write(run)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write a checkpoint if it is due, if the run ends here, or if it is one of the best."""
        is_best = self._observe(run, epoch)
        is_due = self.every_epochs is not None and run.epoch % self.every_epochs == 0
        if is_due or is_best or run.is_complete:
            self._write(run)

    def on_end(self, run: Run) -> None:
        """Write a checkpoint of the last state if the run is complete or interrupted.

        On Ctrl-C processes may be at different steps: a state that is spread over them is not
        gathered then.
        """
        is_due = run.is_complete
        if run.interrupted and not run.network.parallelism.state_is_collective:
            is_due = True
        is_written = self._written == tuple(run.position().values())
        with self._holding:
            if is_due and not (run.in_step or run.in_on_epoch or is_written):
                self._write(run)

    def _observe(self, run: Run, epoch: Epoch) -> bool:
        """Record the value of an epoch, and return whether it is the best so far."""
        if self.monitor is None:
            return False
        value = self.monitor.value(epoch)
        if not self.monitor.is_better(value, than=self.best):
            return False
        self.best = value
        self.best_name = _name(run)
        return True

    def _write(self, run: Run) -> None:
        state: State = {}
        if run.is_main or run.network.parallelism.state_is_collective:
            state = gather(run)
        if run.is_main:
            self._write_state(_name(run), state)
        self._written = tuple(run.position().values())

    def _write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Write the new checkpoint, remove old ones, and write the index last.

        So the index may list checkpoints that have been removed.
        """
        checkpoint.write(self.folder / name, state)
        names = [
            path.name for path in Checkpoints.all(self.folder) if path.name != name
        ]
        names.append(name)
        newest = names if self.keep is None else names[-self.keep :]
        remaining = []
        for each in names:
            if each in newest or each == self.best_name:
                remaining.append(each)
        for old in _names(self.folder) - set(remaining):
            checkpoint.remove(self.folder / old)
        index = {"checkpoints": remaining, "best": self.best_name}
        with checkpoint.refused_by_disk(self.folder / INDEX):
            replace_text(self.folder / INDEX, json.dumps(index, indent=1) + "\n")


class Checkpoints:
    """The checkpoints in the folder of a `Checkpoint` callback."""

    @staticmethod
    def all(folder: AnyPath) -> list[Path]:
        """Return every checkpoint, in the order of writing.

        Raises:
            CheckpointError: The index is damaged.
        """
        folder = Path(folder)
        present = sorted(
            name for name in _names(folder) if checkpoint.exists(folder / name)
        )
        listed = [name for name in _index(folder)["checkpoints"] if name in present]
        others = [name for name in present if name not in listed]
        return [folder / name for name in (*listed, *others)]

    @staticmethod
    def latest(folder: AnyPath) -> Path | None:
        """Return the checkpoint that was written last; None if there is none."""
        paths = Checkpoints.all(folder)
        if not paths:
            return None
        return paths[-1]

    @staticmethod
    def best(folder: AnyPath) -> Path | None:
        """Return the checkpoint of the best epoch; None if there is none."""
        best = _index(Path(folder))["best"]
        for path in Checkpoints.all(folder):
            if path.name == best:
                return path
        return None


def _check_count(name: str, count: Any) -> None:
    if count is not None:
        whole_number(name, count, 1)


def _name(run: Run) -> str:
    return f"step-{run.step:08d}"


def _names(folder: Path) -> set[str]:
    """Return the names of all checkpoints, also of those that a killed process left incomplete."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return {match[1] for match in map(_NAME.fullmatch, os.listdir(folder)) if match}
    return set()


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        if not path.exists():
            return {"checkpoints": [], "best": None}
        index = json.loads(path.read_text())
        return {
            "checkpoints": list(map(str, index["checkpoints"])),
            "best": index["best"],
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error!r}): remove it, and checkpoints are taken in the order of "
            f"their steps"
        ) from error
