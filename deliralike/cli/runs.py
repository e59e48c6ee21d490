"""``deliralike runs``: a table of the runs in a folder."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deliralike.cli.console import say, show_table
from deliralike.errors import SettingError, refuse_unknown
from deliralike.tables import write_csv

if TYPE_CHECKING:
    from deliralike.training.experiment.compare import Row

Line = dict[str, Any]  # the values of a run, or of several, by column

_FIGURES = ("best", "last")
_REPEATS = ("seed", "fold")  # what repetitions of one experiment differ in
# Settings with a column of their own, or that say where a run computes and not what.
_NO_COLUMN = ("network", "backend", "data", "epochs", "devices", "fold", "folds")


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Where to look for runs, in folders below too."
        ),
    ] = Path("runs"),
    metric: Annotated[
        str | None,
        typer.Option(
            help="What to compare by: accuracy, loss … (default: each run's first metric)"
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="best, time … or a setting; best first."),
    ] = None,
    mean: Annotated[
        bool,
        typer.Option(
            "--mean",
            help="One line for runs that differ in seed or fold alone: mean ± deviation.",
        ),
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Write all columns, too: runs.csv."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PICTURE", help="Draw the curves of all runs: runs.png."),
    ] = None,
) -> None:
    """List runs with what varies among them, their progress and results; draw their curves."""
    from deliralike.training.experiment.compare import higher_is_better, read_runs

    runs = {_name(row, folder): row for row in read_runs(folder, metric)}
    settings = {name: _settings(row) for name, row in runs.items()}
    varying = _varying(list(settings.values()))
    lines = [_line(name, row, settings[name], varying) for name, row in runs.items()]
    if csv is not None:
        write_csv(csv, lines)
    columns = [name for name in lines[0] if name not in varying]
    if mean:
        lines = _grouped(lines, varying)
    else:
        columns.remove("runs")
    if sort is not None:
        best_is_highest = higher_is_better(lines[0]["metric"] or "")
        lines = _sorted(lines, sort, falls=best_is_highest and sort in _FIGURES)
    if varying:
        columns.insert(4, "settings")
    cells = [_texts(line, varying) for line in lines]
    table = [[texts.get(name, "-") for name in columns] for texts in cells]
    show_table(columns, table, right=["epochs", "runs", *_FIGURES, "time"])
    for name, row in runs.items():
        if row.reason:
            style = "yellow" if row.problem else "dim"
            say(f"{name}: {row.reason}", style)
    if csv is not None:
        say(f"see {csv}")
    if plot is not None:
        _draw(runs, plot)
        say(f"see {plot}")


def _line(
    name: str, row: "Row", settings: Mapping[str, Any], varying: Sequence[str]
) -> Line:
    """Return the values of a run by column, with a column for each setting that varies."""
    line: Line = {"run": name}
    line |= {key: settings.get(key) for key in ("network", "backend", "data")}
    line |= {key: settings.get(key) for key in varying}
    line |= {
        "runs": 1,
        "epochs": f"{len(row.history.epochs)}/{settings.get('epochs', '-')}",
        "metric": row.metric or None,
        "best": row.best,
        "last": row.last,
        "time": row.seconds,
        "status": row.status,
    }
    return line


def _texts(line: Line, varying: Sequence[str]) -> dict[str, str]:
    """Return the values of a line as they are printed; settings share a column."""
    texts = {name: str(value) for name, value in line.items() if value is not None}
    for name in _FIGURES:
        value = line[name]
        if value is not None:
            texts[name] = f"{value:.4g}"
        if f"± {name}" in line:
            texts[name] += f" ± {line[f'± {name}']:.2g}"
    texts["time"] = str(timedelta(seconds=round(line["time"])))
    settings = [f"{name}={texts[name]}" for name in varying if name in texts]
    texts["settings"] = ", ".join(settings)
    return texts


def _sorted(lines: Sequence[Line], column: str, falls: bool) -> list[Line]:
    """Return the lines in the order of a column, those without a value last.

    Raises:
        UnknownName: There is no such column.
    """
    refuse_unknown(column, lines[0], f"--sort: there is no column {column!r}")
    present = [line for line in lines if line[column] is not None]
    absent = [line for line in lines if line[column] is None]
    try:
        present.sort(key=itemgetter(column), reverse=falls)
    except TypeError:  # texts among numbers
        present.sort(key=lambda line: str(line[column]), reverse=falls)
    return [*present, *absent]


def _grouped(lines: Sequence[Line], varying: Sequence[str]) -> list[Line]:
    """Return one line for runs that differ in seed or fold alone, with their mean."""
    names = {"network", "backend", "data", "metric", *varying} - {*_REPEATS}
    groups: dict[Any, list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(str(line[name]) for name in sorted(names))].append(line)
    return [_mean(members) for members in groups.values()]


def _mean(members: Sequence[Line]) -> Line:
    if len(members) == 1:
        return members[0]
    line = dict(members[0])
    line["runs"] = len(members)
    line["run"] = f"{commonprefix([each['run'] for each in members])}*"
    for name in _FIGURES:
        values = [each[name] for each in members if each[name] is not None]
        if len(values) > 1:
            line[name] = statistics.fmean(values)
            line[f"± {name}"] = statistics.stdev(values)
    line["time"] = sum(each["time"] for each in members)
    for name in ("epochs", "status"):
        line[name] = ", ".join(dict.fromkeys(each[name] for each in members))
    for name in _REPEATS:
        line[name] = None
    return line


def _settings(row: "Row") -> dict[str, Any]:
    """Return the settings of a run by name; files in its own folder without the folder."""
    known = {}
    for name, value in _flat(row.settings):
        is_path = name in ("network", "weights") and isinstance(value, str)
        known[name] = value.removeprefix(f"{row.folder}/") if is_path else value
    return known


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


def _draw(runs: dict[str, "Row"], path: Path) -> None:
    from deliralike.training.curves import draw_curves

    histories = {name: row.history for name, row in runs.items() if row.history.epochs}
    if not histories:
        raise SettingError("there is nothing to draw: no run has finished an epoch yet")
    metrics = dict.fromkeys(row.metric for row in runs.values() if row.metric)
    try:
        draw_curves(histories, path, metrics=list(metrics), with_differences=False)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"the picture cannot be written to {str(path)!r}: {error}"
        ) from error


def _name(row: "Row", folder: Path) -> str:
    if row.folder == folder:
        return folder.name
    return str(row.folder.relative_to(folder))
