"""Printing of tables and lines: in colour on a terminal, plain and wide when piped."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 150


def console() -> Console:
    """Return a console on standard output."""
    is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    width = PIPED_WIDTH if is_piped else None
    return Console(width=width, highlight=False)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the current work in one line on a terminal's standard error; the line goes away.

    Yields:
        A function that sets the text. It does nothing where standard error is no terminal.
    """
    with Console(stderr=True, highlight=False).status("") as status:

        def update(text: str) -> None:
            status.update(Text(text))

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
    )
    right = set(right)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*[Text(str(cell)) for cell in row])
    console().print(table)


def say(text: str = "", style: str = "") -> None:
    """Print a line; it is wrapped on a terminal only, and never read as markup."""
    console().print(Text(text, style=style), soft_wrap=True)
