"""One run from its settings: the data, the network and the optimizer they name, and the folder that it leaves."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, data, rules, weights, zoo
from deliralike.errors import SettingError, UnknownName, suggestion
from deliralike.network import AbstractNetwork
from deliralike.training.callbacks import Callback
from deliralike.training.evaluation import predict
from deliralike.training.history import History
from deliralike.training.loop import fit

SETTINGS, METRICS, CURVES, WEIGHTS = "settings.json", "metrics.jsonl", "curves.png", "weights.safetensors"

# Learning rates that train the small networks of the zoo on small images; a place to start, not a recommendation.
OPTIMIZER_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 0.003},
    "adamw": {"lr": 0.003},
    "rmsprop": {"lr": 0.001},
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides a run; the same settings with another `backend` give the same run.

    Attributes:
        network: A name in the zoo.
        network_settings: What to change in it. Channels and classes are taken from the data when not given.
        data: The name of a dataset.
        backend: The name of a backend.
        optimizer: The name of an update rule; see `deliralike.rules`.
        optimizer_settings: Its numbers.
        epochs: Passes over the data.
        batch_size: Samples in each batch.
        drop_last: Leave out a last batch that is smaller than the others.
        seed: Keys the start values, the order of the samples and the masks of random layers.
        dtype: The type to compute in.
        device: One of the backend's devices; its first when None.
    """

    network: str
    network_settings: Mapping[str, Any] = field(default_factory=dict)
    data: str = "digits"
    backend: str = "torch"
    optimizer: str = "sgd"
    optimizer_settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 5
    batch_size: int = 32
    drop_last: bool = False
    seed: int = 0
    dtype: str = "float32"
    device: str | None = None


def complete(settings: Settings, dataset: data.Dataset) -> Settings:
    """The settings with every number that was left out: the network's from the data, the optimizer's from a table.

    Raises:
        UnknownName: There is no such network or optimizer.
        ArgumentError: There is no such setting of the optimizer.
        SettingError: The network is for another task than the data.
    """
    architecture = zoo.find(settings.network)
    if architecture.task != dataset.task:
        raise SettingError(
            f"network {settings.network!r} is for {architecture.task}, dataset {dataset.name!r} is for {dataset.task}. "
            f"For {dataset.task} there are: {', '.join(zoo.list(task=dataset.task))}."
        )
    chosen = _from_data(architecture.settings, dataset) | dict(settings.network_settings)
    numbers = {**OPTIMIZER_SETTINGS.get(settings.optimizer, {}), **settings.optimizer_settings}
    rule = asdict(rules.rule(settings.optimizer, **numbers))
    return replace(settings, network_settings=chosen, optimizer_settings=rule)


def build_network(settings: Settings, dataset: data.Dataset) -> AbstractNetwork:
    """The network that complete settings name; a first batch of held-out data has been through it.

    Raises:
        ArgumentError: There is no such setting of the network.
        ShapeError: The network cannot take inputs of this shape.
    """
    options: dict[str, Any] = {"seed": settings.seed, "dtype": settings.dtype, "device": settings.device}
    network = zoo.build(settings.network, backend=settings.backend, **options, **settings.network_settings)
    next(predict(network, dataset.held_out.inputs))  # a shape that does not fit shows here, before anything is written
    return network


def train_network(
    network: AbstractNetwork, settings: Settings, dataset: data.Dataset, callbacks: Iterable[Callback] = ()
) -> History:
    """Train a network as complete settings say."""
    optimizer = network.backend.optimizer(rules.rule(settings.optimizer, **settings.optimizer_settings), network)
    names = ("epochs", "batch_size", "drop_last", "seed")
    options: dict[str, Any] = {name: getattr(settings, name) for name in names}
    return fit(optimizer, dataset.train, dataset.held_out, callbacks=callbacks, **options)


def load_run(
    folder: str | Path, backend: str | None = None, dataset: str | None = None
) -> tuple[AbstractNetwork, Settings, data.Dataset]:
    """The trained network of a run folder, on its own or another backend, with its settings and its or other data.

    Raises:
        SettingError: The folder is not that of a run.
        StateError, WeightFileError: The weights do not fit, or cannot be read.
    """
    settings = read_settings(folder)
    if backend is not None and backend != settings.backend:
        settings = replace(settings, backend=backend, device=None)
    samples = data.load(dataset or settings.data)
    network = build_network(settings, samples)
    weights.load(network, Path(folder) / WEIGHTS)
    return network, settings, samples


# The folder of a run ---------------------------------------------------------------------------------------------


def refuse_existing(path: str | Path) -> None:
    """An error when there is something of that name already: a run never writes over another."""
    if Path(path).exists():
        raise SettingError(f"{str(path)!r} exists already and is left as it is: choose another folder")


def new_folder(path: str | Path) -> Path:
    """Make a folder that was not there before, and those above it.

    Raises:
        SettingError: There is something of that name already, or it cannot be made.
    """
    refuse_existing(path)
    path = Path(path)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise SettingError(f"the folder {str(path)!r} cannot be made ({error.strerror}): choose another one") from error
    return path


def next_folder(parent: str | Path, prefix: str) -> Path:
    """Make the first folder of ``prefix-0001``, ``prefix-0002`` … that was not there before."""
    for number in range(1, 10_000):
        path = Path(parent) / f"{prefix}-{number:04d}"
        if not path.exists():
            return new_folder(path)
    raise SettingError(f"{str(parent)!r} is full: it has 9,999 folders {prefix}-…; remove some, or choose another one")


def write_settings(folder: Path, settings: Settings) -> None:
    """Write the settings, and the versions that they ran with, as JSON."""
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "backend": backends.get(settings.backend).version(),
    }
    content = json.dumps({**asdict(settings), "versions": versions}, indent=2)
    (folder / SETTINGS).write_text(content + "\n", encoding="utf-8")


def read_settings(folder: str | Path) -> Settings:
    """The settings of a run folder.

    Raises:
        SettingError: There are none, or they cannot be read.
        UnknownName: One of them is unknown here.
    """
    path = Path(folder) / SETTINGS
    content = _read_json(path)
    content.pop("versions", None)
    if several := content.get("backends"):
        raise SettingError(
            f"{str(folder)!r} holds several runs: name one, for example {str(Path(folder) / several[0])!r}"
        )
    names = [entry.name for entry in fields(Settings)]
    for name in content:
        if name not in names:
            raise UnknownName(f"{str(path)!r} has an unknown setting {name!r}. {suggestion(name, names)}")
    if "network" not in content:
        raise SettingError(f"{str(path)!r} does not name a network: it is not the folder of one run")
    return Settings(**content)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingError(f"{str(path.parent)!r} is not the folder of a run: there is no {path.name} in it") from None
    except (OSError, ValueError) as error:
        raise SettingError(f"{str(path)!r} does not hold the settings of a run: {error}") from error
    if not isinstance(content, dict):
        raise SettingError(f"{str(path)!r} does not hold the settings of a run: it is a {type(content).__name__}")
    return content


def _from_data(known: Mapping[str, Any], dataset: data.Dataset) -> dict[str, Any]:
    """What the data say about a network's settings, for those that it has."""
    found = {
        "in_channels": dataset.channels,
        "image_size": dataset.sample_shape[-1],
        "in_features": int(np.prod(dataset.sample_shape)),
        "num_classes": len(dataset.classes),
        "out_features": len(dataset.classes),
    }
    return {name: value for name, value in found.items() if name in known}
