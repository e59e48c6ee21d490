"""An experiment as one object, from settings to runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deliralike import backends, data
from deliralike.errors import SettingError
from deliralike.network import steps
from deliralike.network.base import AbstractNetwork
from deliralike.parallel import ProcessGroup, SingleProcess
from deliralike.parallel.processes.topology import place_on_node
from deliralike.training.callbacks import Callback
from deliralike.training.experiment import folder as run_folder
from deliralike.training.experiment.building import (
    build_network,
    complete,
    fold_of,
    load_data,
    name_of_given_data,
    refuse_too_few_outputs,
)
from deliralike.training.experiment.files import (
    read_settings,
    settings_from,
    write_settings,
)
from deliralike.training.experiment.folds import FoldsResult, run_folds
from deliralike.training.experiment.run import RunPlan, RunResult, finished_result
from deliralike.training.experiment.settings import Settings
from deliralike.weights.inflate import AnyPath

MakeCallbacks = Callable[[], Iterable[Callback]]


class Experiment:
    """Settings from which runs are made, in a notebook as well as on the command line.

    Args:
        settings: Settings, a file of settings, the folder of a run, or a mapping.
        dataset: Your own data in the place of those that the settings name. The record of a run
            has ``data = "own:NAME"`` then, and the data are given again to resume the run, or to
            predict with it.
        losses: As `Trainer` has them; by the data's task when left out.
        callbacks: A function that makes your own callbacks. It is called for every run, so that
            none is used twice.
        processes: The group of processes that train together, from `deliralike.join`; each makes
            the same calls, the first one writes.
        changes: Settings to change, by name.

    Raises:
        SettingError, UnknownName, ArgumentError: A setting makes no sense.

    Example:
        >>> import tempfile
        >>> settings = {"network": "mlp", "network_settings": {"hidden": [8]}}
        >>> digits = Experiment(settings, epochs=1, batch_size=256)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     result = digits.run(f"{place}/first")
        ...     sorted(path.name for path in result.folder.iterdir())[-3:]
        ['status.json', 'steps.csv', 'weights.safetensors']
        >>> digits.with_(backend="jax").settings.backend
        'jax'
    """

    def __init__(
        self,
        settings: Settings | AnyPath | Mapping[str, Any],
        *,
        dataset: data.Dataset | None = None,
        losses: steps.Losses | None = None,
        callbacks: MakeCallbacks | None = None,
        processes: ProcessGroup | None = None,
        **changes: Any,
    ) -> None:
        """Check the settings; nothing is loaded."""
        if dataset is not None:
            changes |= {"data": name_of_given_data(dataset), "data_settings": {}}
        self.settings = _settings(settings).with_(**changes)
        self.dataset = dataset
        self.losses = losses
        self.callbacks: MakeCallbacks = callbacks or tuple
        self.processes = SingleProcess() if processes is None else processes

    def with_(self, **changes: Any) -> Experiment:
        """Return another experiment with these settings changed."""
        return Experiment(
            self.settings.with_(**changes),
            dataset=self.dataset,
            losses=self.losses,
            callbacks=self.callbacks,
            processes=self.processes,
        )

    def run(
        self,
        folder: AnyPath | None = None,
        *,
        resume: bool = False,
        callbacks: Iterable[Callback] = (),
        accept: Sequence[str] = (),
    ) -> RunResult:
        """Train, and write everything into a folder.

        Args:
            folder: A new folder; the next of ``runs/NETWORK-0001``, ``-0002`` … when left out.
            resume: Go on with the run in `folder` at its position, if the folder exists. A finished
                run is not repeated: its result is returned. Backend, devices and the number of
                epochs may have changed.
            callbacks: More callbacks, for this run.
            accept: Settings, or fingerprints as `Trainer.fit` has them, that may differ where the
                run goes on: ``["clip_norm", "loss"]``.

        Raises:
            SettingError: The folder exists already, is in use, or holds another run; or there are
                several folds.
            CheckpointError: The checkpoint is one of another run. The folder does not change.
            KeyboardInterrupt: Ctrl-C; the folder can be resumed.
        """
        plan = self.plan(folder, resume=resume, accept=accept)
        if isinstance(plan, RunResult):
            return plan
        return plan.train(callbacks)

    def plan(
        self,
        folder: AnyPath | None = None,
        *,
        resume: bool = False,
        accept: Sequence[str] = (),
    ) -> RunPlan | RunResult:
        """Return a run that is ready to train in its folder; if it has finished, its result.

        Arguments and errors are those of `run`. The folder is made last, after all errors.
        """
        settings, dataset = self.complete()
        place = Path(folder or "")
        exists_here = resume and folder is not None and place.exists()
        goes_on = self.processes.broadcast_object(
            "whether the folder is there", exists_here
        )
        if goes_on:
            result = finished_result(place, settings, accept)
            if result is not None:
                return result
        return self.plan_with(settings, dataset, folder, goes_on=goes_on, accept=accept)

    def plan_with(
        self,
        settings: Settings,
        dataset: data.Dataset,
        folder: AnyPath | None,
        *,
        goes_on: bool,
        accept: Sequence[str] = (),
    ) -> RunPlan:
        """Return a run of complete settings in a folder, which is there if the run goes on."""
        network = self._network(settings, dataset)
        callbacks = tuple(self.callbacks())
        place = Path(folder or "")
        if not goes_on:
            place = self.new_folder(folder, settings)
        return RunPlan(
            place,
            goes_on,
            settings,
            dataset,
            network,
            self.losses,
            callbacks,
            self.processes,
            tuple(accept),
        )

    def new_folder(self, folder: AnyPath | None, settings: Settings) -> Path:
        """Make the folder of a run, once for all processes."""
        new = None
        if self.processes.is_root:
            new = run_folder.new_or_next_folder(folder, settings.short_name)
            # Written at once: a run that is killed from here on can be resumed.
            write_settings(new / run_folder.SETTINGS, settings)
        return self.processes.broadcast_object("the folder of the run", new)

    def folds(self, k: int | None = None, folder: AnyPath | None = None) -> FoldsResult:
        """Cross-validate: make a run for each fold, in ``folder/fold-1``, ``fold-2`` ….

        Every fold has its own network, optimizer, callbacks and log, so a single one,
        ``with_(folds=5, fold=2)``, is the same as among all. Where the folder has folds of the
        same settings already, finished ones are not repeated, and an interrupted one goes on.

        Args:
            k: The number of folds; the settings' own when left out.
            folder: The next of ``runs/NETWORK-folds-0001`` … when left out.

        Raises:
            SettingError: The folder holds something else, or there are too few samples.
        """
        experiment = self if k is None else self.with_(folds=k, fold=None)
        return run_folds(experiment.settings, folder, experiment.run_fold)

    def run_fold(self, folder: Path, fold: int) -> RunResult:
        """Run one fold in its folder, or resume it; return the old result if it has finished."""
        return self.with_(fold=fold).run(folder, resume=True)

    def complete(self) -> tuple[Settings, data.Dataset]:
        """Return the data, and the settings with every number that was left out.

        Raises:
            SettingError: There are several folds, or the network is for another task.
            UnknownName, ArgumentError: There is no such dataset or option.
        """
        if self.settings.folds is not None and self.settings.fold is None:
            raise SettingError(
                f"these settings are of {self.settings.folds} folds: call folds(), or choose one "
                "of them with fold=1"
            )
        if self.dataset is None:
            dataset = load_data(self.settings)
        else:
            dataset = fold_of(self.dataset, self.settings)
        settings = complete(self.settings, dataset)
        if self.losses is None:
            refuse_too_few_outputs(settings, dataset)
        return settings, dataset

    def _network(self, settings: Settings, dataset: data.Dataset) -> AbstractNetwork:
        """Build the network of complete settings on the devices of this process."""
        if settings.rng == "native":
            # Before layers make streams of their own.
            backends.get(settings.backend).seed(settings.seed)
        here = settings.with_(
            devices=device_of_process(settings.devices, self.processes)
        )
        return backends.DistributedDataParallel(
            build_network(here, dataset), self.processes, buffers=here.buffers
        )


def device_of_process(devices: Sequence[str], processes: ProcessGroup) -> Sequence[str]:
    """Return the device of this process among its node's; all devices if there is one process.

    Raises:
        SettingError: There are more processes on this node than devices.
    """
    if processes.count == 1 or len(devices) < 2:
        return devices
    place = place_on_node(processes)
    if place >= len(devices):
        raise SettingError(
            f"{processes} is number {place} on its node, which has the devices {list(devices)}: "
            "name one for each process, or one for all"
        )
    return devices[place : place + 1]


def _settings(given: Any) -> Settings:
    if isinstance(given, Settings):
        return given
    if isinstance(given, Mapping):
        return settings_from(given)
    if not isinstance(given, str | os.PathLike):
        raise SettingError(
            "an experiment is made from Settings, a file or a mapping, not a "
            f"{type(given).__name__}"
        )
    path = Path(given)
    if path.is_dir():
        path = path / run_folder.SETTINGS
    return read_settings(path)
