"""One run: its preparation, its training in a folder, and the result in the folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path

from deliralike import data, weights
from deliralike.errors import SettingError
from deliralike.network import steps
from deliralike.network.base import AbstractNetwork
from deliralike.parallel import ProcessGroup, SingleProcess
from deliralike.training.callbacks import (
    Callback,
    Checkpoint,
    Checkpoints,
    EarlyStopping,
    JsonLines,
    MLflow,
    ReduceLROnPlateau,
    StopOnNaN,
    TensorBoard,
    WandB,
)
from deliralike.training.curves import draw_curves
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.building import (
    load_network,
    loaders,
    make_trainer,
    usual_losses,
)
from deliralike.training.experiment.checks import located
from deliralike.training.experiment.files import (
    read_settings,
    settings_from,
    write_settings,
)
from deliralike.training.experiment.parts import make_freezing
from deliralike.training.experiment.record import code_version, environment, origin
from deliralike.training.experiment.settings import Settings, names
from deliralike.training.history import History
from deliralike.training.interrupt import Interrupted
from deliralike.training.run import Run
from deliralike.weights.inflate import AnyPath

# The settings that may change when a run is resumed; all others decide its results.
MAY_CHANGE = (
    "backend",
    "devices",
    "workers",
    "worker_kind",
    "epochs",
    "checkpoint_blocks",
    "checkpoints",
    "tensorboard",
    "wandb",
    "mlflow",
)

# The fingerprints of a checkpoint that may differ where an accepted setting does. A setting that is
# not here has one fingerprint of its own name.
_OF_DATA = ("data", "samples", "validation")
FINGERPRINTS: Mapping[str, tuple[str, ...]] = {
    "data": _OF_DATA,
    "data_settings": _OF_DATA,
    "fold": _OF_DATA,
    "folds": _OF_DATA,
    "network_settings": ("network",),
    "optimizer_settings": ("optimizer",),
    "groups": ("optimizer",),
    "layer_decay": ("optimizer",),
    "freeze": (),
    "weights": (),
    "schedule_settings": ("schedule",),
    "seed": ("seed", "order_seed"),
    "transforms": ("transform",),
    "held_out_transforms": ("validation",),
    "batch_transforms": ("batch_transform", "loss"),
    "metrics": (),
    "early_stopping": (),
    "plateau": (),
    "stop_on_nan": (),
}
# The messages of runs of several processes.
_BEGINNING = "the checkpoint to go on from"
_END = "the end of the run"


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        folder: The folder of the run.
        settings: The complete settings.
        history: Every step and epoch, those before a resume included.
        metrics: The metrics of the final weights.
        stopped: The reason for an early end; empty otherwise.
    """

    folder: Path
    settings: Settings
    history: History = field(repr=False)
    metrics: Mapping[str, float]
    stopped: str = ""

    @cached_property
    def network(self) -> AbstractNetwork:
        """The trained network; it is read from the folder when it is not in memory."""
        return load_network(self.folder)


class _Beginning(Callback):
    """A callback that calls a function once the checkpoint, if there is one, has been loaded."""

    main_only = True

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def on_start(self, run: Run) -> None:
        """Call the function, before all other callbacks."""
        self._begin()


@dataclass
class RunPlan:
    """A run that is ready to train: its folder, its complete settings, its data and its network.

    Attributes:
        resume: Whether the run goes on from its latest checkpoint.
        accept: The settings that may differ where the run is resumed.
    """

    folder: Path
    resume: bool
    settings: Settings
    dataset: data.Dataset
    network: AbstractNetwork
    losses: steps.Losses | None = None
    callbacks: tuple[Callback, ...] = ()
    processes: ProcessGroup = field(default_factory=SingleProcess)
    accept: tuple[str, ...] = ()

    def train(self, callbacks: Iterable[Callback] = ()) -> RunResult:
        """Train in the folder.

        Raises:
            SettingError: Another process trains in the folder.
        """
        folder = self.folder
        with self.processes.report_errors(lambda: f"the run in {str(folder)!r}"):
            try:
                with self._recorded() as record:
                    self._fit(callbacks, record)
            except Interrupted as error:
                error.advice = (
                    f"to go on: run({str(folder)!r}, resume=True), or on the command line "
                    f"deliralike train --resume {folder}"
                )
                self.processes.broadcast_object(_END, None)
                raise
            self.processes.broadcast_object(_END, None)
        return load_result(folder, self.network)

    @contextmanager
    def _recorded(self) -> Iterator[run_folder.Record | None]:
        """Hold the folder and record how the run ends, in the process that writes the files.

        The curves of the whole run are drawn and its tables written at the end, also an early one.
        """
        if not self.processes.is_root:
            yield None
            return
        folder, settings = self.folder, self.settings
        title = f"{settings.network} on {self.dataset.name}, {settings.dtype}, seed {settings.seed}"
        with (
            run_folder.lock_folder(folder),
            run_folder.track_status(folder, at_once=not self.resume) as record,
        ):
            try:
                yield record
            finally:
                history = History()
                if record.has_begun:
                    history = run_folder.read_history(folder)
                if history.steps:
                    history.write_csv(folder)
                    curves = {self.network.backend.version(): history}
                    draw_curves(curves, folder / run_folder.CURVES, title)

    def _fit(
        self, callbacks: Iterable[Callback], record: run_folder.Record | None
    ) -> None:
        """Train; the process that has a record writes the weights."""
        latest = None
        first: list[Callback] = []
        if record is not None:
            if self.resume:
                latest = Checkpoints.latest(self.folder / run_folder.CHECKPOINTS)
            first.append(_Beginning(partial(self._begin, record)))
        checkpoint = self.processes.broadcast_object(_BEGINNING, latest)
        watching = [*first, *_callbacks_of(self.settings, self.folder), *self.callbacks]
        losses = self.losses
        if losses is None:
            losses = usual_losses(self.network, self.settings, self.dataset.task)
        trainer = make_trainer(
            self.network, self.settings, [*watching, *callbacks], losses
        )
        train, held_out = loaders(self.settings, self.dataset)
        accept: set[str] = set()
        for setting in self.accept:
            accept.update(FINGERPRINTS.get(setting, (setting,)))
        history = trainer.fit(
            train,
            held_out,
            epochs=self.settings.epochs,
            resume=checkpoint,
            accept=sorted(accept),
        )
        early_stopping = self.settings.early_stopping or {}
        if early_stopping.get("restore_best") or not history.epochs:
            metrics: Mapping[str, float] = trainer.evaluate(held_out)
        else:
            metrics = history.epochs[-1].held_out
        if record is not None:
            record.metrics = metrics
            record.reason = history.stopped
            with trainer.average.swap_in() if trainer.average else nullcontext():
                weights.write(self.folder / run_folder.WEIGHTS, self.network)

    def _begin(self, record: run_folder.Record) -> None:
        """Write the start of the run into the folder, now that the checkpoint has been accepted."""
        if not record.has_begun:
            record.begin()
        record_start(self.folder, self.settings, self.dataset, self.network)


def _callbacks_of(settings: Settings, folder: Path) -> Iterator[Callback]:
    """Yield new callbacks for a run in a folder."""
    yield JsonLines(folder / run_folder.METRICS)
    if settings.tensorboard:
        yield TensorBoard(folder / run_folder.TENSORBOARD)
    if settings.wandb is not None:
        yield WandB(**settings.wandb, folder=folder, config=asdict(settings))
    if settings.mlflow is not None:
        yield MLflow(**settings.mlflow, params=asdict(settings))
    yield from make_freezing(settings.freeze)
    if settings.plateau is not None:
        yield ReduceLROnPlateau(**settings.plateau)
    if settings.early_stopping is not None:
        yield EarlyStopping(**settings.early_stopping)
    if settings.stop_on_nan:
        yield StopOnNaN(settings.stop_on_nan)
    if settings.checkpoints is not None:
        yield Checkpoint(folder / run_folder.CHECKPOINTS, **settings.checkpoints)


def record_start(
    folder: Path, settings: Settings, dataset: data.Dataset, network: AbstractNetwork
) -> None:
    """Write the settings, and add this start to the records of the code and the environment."""
    write_settings(folder / run_folder.SETTINGS, settings)
    start = {
        **code_version(),
        **origin(settings.network, dataset),
        "settings": asdict(settings),
    }
    for name, entry in (
        (run_folder.CODE, start),
        (run_folder.ENVIRONMENT, environment(network)),
    ):
        path = folder / name
        before = run_folder.read_json(path) if path.exists() else []
        run_folder.write_json(path, [*before, {**entry, "seed": settings.seed}])


def load_result(folder: AnyPath, network: AbstractNetwork | None = None) -> RunResult:
    """Return the result of a run that has finished.

    Raises:
        SettingError: The folder is not that of a run, or the run has not finished.
    """
    folder = Path(folder)
    run_folder.refuse_no_run(folder)
    status = run_folder.read_status(folder)
    if status is None or status.status != run_folder.FINISHED:
        raise SettingError(f"the run in {str(folder)!r} has not finished: resume it")
    settings = _settings_of_start(folder)
    history = run_folder.read_history(folder)
    history.stopped = status.reason
    result = RunResult(folder, settings, history, status.metrics, status.reason)
    if network is not None:
        vars(result)["network"] = network
    return result


def finished_result(
    folder: Path, settings: Settings, accept: Collection[str]
) -> RunResult | None:
    """Return the result in a run's folder if it has finished all epochs of these settings.

    Returns:
        None if there are more epochs to do.

    Raises:
        SettingError: The folder is not that of a run, or the run has other settings than these.
    """
    run_folder.refuse_no_run(folder)
    status = run_folder.read_status(folder)
    has_finished = status is not None and status.status == run_folder.FINISHED
    # a finished run has the figures of the settings that it was made with, whatever the file says
    if has_finished:
        before = _settings_of_start(folder)
    else:
        before = read_settings(folder / run_folder.SETTINGS)
    refuse_another(folder, before, settings, accept)
    if has_finished and settings.epochs <= before.epochs:
        return load_result(folder)
    return None


def _settings_of_start(folder: Path) -> Settings:
    """Return the settings that a run was last started with; the file of settings may be edited."""
    with located(str(folder / run_folder.CODE)):
        return settings_from(run_folder.read_last_start(folder)["settings"])


def refuse_another(
    folder: Path, before: Settings, now: Settings, accept: Collection[str] = ()
) -> None:
    """Raise an error if a folder's run has other settings that decide its results.

    Settings in `accept` may differ.
    """
    may_differ = (*MAY_CHANGE, *accept)
    for name in names():
        old = getattr(before, name)
        new = getattr(now, name)
        if name not in may_differ and old != new:
            raise SettingError(
                f"{str(folder)!r} holds a run with {name}={old!r}, and it cannot go on with "
                f"{name}={new!r}: choose another folder, or take the change on purpose, "
                f"accept=[{name!r}] (--accept {name})"
            )
