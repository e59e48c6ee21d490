"""Printing of tables and lines: in colour on a terminal, plain and wide when piped."""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deliralike import terminal

PIPED_WIDTH = 10_000  # so that no row of a table is broken


def is_piped() -> bool:
    """Return whether the output goes to a file or another program, which have no width."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def console() -> Console:
    """Return a console on standard output."""
    width = PIPED_WIDTH if is_piped() else None
    return terminal.console(width=width, highlight=False)


@contextmanager
def progress() -> Iterator[Callable[..., None]]:
    """Show a bar, seconds and the current work on a terminal's standard error; the bar goes away.

    Yields:
        A function that sets the text and how much is done, from 0 to 1. Where standard error is no
        terminal, nothing is shown.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    error = terminal.console(stderr=True, highlight=False)
    columns = (
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(
        *columns, console=error, transient=True, disable=not error.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)

        def update(text: str, done: float) -> None:
            bar.update(task, description=text, completed=done)

        yield update


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    right: Iterable[str] = (),
) -> None:
    """Print a table; the columns named in `right` hold numbers. Cells are never read as markup."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    right = set(right)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        # names and numbers stay in one piece
        is_whole = column == columns[0] or column in right
        table.add_column(column, justify=justify, overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(*[Text(str(cell).replace("\n", r"\n")) for cell in row])
    console().print(table)


def say(text: str = "", style: str = "") -> None:
    """Print a line; it is wrapped on a terminal only, and never read as markup."""
    console().print(Text(text, style=style), soft_wrap=True)


def figures_text(figures: Mapping[str, float]) -> str:
    """Return the figures of a run in a line, without those of metrics that have many."""
    from deliralike.training.history import shown_figures

    texts = [
        f"{name} {figure_text(name, figures[name])}" for name in shown_figures(figures)
    ]
    return ", ".join(texts)


def show_confusion(figures: Mapping[str, float]) -> None:
    """Print the confusion matrix among figures, if there is one of at most 12 classes."""
    cells = {
        name: value for name, value in figures.items() if name.startswith("confusion/")
    }
    count = math.isqrt(len(cells))
    if not 0 < count <= 12:
        return
    texts = [f"{value:.4g}" for value in cells.values()]
    classes = []
    rows = []
    for place in range(count):
        both = list(cells)[place * (count + 1)].removeprefix("confusion/")
        classes.append(both[: len(both) // 2])  # true/predicted, on the diagonal
        rows.append([classes[-1], *texts[place * count : (place + 1) * count]])
    show_table(["true \\ predicted", *classes], rows, right=classes)


def figure_text(name: str, value: float) -> str:
    """Return the figure of a metric as it is printed: an accuracy in percent.

    Example:
        >>> figure_text("accuracy", 0.91361), figure_text("accuracy", math.nan)
        ('91.36%', 'nan')
        >>> figure_text("loss", 0.303021)
        '0.303'
    """
    if name == "accuracy" and math.isfinite(value):
        return f"{value:.2%}"
    return f"{value:.4g}"
