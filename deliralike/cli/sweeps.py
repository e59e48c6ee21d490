"""``--seeds`` and ``--grid``: the runs of one call, each in a folder of its own."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from deliralike.cli import runs
from deliralike.cli.console import say
from deliralike.cli.options import key_values
from deliralike.errors import SettingError

if TYPE_CHECKING:
    from deliralike.training.experiment import Experiment


def combinations(
    grid: Iterable[str], seeds: int | None, first_seed: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each run's folder and what it sets, as ``--set`` does.

    Args:
        grid: ``KEY=VALUE,VALUE``; the runs have every combination.
        seeds: How many seeds each combination is trained with, from `first_seed` on.

    Raises:
        SettingError: An entry is no grid, a key is given twice, or two runs have one name.

    Example:
        >>> for name, values in combinations(["optimizer.lr=0.1,0.01"], 2):
        ...     print(name, values)
        optimizer.lr=0.1_seed=0 {'optimizer.lr': 0.1, 'seed': 0}
        optimizer.lr=0.1_seed=1 {'optimizer.lr': 0.1, 'seed': 1}
        optimizer.lr=0.01_seed=0 {'optimizer.lr': 0.01, 'seed': 0}
        optimizer.lr=0.01_seed=1 {'optimizer.lr': 0.01, 'seed': 1}
    """
    axes: dict[str, list[Any]] = {}
    for text in grid:
        key, values = _axis(text)
        if key in axes:
            raise SettingError(f"--grid {text!r}: {key!r} is given twice")
        axes[key] = values
    if seeds is not None:
        if "seed" in axes:
            raise SettingError("--seeds and --grid seed=… say the same: leave one away")
        axes["seed"] = [*range(first_seed, first_seed + seeds)]
    names = set()
    for choice in itertools.product(*axes.values()):
        chosen = dict(zip(axes, choice, strict=True))
        words = [f"{key}={value}" for key, value in chosen.items()]
        name = re.sub(r"[^\w.=+-]+", "-", "_".join(words))
        if name in names:
            raise SettingError(
                f"--grid: two runs would have the folder {name!r}: leave one of the values away"
            )
        names.add(name)
        yield name, chosen


def _axis(text: str) -> tuple[str, list[Any]]:
    """Return a key and its values; commas within brackets and quotes belong to a value."""
    key, equals, values = text.partition("=")
    parts = re.findall(r"""(?:\[[^]]*\]|\([^)]*\)|"[^"]*"|'[^']*'|[^,])+""", values)
    if not (key.strip() and equals and parts):
        raise SettingError(f"--grid {text!r}: wanted KEY=VALUE,VALUE")
    listed: list[Any] = []
    for part in parts:
        listed += key_values([f"{key}={part}"], "--grid").values()
    return key.strip(), listed


def train_all(
    experiments: Mapping[str, "Experiment"],
    out: Path | None,
    train: Callable[["Experiment", Path], None],
) -> None:
    """Train each run that has not finished, in a folder of `out`, and list them.

    Args:
        experiments: By the name of the run's folder.
        train: Trains one in its folder, or goes on with it.

    Raises:
        SettingError: A setting makes no sense, or there are several processes.
    """
    from deliralike.training.experiment.folder import next_folder

    first = next(iter(experiments.values()))
    if first.processes.count > 1:
        raise SettingError(
            "--seeds and --grid make runs one after the other: leave 'deliralike launch' away"
        )
    settings, _ = first.complete()  # mistakes are reported before there is a folder
    parent = out or next_folder("runs", settings.short_name)
    for number, (name, experiment) in enumerate(experiments.items(), 1):
        say(f"run {number} of {len(experiments)}: {name}", "bold")
        try:
            train(experiment, parent / name)
        except typer.Exit:
            say(f"the same call with --out {parent} goes on with all runs")
            raise
    runs.command(parent, mean=True)
