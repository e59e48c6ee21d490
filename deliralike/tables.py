"""Tables as plain text, which fits a terminal, as HTML, and as CSV."""

from __future__ import annotations

import csv
import io
import shutil
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
COLUMN_GAP = "  "
_UNLIMITED = 10_000  # columns
# rich folds at blanks alone: to it this character is one, of no width
_FOLD = "\x1f"


def text_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Collection[str] = (),
    width: int | None = None,
) -> str:
    """Return a table as lines of plain text, without blanks at their ends.

    Args:
        right: The columns that hold numbers, which are aligned at the right and never folded.
        width: The width that the lines are to fit: cells of the widest other columns are folded
            until they do, at blanks and behind dots. None for lines as long as they need to be.

    Example:
        >>> print(text_table(["layer", "size"], [("conv", 216), ("head", 10)], right=["size"]))
        layer  size
        conv    216
        head     10
    """
    gap = len(COLUMN_GAP)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="")
    for name in columns:
        is_number = name in right
        justify: Any = "right" if is_number else "left"
        table.add_column(
            Text(name), justify=justify, overflow="fold", no_wrap=is_number
        )
    for row in rows:
        table.add_row(*[Text(str(cell).replace(".", f".{_FOLD}")) for cell in row])
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width or _UNLIMITED,
        color_system=None,
        force_jupyter=False,
    )
    console.print(table)
    lines = stream.getvalue().replace(_FOLD, "").split("\n")
    return "\n".join(line.rstrip() for line in lines).rstrip("\n")


class PrintsTable:
    """The base of records that print as a title and a table that fits the terminal.

    A notebook shows the same as HTML.

    Attributes:
        columns: The names of the columns.
        numbers: Those that hold numbers.
    """

    columns: ClassVar[Sequence[str]]
    numbers: ClassVar[Sequence[str]]

    def __str__(self) -> str:
        """Return the title and the table in plain text."""
        width = terminal_width()
        title = textwrap.wrap(self._title(), width, subsequent_indent="  ")
        table = text_table(self.columns, self._cells(), self.numbers, width)
        return "\n".join([*title, table])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return html_table(self.columns, self._cells(), self.numbers, self._title())

    def _title(self) -> str:
        """Return what stands above the table."""
        raise NotImplementedError

    def _cells(self) -> list[tuple[str, ...]]:
        """Return the rows of the table."""
        raise NotImplementedError


def write_csv(path: str | Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as a CSV file; a column that a later one adds is empty in those before.

    Numbers are written so that they read back equal. A text that a spreadsheet would compute as a
    formula has an apostrophe before it.
    """
    records = list(records)
    columns = dict.fromkeys(name for record in records for name in record)
    rows = [[record.get(name) for name in columns] for record in records]
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_line(row) for row in [columns, *rows])


def csv_line(cells: Iterable[Any]) -> str:
    """Return a line of a CSV file; see `write_csv`.

    Example:
        >>> print(csv_line(["=1+1", "-1.5", None, "a, b"]).rstrip())
        '=1+1,-1.5,,"a, b"
    """
    text = io.StringIO()
    csv.writer(text).writerow(map(_csv_cell, cells))
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    text = "" if value is None else str(value)
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def html_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Collection[str] = (),
    caption: str = "",
) -> str:
    """Return a table as an element of HTML; every text is escaped.

    Args:
        right: The columns that hold numbers.

    Example:
        >>> html_table(["name"], [("<b>",)]).partition("<tbody>")[2]
        '<tr><td style="text-align: left">&lt;b&gt;</td></tr></tbody></table>'
    """
    # Notebooks have rules of their own for cells without a style.
    sides = ["right" if name in right else "left" for name in columns]
    body = "".join(_html_row("td", row, sides) for row in rows)
    head = _html_row('th scope="col"', columns, sides)
    title = ""
    if caption:
        title = f'<caption style="text-align: left">{escape(caption)}</caption>'
    return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _html_row(tag: str, cells: Iterable[object], sides: Iterable[str]) -> str:
    texts = []
    for cell, side in zip(cells, sides, strict=True):
        text = escape(str(cell))
        texts.append(f'<{tag} style="text-align: {side}">{text}</{tag[:2]}>')
    return f"<tr>{''.join(texts)}</tr>"


def columns_that_fit(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    may_go: Iterable[str],
    gap: int = len(COLUMN_GAP),
) -> list[str]:
    """Return the columns of a table that fit beside one another.

    Args:
        may_go: The columns that are left out where there is no room, in this order.
        gap: The blanks between two columns.

    Example:
        >>> columns_that_fit(["run", "loss", "time"], [["first", "0.25", "3 s"]], 12, ["time"])
        ['run', 'loss']
    """
    sizes = {}
    for name, *cells in zip(columns, *rows, strict=True):
        sizes[name] = max(map(len, [name, *cells])) + gap
    for name in may_go:
        if name in sizes and sum(sizes.values()) > width + gap:
            del sizes[name]
    return list(sizes)


def terminal_width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns
