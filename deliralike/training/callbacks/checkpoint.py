"""Checkpoints of a run, written as it goes: the newest ones and the best one are kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import CheckpointError, SettingError
from deliralike.training import checkpoint
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.callbacks.writer import Writer
from deliralike.training.fields import NUMBER, TEXT, refuse_wrong_fields
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run
from deliralike.training.state import gather

INDEX = "checkpoints.json"
_NAME = re.compile(r"\.?(step-[0-9]+)(?:\.new|\.old|\.gone|\.lock)?")
AnyPath = str | os.PathLike[str]
_FIELDS = {"best": NUMBER.or_none(), "best_name": TEXT.or_none()}


class Checkpoint(Writer):
    """Write all that a run needs to go on, so that ``fit(..., resume=folder)`` gives what would have come.

    One is written when it is due, when the run ends, and on Ctrl-C; none while an error ends the run, whose state may
    be half of one step and half of the next. The disk holds it before the next step begins. One that cannot be written
    ends the run with an error, and those from before are kept.

    Args:
        folder: Holds ``step-00000123`` and so on, by the number of finished steps, and ``checkpoints.json``, which
            lists them in the order of writing and names the best one; see `Checkpoints`.
        every_epochs: After how many epochs one is due; None for none.
        every_steps: After how many steps one is due; None for none.
        keep: How many of the newest ones are kept; None for all of them.
        monitor: A metric on validation data; an epoch that is better than all before is written whether due or not.
        mode: ``"min"`` where less is better, ``"max"`` where more is. NaN is never better.
        best: Whether the best one is kept besides the newest.

    Attributes:
        best: The best value so far; None when there is none.

    Raises:
        SettingError: An option makes no sense.
        CheckpointError: The folder holds the checkpoints of another run, another process is writing to it, which is
            named, or the disk refuses.
        UnknownName: There is no such metric.

    Example:
        >>> import tempfile
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
        best: bool = True,
    ) -> None:
        """Nothing has been written yet."""
        for name, count in (("every_epochs", every_epochs), ("every_steps", every_steps), ("keep", keep)):
            whole = isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= 1
            if count is not None and not whole:
                raise SettingError(f"{name}={count!r} must be a whole number of at least 1, or None")
        self.folder = Path(folder)
        self.every_epochs, self.every_steps, self.keep = every_epochs, every_steps, keep
        judge = Monitor(monitor or "", mode)
        self.monitor = None if monitor is None else judge
        self.keep_best = best
        self.best: float | None = None
        self._best_name: str | None = None
        self._written: tuple[int, ...] = ()
        self._holding = ExitStack()

    def on_start(self, run: Run) -> None:
        """Refuse a folder with the checkpoints of another run, or to which another process writes."""
        if not run.is_main:
            return
        self._holding.enter_context(checkpoint.folder_of_run(self.folder))
        found = [] if run.resumed or self._written else Checkpoints.all(self.folder)
        if found:
            raise CheckpointError(f"{self.folder} holds checkpoints already, {found[-1].name} the latest: go on with "
                                  f"fit(..., resume=Checkpoints.latest(folder)), or give another folder")  # fmt: skip

    def on_step(self, run: Run, step: Step) -> None:
        """Write one if it is due, or if the run ends here."""
        if run.stopped or (self.every_steps is not None and run.step % self.every_steps == 0):
            self._write(run)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write one if it is due, if the run ends here, or if the epoch is the best one."""
        is_best = self._is_best(epoch)
        if is_best:
            self.best, self._best_name = self.monitor.value(epoch), _name(run)  # type: ignore[union-attr]
        due = self.every_epochs is not None and run.epoch % self.every_epochs == 0
        if due or is_best or run.is_complete:
            self._write(run)

    def on_end(self, run: Run) -> None:
        """Write one if the run came to an end, or to Ctrl-C, and its last state is not written yet.

        On Ctrl-C processes may be at different steps: one whose state is spread over them is not gathered then.
        """
        ended = run.is_complete or (run.interrupted and not run.network.parallelism.state_is_collective)
        with self._holding:
            if ended and not run.in_step and self._written != tuple(run.position().values()):
                self._write(run)

    def state(self) -> dict[str, Any]:
        """The best value so far, and where it is."""
        return {"best": self.best, "best_name": self._best_name}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Judge the next epochs by that value."""
        refuse_wrong_fields("state of Checkpoint", state, _FIELDS)
        self.best, self._best_name = state["best"], state["best_name"]

    def _is_best(self, epoch: Epoch) -> bool:
        return self.monitor is not None and self.monitor.is_better(self.monitor.value(epoch), than=self.best)

    def _write(self, run: Run) -> None:
        state = gather(run) if run.is_main or run.network.parallelism.state_is_collective else {}
        if run.is_main:
            self._write_state(_name(run), state)
        self._written = tuple(run.position().values())

    def _write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """First the new one, then those that go, last the index: what it lists and is not there has gone."""
        checkpoint.write(self.folder / name, state)
        names = [path.name for path in Checkpoints.all(self.folder) if path.name != name] + [name]
        newest = names if self.keep is None else names[-self.keep :]
        kept = [each for each in names if each in newest or (each == self._best_name and self.keep_best)]
        for gone in _names(self.folder) - set(kept):
            checkpoint.remove(self.folder / gone)
        _write_index(self.folder, {"checkpoints": kept, "best": self._best_name})


class Checkpoints:
    """What is in the folder of a `Checkpoint` callback."""

    @staticmethod
    def all(folder: AnyPath) -> list[Path]:
        """Every checkpoint, in the order of writing.

        Raises:
            CheckpointError: The list of them is damaged.
        """
        folder = Path(folder)
        there = sorted(name for name in _names(folder) if checkpoint.exists(folder / name))
        known = [name for name in _index(folder)["checkpoints"] if name in there]
        return [folder / name for name in [*known, *(name for name in there if name not in known)]]

    @staticmethod
    def latest(folder: AnyPath) -> Path | None:
        """The one that was written last; None when there is none."""
        return next(reversed(Checkpoints.all(folder)), None)

    @staticmethod
    def best(folder: AnyPath) -> Path | None:
        """That of the best epoch; None when there is none."""
        best = _index(Path(folder))["best"]
        return next((path for path in Checkpoints.all(folder) if path.name == best), None)


def _name(run: Run) -> str:
    return f"step-{run.step:08d}"


def _names(folder: Path) -> set[str]:
    """The checkpoints there are, and those that a killed process left half written or half removed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return {match[1] for match in map(_NAME.fullmatch, os.listdir(folder)) if match}
    return set()


def _index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    try:
        found = json.loads(path.read_text()) if path.exists() else {"checkpoints": [], "best": None}
        return {"checkpoints": [str(name) for name in found["checkpoints"]], "best": found["best"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({error!r}): remove it, and checkpoints are taken in the order of "
                              f"their steps") from error  # fmt: skip


def _write_index(folder: Path, index: Mapping[str, Any]) -> None:
    new = folder / f".{INDEX}.new"
    try:
        with new.open("w") as file:
            file.write(json.dumps(index, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / INDEX)
    except OSError as error:
        raise CheckpointError(f"{folder / INDEX} was not written: {error.strerror or error}") from error
