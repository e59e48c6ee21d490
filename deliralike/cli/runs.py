"""``deliralike runs``: a table of the runs in a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deliralike.training.experiment.compare import Row


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
    from deliralike.cli.console import console, say, show_table
    from deliralike.cli.runs_table import grouped, records, sorted_by
    from deliralike.tables import columns_that_fit, write_csv
    from deliralike.training.experiment.compare import read_runs

    runs = {}
    for row in read_runs(folder, metric):
        path = row.folder.relative_to(folder)
        runs[str(path) if path.name else folder.name] = row
    listed = records(runs)
    if csv is not None:
        write_csv(csv, [record.cells for record in listed])
    if mean:
        listed = grouped(listed)
    if sort is not None:
        listed = sorted_by(listed, sort)
    cells = [record.shown() for record in listed]
    shared = {}
    for name in _MAY_BE_SHARED:
        values = {run[name] for run in cells}
        if len(values) == 1:
            shared[name] = values.pop()
    hidden = set(shared) if mean else {*shared, "runs"}
    columns = [column for column in cells[0] if column not in hidden]
    table = [[run[column] for column in columns] for run in cells]
    gap = 3  # blanks and the rule between two columns
    may_go = _may_be_left_out(cells, listed[0].varying)
    fitting = columns_that_fit(columns, table, console().width - gap, may_go, gap)
    if shared:
        text = ", ".join(map(" ".join, shared.items()))
        say(f"all runs: {text}", "dim")
    table = [[run[column] for column in fitting] for run in cells]
    show_table(fitting, table, right=["epochs", "runs", "best", "last", "time"])
    left_out = [name for name in listed[0].varying if name not in fitting]
    if left_out:
        say(f"left out: {', '.join(left_out)}; --csv FILE has all", "dim")
    for name, row in runs.items():
        if row.reason:
            style = "yellow" if row.problem else "dim"
            say(f"{name}: {row.reason}", style)
    if csv is not None:
        say(f"see {csv}")
    if plot is not None:
        _draw(runs, plot)
        say(f"see {plot}")


def _draw(runs: dict[str, "Row"], path: Path) -> None:
    from deliralike.errors import SettingError
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


# Values that all runs share are printed once, above the table, which is narrower then.
_MAY_BE_SHARED = ("network", "backend", "data", "metric")
# The columns beside settings that a narrow terminal leaves out, in this order.
_LONG = 16  # characters of a setting
_MAY_BE_LEFT_OUT = ("last", "time", "data", "metric", "network")


def _may_be_left_out(cells: list[dict[str, str]], varying: Sequence[str]) -> list[str]:
    """Return the columns that a narrow terminal leaves out, in this order.

    Settings that some runs do not have come first, as another network's, then long ones; numbers
    and words that vary come last.
    """
    sizes = {name: max(len(run[name]) for run in cells) for name in varying}
    in_part = [name for name in varying if any(run[name] == "-" for run in cells)]
    others = sorted(sizes.keys() - in_part, key=lambda name: (-sizes[name], name))
    long = [name for name in others if sizes[name] > _LONG]
    return [*in_part, *long, *_MAY_BE_LEFT_OUT, *others[len(long) :]]
