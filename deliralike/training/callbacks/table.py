"""A CSV file that grows row by row, takes new columns, and can be cut back to what it was."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deliralike.errors import StateError
from deliralike.training.callbacks.lines import LineFile


class Table:
    """Rows by column name; a column that a later row brings is empty in the rows before.

    Each row is written out at once. For a new column the file is written anew, aside, and renamed
    over the old one. Numbers are written so that they read back equal.

    Attributes:
        columns: In the order in which they appeared.
        rows: How many there are.
    """

    def __init__(self, path: str | Path) -> None:
        """Nothing is opened yet."""
        self._file = LineFile(path)
        self.columns: list[str] = []
        self.rows = 0

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def measure(self) -> None:
        """Take what is in the file as given: rows are added to it."""
        self.columns, rows = self._read()
        self.rows = len(rows)

    def add(self, *records: Mapping[str, Any]) -> None:
        """Write rows to the end."""
        known = dict.fromkeys([*self.columns, *(name for record in records for name in record)])
        if len(known) > len(self.columns):
            self._write_anew(list(known), self._read()[1])
        self._file.add(
            *(_line(_text(record.get(name)) for name in self.columns) for record in records)
        )
        self.rows += len(records)

    def state(self) -> dict[str, Any]:
        """What `cut_back` needs."""
        return {"rows": self.rows, "columns": list(self.columns)}

    def cut_back(self, state: Mapping[str, Any]) -> None:
        """Take away all rows and columns that came after `state`; a file that has fewer rows keeps them.

        Raises:
            StateError: The file has other columns: it is another one. It stays as it is.
        """
        columns = list(state["columns"])
        found, rows = self._read()
        if found and found[: len(columns)] != columns:
            raise StateError(
                f"{os.fspath(self.path)!r} has the columns {', '.join(found)}, and had "
                f"{', '.join(columns)} when the checkpoint was written: it is another file. Move "
                "it away, or record to another path."
            )
        if found:
            self._write_anew(columns, rows[: state["rows"]])
        self.measure()

    def _read(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows; a last line that was not finished does not count."""
        if not self.path.exists():
            return [], []
        with self.path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(line for line in file if line.endswith("\n"))) or [[]]
        return header, rows

    def _write_anew(self, columns: list[str], rows: Iterable[Sequence[str]]) -> None:
        """The old rows under another header: longer ones are cut, shorter ones padded."""
        aside = self.path.with_name(f".{self.path.name}.new")
        aside.unlink(missing_ok=True)
        lines = (
            [columns, *([*row, *[""] * len(columns)][: len(columns)] for row in rows)]
            if columns
            else []
        )
        LineFile(aside).add(*map(_line, lines))
        aside.replace(self.path)
        self.columns = columns


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(list(cells))
    return text.getvalue()


def _text(value: Any) -> str:
    return "" if value is None else str(value)
