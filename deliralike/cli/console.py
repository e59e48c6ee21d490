"""What is printed: tables and lines, in colour on a terminal, plain and wide enough to read when piped."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 150


def console() -> Console:
    """A console on standard output."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if piped else None, highlight=False)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """One line on a terminal's standard error, which goes away, that says what is being done; nothing elsewhere."""
    with Console(stderr=True, highlight=False).status("") as status:
        yield lambda text: status.update(Text(text))


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", right: Iterable[str] = ()
) -> None:
    """Print a table; the columns named in `right` are numbers. Cells are shown as they are, brackets too."""
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    right = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)


def say(text: str = "", style: str = "") -> None:
    """Print a line; it is wrapped on a terminal only, and never read as markup."""
    console().print(Text(text, style=style), soft_wrap=True)
