"""A CSV file that grows row by row, takes new columns, and can be cut back to an earlier state."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deliralike.errors import StateError
from deliralike.training.callbacks.lines import LineFile

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Table:
    """Rows by column name; a column that a later row adds is empty in the rows before.

    Each row is written at once. For a new column the file is rewritten, aside, and renamed over the
    old one. Numbers are written so that they read back equal. A text that a spreadsheet would
    compute as a formula has an apostrophe before it.

    Attributes:
        columns: The columns in the order in which they appeared.
        rows: The number of rows.
    """

    def __init__(self, path: str | Path) -> None:
        """Take the path without opening the file."""
        self._file = LineFile(path)
        self.columns: list[str] = []
        self.rows = 0

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    def clear(self) -> None:
        """Begin anew: the next row takes the place of the contents."""
        self._file.clear()
        self.columns = []
        self.rows = 0

    def measure(self) -> None:
        """Take the present columns and rows of the file: rows are added to them."""
        self._file.measure()
        self.columns, rows = self._read()
        self.rows = len(rows)

    def add(self, *records: Mapping[str, Any]) -> None:
        """Append rows."""
        named = [{cell(name): value for name, value in record.items()} for record in records]
        known = dict.fromkeys(self.columns)
        for record in named:
            known.update(dict.fromkeys(record))
        if len(known) > len(self.columns):
            rows = self._read()[1] if self.columns else []
            self._rewrite(list(known), rows)
        lines = []
        for record in named:
            cells = [cell(record.get(name)) for name in self.columns]
            lines.append(_line(cells))
        self._file.add(*lines)
        self.rows += len(records)

    def state(self) -> dict[str, Any]:
        """Return the state for `cut_back`."""
        return {"rows": self.rows, "columns": list(self.columns)}

    def cut_back(self, state: Mapping[str, Any]) -> None:
        """Remove all rows and columns that came after `state`; a file with fewer rows keeps them.

        Raises:
            StateError: The file has other columns, so it is another file, which does not change.
        """
        columns = list(state["columns"])
        present, rows = self._read()
        if present and present[: len(columns)] != columns:
            raise StateError(
                f"{os.fspath(self.path)!r} has the columns {', '.join(present)}, and had "
                f"{', '.join(columns)} when the checkpoint was written: it is another file. Move "
                "it away, or record to another path."
            )
        if present:
            self._rewrite(columns, rows[: state["rows"]])
        self.measure()

    def _read(self) -> tuple[list[str], list[list[str]]]:
        """Read the header and the rows; a last line that was not finished does not count."""
        if not self.path.exists():
            return [], []
        with self.path.open(encoding="utf-8", newline="") as file:
            text = file.read()
        finished = text[: text.rfind("\n") + 1]
        lines = list(csv.reader(io.StringIO(finished, newline="")))
        if not lines:
            return [], []
        return lines[0], lines[1:]

    def _rewrite(self, columns: list[str], rows: Iterable[Sequence[str]]) -> None:
        """Write the old rows under another header: longer ones are cut, shorter ones padded."""
        aside = self.path.with_name(f".{self.path.name}.new")
        aside.unlink(missing_ok=True)
        lines = []
        if columns:
            lines.append(_line(columns))
            padding = [""] * len(columns)
            for row in rows:
                cells = [*row, *padding]
                lines.append(_line(cells[: len(columns)]))
        LineFile(aside).add(*lines)
        aside.replace(self.path)
        self._file.measure()
        self.columns = columns


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(list(cells))  # quotes what its own end of line, \r\n, has in it
    return text.getvalue().removesuffix("\r\n")


def cell(value: Any) -> str:
    """Return the text of a cell; an apostrophe keeps spreadsheets from computing it as a formula.

    Example:
        >>> cell("=1+1"), cell("-1.5"), cell(None)
        ("'=1+1", '-1.5', '')
    """
    text = "" if value is None else str(value)
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
