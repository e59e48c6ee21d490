"""``deliralike runs``: the runs in a folder, beside each other."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deliralike.training.experiment.compare import Row


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to look for runs, in folders below too.")
    ] = Path("runs"),
    metric: Annotated[
        str | None, typer.Option(help="What to compare by: accuracy, loss … (default: each run's first metric)")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="PICTURE", help="Draw the curves of all runs: runs.png.")] = None,
) -> None:
    """List runs with their settings, how far they are and how good, and draw them over one another."""
    from deliralike.cli.console import console, say, show_table
    from deliralike.training.experiment.compare import draw_runs, read_runs

    rows = read_runs(folder, metric)
    cells = [_cells(row, folder) for row in rows]
    shared = {name: cells[0][name] for name in _MAY_BE_SHARED if len({each[name] for each in cells}) == 1}
    columns = [name for name in cells[0] if name not in shared]
    columns = _that_fit(columns, cells, console().width)
    if shared:
        say("all runs: " + ", ".join(f"{name} {value}" for name, value in shared.items()), "dim")
    show_table(columns, [[each[name] for name in columns] for each in cells], right=["epochs", "best", "last", "time"])
    for row in rows:
        if row.reason:
            say(f"{_name(row, folder)}: {row.reason}", "yellow" if row.problem else "dim")
    if plot is not None:
        say(f"see {draw_runs({_name(row, folder): row for row in rows}, plot)}")


# What all runs agree on is said once, above the table, which is narrower then.
_MAY_BE_SHARED = ("network", "backend", "data", "metric")
# What a narrow terminal does without, in this order.
_MAY_BE_LEFT_OUT = ("last", "time", "data", "metric", "network")


def _that_fit(columns: list[str], cells: list[dict[str, str]], width: int) -> list[str]:
    """The columns without those that do not fit beside the others."""
    needed = {name: 3 + max(len(name), *(len(each[name]) for each in cells)) for name in columns}
    for name in _MAY_BE_LEFT_OUT:
        if name in columns and sum(needed[each] for each in columns) > width:
            columns = [each for each in columns if each != name]
    return columns


def _cells(row: "Row", folder: Path) -> dict[str, str]:
    settings = row.settings
    return {
        "run": _name(row, folder),
        **{name: str(settings.get(name, "-")) for name in ("network", "backend", "data")},
        "epochs": f"{len(row.history.epochs)}/{settings.get('epochs', '-')}",
        "metric": row.metric or "-",
        "best": _figure(row.best),
        "last": _figure(row.last),
        "time": _time(row.seconds),
        "status": row.status,
    }


def _name(row: "Row", folder: Path) -> str:
    return str(row.folder.relative_to(folder)) if row.folder != folder else row.folder.name


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _time(seconds: float) -> str:
    """Seconds as a person says them.

    Example:
        >>> [_time(seconds) for seconds in (0.5, 59, 61, 7300)]
        ['0.5 s', '59 s', '1:01 min', '2:01 h']
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"
