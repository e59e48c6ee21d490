"""The table of ``deliralike runs``: what varies among runs, and means over seeds and folds."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import TYPE_CHECKING, Any

from deliralike.errors import refuse_unknown

if TYPE_CHECKING:
    from deliralike.training.experiment.compare import Row

_REPEATS = ("seed", "fold")  # what repetitions of one experiment differ in
# Settings with a column of their own, or that say where a run computes and not what.
_NO_COLUMN = ("network", "backend", "data", "epochs", "devices", "fold", "folds")


@dataclass(frozen=True)
class Record:
    """A line of the table.

    Attributes:
        cells: The values by column.
        varying: The settings among them.
        deviation: The standard deviation of the best and the last figure, for a line of several
            runs.
        rising: Whether a higher figure is better.
    """

    cells: Mapping[str, Any]
    varying: Sequence[str] = ()
    deviation: Mapping[str, float] = dataclasses.field(default_factory=dict)
    rising: bool = True

    def shown(self) -> dict[str, str]:
        """Return the cells as texts."""
        texts = {}
        for name, value in self.cells.items():
            if name == "time":
                texts[name] = _time(value)
            elif name in ("best", "last"):
                texts[name] = _figure(value, self.deviation.get(name))
            else:
                texts[name] = "-" if value is None else str(value)
        return texts


def records(runs: Mapping[str, Row]) -> list[Record]:
    """Return a line for each run, with a column for each setting that varies among them."""
    from deliralike.training.experiment.compare import higher_is_better

    settings = {name: _settings(row) for name, row in runs.items()}
    varying = _varying(list(settings.values()))
    found = []
    for name, row in runs.items():
        known = settings[name]
        cells: dict[str, Any] = {"run": name}
        cells |= {key: known.get(key) for key in ("network", "backend", "data")}
        cells |= {key: settings[name].get(key) for key in varying}
        cells |= {
            "runs": 1,
            "epochs": f"{len(row.history.epochs)}/{known.get('epochs', '-')}",
            "metric": row.metric or None,
            "best": row.best,
            "last": row.last,
            "time": row.seconds,
            "status": row.status,
        }
        found.append(Record(cells, varying, rising=higher_is_better(row.metric)))
    return found


def _settings(row: Row) -> dict[str, Any]:
    """Return the settings of a run by name; files in its own folder without the folder."""
    known = {}
    for name, value in _flat(row.settings):
        is_path = name in ("network", "weights") and isinstance(value, str)
        known[name] = value.removeprefix(f"{row.folder}/") if is_path else value
    return known


def sorted_by(listed: Sequence[Record], column: str) -> list[Record]:
    """Return the lines in the order of a column, the best figure first, those without one last.

    Raises:
        UnknownName: There is no such column.
    """
    columns = list(listed[0].cells)
    refuse_unknown(column, columns, f"--sort: there is no column {column!r}")
    falls = column in ("best", "last") and listed[0].rising
    present = [record for record in listed if record.cells[column] is not None]
    absent = [record for record in listed if record.cells[column] is None]
    are_numbers = all(
        isinstance(record.cells[column], int | float) for record in present
    )

    def key(record: Record) -> Any:
        value = record.cells[column]
        return value if are_numbers else str(value)

    return [*sorted(present, key=key, reverse=falls), *absent]


def grouped(listed: Sequence[Record]) -> list[Record]:
    """Return one line for runs that differ in seed or fold alone, with their mean."""
    groups: dict[Any, list[Record]] = defaultdict(list)
    for record in listed:
        names = {"network", "backend", "data", "metric", *record.varying}
        values = [str(record.cells[name]) for name in sorted(names - {*_REPEATS})]
        groups[tuple(values)].append(record)
    return [_mean(members) for members in groups.values()]


def _mean(members: Sequence[Record]) -> Record:
    first = members[0]
    if len(members) == 1:
        return first
    cells = dict(first.cells)
    cells["runs"] = len(members)
    cells["run"] = f"{commonprefix([each.cells['run'] for each in members])}*"
    deviation = {}
    for name in ("best", "last"):
        values = [each.cells[name] for each in members if each.cells[name] is not None]
        cells[name] = statistics.fmean(values) if values else None
        if len(values) > 1:
            deviation[name] = statistics.stdev(values)
    cells["time"] = sum(each.cells["time"] for each in members)
    for name in ("epochs", "status", *_REPEATS):
        values = [str(each.cells[name]) for each in members if name in each.cells]
        if values:
            cells[name] = ", ".join(dict.fromkeys(values))
    return dataclasses.replace(first, cells=cells, deviation=deviation)


def _varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings that differ among runs, in the order of the files."""
    names = dict.fromkeys(key for each in settings for key in each)
    found = []
    for name in names:
        values = {str(each.get(name)) for each in settings if each}
        if len(values) > 1 and name not in _NO_COLUMN:
            found.append(name)
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by the names that ``--set`` knows: ``optimizer.lr``, ``depth``."""
    for key, value in settings.items():
        if key == "network_settings" and isinstance(value, Mapping):
            yield from _flat(value, prefix)
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key.removesuffix('_settings')}.")
        else:
            yield f"{prefix}{key}", _without_measured(value)


def _without_measured(value: Any) -> Any:
    """Return a setting without numbers that training samples gave: they are nobody's choice."""
    from deliralike.training.experiment.checks import NAME
    from deliralike.training.experiment.parts import SCALING

    if not isinstance(value, list):
        return value
    found = []
    for each in value:
        is_scaling = isinstance(each, Mapping) and each.get(NAME) == SCALING
        found.append(SCALING if is_scaling else each)
    return found


def _figure(value: float | None, deviation: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if deviation is None else f"{value:.4g} ± {deviation:.2g}"


def _time(seconds: float) -> str:
    """Return seconds in the unit that a person would use.

    Example:
        >>> [_time(seconds) for seconds in (0.5, 59, 61, 7300)]
        ['0.5 s', '59 s', '1:01 min', '2:01 h']
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d} h"
