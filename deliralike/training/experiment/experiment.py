"""An experiment as one object, from settings to runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from deliralike import backends, data, steps
from deliralike.errors import SettingError
from deliralike.parallel import Alone, Processes
from deliralike.parallel.nodes import place_on_node
from deliralike.training.callbacks import Callback
from deliralike.training.experiment import folder as at
from deliralike.training.experiment.building import (
    build_network,
    complete,
    fold_of,
    load_data,
    own_data,
)
from deliralike.training.experiment.files import read_settings, settings_from, write_settings
from deliralike.training.experiment.folds import FoldsResult, run_folds
from deliralike.training.experiment.run import Prepared, RunResult, finished_result
from deliralike.training.experiment.settings import Settings

MakeCallbacks = Callable[[], Iterable[Callback]]


class Experiment:
    """A run that can be made: from settings, in a notebook as well as on the command line.

    Args:
        settings: They themselves, a file of them, the folder of a run, or a mapping.
        dataset: Data of your own in the place of those that the settings name. A run's record says
            so, ``data = "own:NAME"``: whoever goes on with the run, or predicts with it, gives them
            again.
        losses: As `Trainer` has them; by the data's task when left out.
        callbacks: A function that makes callbacks of your own. It is called for every run, so that
            none is used twice.
        processes: Those that train together, from `deliralike.join`; each makes the same calls, the
            first one writes.
        changes: Settings to set instead, by name.

    Raises:
        SettingError, UnknownName, ArgumentError: A setting makes no sense.

    Example:
        >>> import tempfile
        >>> digits = Experiment({"network": "mlp", "network_settings": {"hidden": [8]}}, epochs=1, batch_size=256)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     result = digits.run(f"{place}/first")
        ...     sorted(path.name for path in result.folder.iterdir())[-3:]
        ['status.json', 'steps.csv', 'weights.safetensors']
        >>> digits.with_(backend="jax").settings.backend
        'jax'
    """

    def __init__(
        self,
        settings: Settings | str | PathLike[str] | Mapping[str, Any],
        *,
        dataset: data.Dataset | None = None,
        losses: steps.Losses | None = None,
        callbacks: MakeCallbacks | None = None,
        processes: Processes | None = None,
        **changes: Any,
    ) -> None:
        """Check the settings; nothing is loaded."""
        own = {} if dataset is None else {"data": own_data(dataset), "data_settings": {}}
        self.settings = _settings(settings).with_(**{**changes, **own})
        self.dataset, self.losses, self.callbacks = dataset, losses, callbacks or tuple
        self.processes = Alone() if processes is None else processes

    def __repr__(self) -> str:
        chosen = self.settings
        return f"Experiment({chosen.network} on {self._name_of_data()}, {chosen.backend}, {chosen.epochs} epochs)"

    def with_(self, **changes: Any) -> Experiment:
        """Another experiment with these settings changed; this one stays as it is."""
        names = ("dataset", "losses", "callbacks", "processes")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Experiment(self.settings.with_(**changes), **options)

    def run(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        resume: bool = False,
        callbacks: Iterable[Callback] = (),
        accept: Sequence[str] = (),
    ) -> RunResult:
        """Train, and leave everything in a folder.

        Args:
            folder: A new one; the next of ``runs/NETWORK-0001``, ``-0002`` … when left out.
            resume: Go on with the run in `folder` where it stood, if it is there. A finished run is
                not repeated: its result is returned. Backend, devices and the number of epochs may
                have changed.
            callbacks: More of them, for this run.
            accept: Settings, or fingerprints as `Trainer.fit` has them, that may differ where the
                run goes on: ``["clip_norm", "loss"]``.

        Raises:
            SettingError: The folder is there already, is in use, or holds another run; or there are
                several folds.
            CheckpointError: The checkpoint is one of another run. The folder is left as it was.
            KeyboardInterrupt: Ctrl-C; the folder can be resumed.
        """
        settings, dataset = self.complete()
        there = resume and folder is not None and Path(folder).exists()
        existing = (
            Path(folder or "")
            if self.processes.of_root("whether the folder is there", there)
            else None
        )
        if existing is not None and (result := finished_result(existing, settings, accept)):
            return result
        prepared = self.prepare(settings, dataset, accept)
        if existing is not None:
            return prepared.train(existing, callbacks, resume=True)
        return prepared.train(self.new_folder(folder, settings), callbacks)

    def new_folder(self, folder: str | PathLike[str] | None, settings: Settings) -> Path:
        """Make the folder of a run, once for all processes."""
        made = None
        if self.processes.is_root:
            made = at.new_or_next_folder(folder, settings.network)
            write_settings(
                made / at.SETTINGS, settings
            )  # at once: what is killed from here on can be gone on with
        return self.processes.of_root("the folder of the run", made)

    def folds(self, k: int | None = None, folder: str | PathLike[str] | None = None) -> FoldsResult:
        """Cross-validation: a run for each fold, in ``folder/fold-1``, ``fold-2`` …, each from a fresh start.

        Every fold has its own network, optimizer, callbacks and log, so one alone,
        ``with_(folds=5, fold=2)``, is the same as in the row. Where the folder has folds of the
        same settings already, finished ones are not repeated, and one that was interrupted goes on.

        Args:
            k: The number of folds; the settings' own when left out.
            folder: The next of ``runs/NETWORK-folds-0001`` … when left out.

        Raises:
            SettingError: The folder holds something else, or there are too few samples.
        """
        experiment = self if k is None else self.with_(folds=k, fold=None)
        return run_folds(experiment.settings, folder, experiment.run_fold)

    def run_fold(self, folder: Path, fold: int) -> RunResult:
        """Run one fold in its folder, or go on with it; the result that is there when it has finished."""
        return self.with_(fold=fold).run(folder, resume=True)

    def complete(self) -> tuple[Settings, data.Dataset]:
        """The data, and the settings with every number that was left out.

        Raises:
            SettingError: There are several folds, or the network is for another task.
            UnknownName, ArgumentError: There is no such dataset or option.
        """
        if self.settings.folds is not None and self.settings.fold is None:
            raise SettingError(
                f"these settings are of {self.settings.folds} folds: call folds(), or choose one "
                "of them with fold=1"
            )
        dataset = (
            load_data(self.settings)
            if self.dataset is None
            else fold_of(self.dataset, self.settings)
        )
        return complete(self.settings, dataset), dataset

    def prepare(
        self, settings: Settings, dataset: data.Dataset, accept: Sequence[str] = ()
    ) -> Prepared:
        """Build the network of complete settings: whatever can go wrong does so before a folder is made."""
        if settings.rng == "native":
            backends.get(settings.backend).seed(
                settings.seed
            )  # before layers make streams of their own
        here = settings.with_(devices=device_here(settings.devices, self.processes))
        network = backends.DistributedDataParallel(build_network(here, dataset), self.processes)
        callbacks = tuple(self.callbacks())
        return Prepared(
            settings, dataset, network, self.losses, callbacks, self.processes, tuple(accept)
        )

    def _name_of_data(self) -> str:
        return self.settings.data if self.dataset is None else self.dataset.name


def device_here(devices: Sequence[str], processes: Processes) -> Sequence[str]:
    """Of a node's devices the one of this process; all of them where it is alone.

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
    if not isinstance(given, str | PathLike):
        raise SettingError(
            "an experiment is made from Settings, a file or a mapping, not a "
            f"{type(given).__name__}"
        )
    path = Path(given)
    return read_settings(path / at.SETTINGS if path.is_dir() else path)
