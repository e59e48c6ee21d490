"""One run: what is ready to train, training in a folder, and the result that the folder holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any

from deliralike import data, steps, weights
from deliralike.errors import SettingError
from deliralike.network import AbstractNetwork
from deliralike.parallel import Alone, Processes
from deliralike.training.callbacks import Callback
from deliralike.training.curves import draw_curves
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.building import load_network, loaders, make_trainer
from deliralike.training.experiment.files import read_settings, write_settings
from deliralike.training.experiment.record import code_version, environment
from deliralike.training.experiment.settings import Settings
from deliralike.training.experiment.watching import callbacks_of, latest_checkpoint
from deliralike.training.history import History
from deliralike.training.interrupt import Interrupted
from deliralike.training.run import Run
from deliralike.training.trainer import Trainer

# What may change when a run is resumed; all else decides what it computes.
MAY_CHANGE = (
    "backend",
    "devices",
    "workers",
    "worker_kind",
    "epochs",
    "checkpoints",
    "pictures",
    "tensorboard",
)

# What may differ in a checkpoint, by its fingerprints, where a setting does; the setting's own name
# where none is here.
_OF_DATA = ("data", "samples", "validation")
FINGERPRINTS: Mapping[str, tuple[str, ...]] = {
    "data": _OF_DATA,
    "data_settings": _OF_DATA,
    "fold": _OF_DATA,
    "folds": _OF_DATA,
    "network_settings": ("network",),
    "optimizer_settings": ("optimizer",),
    "groups": ("optimizer",),
    "schedule_settings": ("schedule",),
    "seed": ("seed", "order_seed"),
    "transforms": ("transform",),
    "held_out_transforms": ("validation",),
    "metrics": (),
    "early_stopping": (),
    "stop_on_nan": (),
}
_BEGINNING, _END = (
    "the checkpoint to go on from",
    "the end of the run",
)  # of runs of several processes


@dataclass(frozen=True)
class RunResult:
    """What a run has left.

    Attributes:
        folder: Where everything is.
        settings: What it was made with, complete.
        history: Every step and epoch, those before a resume included.
        metrics: What the final weights were judged at.
        stopped: Why it ended early; empty when it did not.
    """

    folder: Path
    settings: Settings
    history: History = field(repr=False)
    metrics: Mapping[str, float]
    stopped: str = ""
    _network: list[AbstractNetwork] = field(default_factory=list, repr=False, compare=False)

    @property
    def network(self) -> AbstractNetwork:
        """The trained network; it is read from the folder when it is not in memory."""
        if not self._network:
            self._network.append(load_network(self.folder))
        return self._network[0]


class _Beginning(Callback):
    """Tells that the run goes on: the checkpoint, if there is one, fits it."""

    main_only = True

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def on_start(self, run: Run) -> None:
        """Before all others."""
        self._begin()


@dataclass
class Prepared:
    """A run that is ready: its complete settings, data and network; and what may differ where it is resumed."""

    settings: Settings
    dataset: data.Dataset
    network: AbstractNetwork
    losses: steps.Losses | None = None
    callbacks: tuple[Callback, ...] = ()
    processes: Processes = field(default_factory=Alone)
    accept: tuple[str, ...] = ()

    def train(
        self, folder: Path, callbacks: Iterable[Callback] = (), *, resume: bool = False
    ) -> RunResult:
        """Train in a folder that has been made; from its latest checkpoint when it is resumed.

        Raises:
            SettingError: Another process trains in the folder.
        """
        train = self._train_first if self.processes.is_root else self._train_along
        with self.processes.telling(lambda: f"the run in {str(folder)!r}"):
            try:
                train(folder, callbacks, resume)
            except Interrupted:
                self.processes.of_root(_END, None)
                raise
            self.processes.of_root(_END, None)
        return load_result(folder, self.network)

    def _train_first(self, folder: Path, callbacks: Iterable[Callback], resume: bool) -> None:
        """What the first process does: it writes."""
        with (
            at.held(folder),
            at.recorded(folder, at_once=not resume) as record,
            self._drawn(folder, record),
        ):
            checkpoint = self.processes.of_root(
                _BEGINNING, latest_checkpoint(folder) if resume else None
            )
            beginning = _Beginning(lambda: self._begin(folder, record, anew=checkpoint is None))
            trainer = self._trainer(folder, callbacks, [beginning])
            train, held_out = loaders(self.settings, self.dataset)
            history = trainer.fit(
                train,
                held_out,
                epochs=self.settings.epochs,
                resume=checkpoint,
                accept=self._accepted(),
            )
            record.reason, record.metrics = (
                history.stopped,
                self._judged(trainer, history, held_out),
            )
            with trainer.average.applied() if trainer.average else nullcontext():
                weights.write(folder / at.WEIGHTS, self.network)

    def _begin(self, folder: Path, record: at.Record, anew: bool) -> None:
        """Change the folder, now that the run is the one that it holds."""
        if anew:
            _forget(folder)
        if not record.has_begun:
            record.begin()
        write_settings(folder / at.SETTINGS, self.settings)
        self._record(folder)

    def _accepted(self) -> list[str]:
        """The fingerprints that may differ, of the settings that may."""
        return sorted({each for name in self.accept for each in FINGERPRINTS.get(name, (name,))})

    def _train_along(self, folder: Path, callbacks: Iterable[Callback], resume: bool) -> None:
        """What the others do: all but writing."""
        checkpoint = self.processes.of_root(_BEGINNING, None)
        trainer = self._trainer(folder, callbacks)
        train, held_out = loaders(self.settings, self.dataset)
        history = trainer.fit(
            train, held_out, epochs=self.settings.epochs, resume=checkpoint, accept=self._accepted()
        )
        self._judged(trainer, history, held_out)

    @contextmanager
    def _drawn(self, folder: Path, record: at.Record) -> Iterator[None]:
        """Draw the curves of the whole run at the end, also when it came early."""
        settings = self.settings
        title = f"{settings.network} on {self.dataset.name}, {settings.dtype}, seed {settings.seed}"
        try:
            yield
        finally:
            if record.has_begun and (history := at.read_history(folder)).steps:
                draw_curves({self.network.backend.version(): history}, folder / at.CURVES, title)

    def _trainer(
        self, folder: Path, callbacks: Iterable[Callback], first: Iterable[Callback] = ()
    ) -> Trainer:
        own = callbacks_of(self.settings, self.dataset, folder)
        every = [*first, *own, *self.callbacks, *callbacks]
        return make_trainer(self.network, self.settings, every, self.losses)

    def _judged(
        self, trainer: Trainer, history: History, held_out: data.Loader
    ) -> Mapping[str, float]:
        """What the final weights are worth: as the last epoch said, unless earlier ones have been put back."""
        restored = bool((self.settings.early_stopping or {}).get("restore_best"))
        return (
            trainer.evaluate(held_out)
            if restored or not history.epochs
            else history.epochs[-1].held_out
        )

    def _record(self, folder: Path) -> None:
        """Add this start to the records of the code and the environment."""
        for name, entry in ((at.CODE, code_version()), (at.ENVIRONMENT, environment(self.network))):
            before = at.read_json(folder / name) if (folder / name).exists() else []
            at.write_json(folder / name, [*before, {**entry, "seed": self.settings.seed}])


def load_result(folder: str | PathLike[str], network: AbstractNetwork | None = None) -> RunResult:
    """The result of a run that has finished.

    Raises:
        SettingError: The folder is not that of a run, or the run has not finished.
    """
    folder = Path(folder)
    at.refuse_no_run(folder)
    status = at.read_status(folder)
    if status is None or status.status != at.FINISHED:
        raise SettingError(f"the run in {str(folder)!r} has not finished: resume it")
    settings, history = read_settings(folder / at.SETTINGS), at.read_history(folder)
    history.stopped = status.reason
    return RunResult(
        folder, settings, history, status.metrics, status.reason, [network] if network else []
    )


def finished_result(
    folder: Path, settings: Settings, accept: Collection[str] = ()
) -> RunResult | None:
    """The result in a run's folder, if it has finished all epochs of these settings; None if there is more to do.

    Raises:
        SettingError: The folder is not that of a run, or the run has other settings than these.
    """
    at.refuse_no_run(folder)
    before = read_settings(folder / at.SETTINGS)
    refuse_another(folder, before, settings, accept)
    return load_result(folder) if is_finished(folder) and settings.epochs <= before.epochs else None


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a run that has come to its end."""
    status = at.read_status(folder)
    return status is not None and status.status == at.FINISHED


def refuse_another(
    folder: Path, before: Settings, now: Settings, accept: Collection[str] = ()
) -> None:
    """An error when a folder's run has other settings that decide what it computes, and they are not accepted."""
    for each in fields(Settings):
        old, new = getattr(before, each.name), getattr(now, each.name)
        if each.name not in (*MAY_CHANGE, *accept) and not _same(old, new):
            raise SettingError(
                f"{str(folder)!r} holds a run with {each.name}={old!r}, and it cannot go on with "
                f"{each.name}={new!r}: choose another folder, or take the change on purpose, "
                f"accept=[{each.name!r}] (--accept {each.name})"
            )


def _same(old: Any, new: Any) -> bool:
    return old == new or (
        isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new)
    )


def _forget(folder: Path) -> None:
    """Take away what a run has recorded that was killed before its first checkpoint."""
    for name in (at.METRICS, *at.TABLES):
        (folder / name).unlink(missing_ok=True)
