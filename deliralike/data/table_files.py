"""Tables in CSV files: what their columns mean, and which of their rows are used."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deliralike.errors import SettingError, listed

# Names of parts in folders, archives and tables, and of columns, as they are in use.
TRAIN = ("train", "training")
HELD_OUT = ("held_out", "val", "valid", "validation", "dev", "test", "testing")
_PATHS = ("path", "file", "filename", "image")
_LABELS = ("label", "labels", "class", "target", "y")
_SPLITS = ("split", "subset", "partition")
_MISSING = ("", "nan")
_LARGEST = float(np.finfo(np.float32).max)

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """The rows of a table with a label, in one part or two, and the columns that have a meaning.

    Attributes:
        name: The name for messages.
        parts: All rows; or those to learn from and those held out.
        label, path, split: Names of columns; None for those that are not there.
        remarks: What was understood, in words.
        targets: Columns of measured targets; empty where there are labels.
    """

    name: str
    parts: Sequence[Sequence[Row]]
    label: str
    path: str | None
    split: str | None
    remarks: tuple[str, ...]
    targets: tuple[str, ...] = ()

    def measured(self) -> list[np.ndarray]:
        """Return the targets of each part, a row for each sample.

        Raises:
            SettingError: A cell is no finite number.
        """
        advice = f"for classes say label={self.label} (--set data.label={self.label})"
        return [
            numbers_of(self.name, part, self.targets, advice) for part in self.parts
        ]

    def labels(self) -> list[np.ndarray]:
        """Return the labels of each part: whole numbers or floats if all are, else texts."""
        cells = [[row[self.label] for row in part] for part in self.parts]
        every = {cell for part in cells for cell in part}
        kind: type[str | int | float] = str
        if all(map(_is_number, every)):
            kind = int if all(cell.lstrip("+-").isdigit() for cell in every) else float
        return [np.array([kind(cell) for cell in part]) for part in cells]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the inputs; none where there is a column of paths.

        All count but those of the labels, of the split, and the nameless one that pandas writes
        before the others.

        Raises:
            SettingError: There is no column.
        """
        if self.path is not None:
            return ()
        others = (self.label, *self.targets, self.split, "")
        columns = tuple(column for column in self.parts[0][0] if column not in others)
        if not columns:
            raise SettingError(
                f"{self.name!r} has the column {self.label!r} alone: inputs are lacking"
            )
        return columns

    def inputs(self) -> list[np.ndarray]:
        """Return the numbers of each part, a row for each sample.

        Raises:
            SettingError: A cell is no finite number, or there is no column.
        """
        return [numbers_of(self.name, part, self.columns) for part in self.parts]


def numbers_of(
    name: str,
    rows: Sequence[Row],
    columns: Sequence[str],
    advice: str = f"a column of pictures is called one of {_PATHS}",
) -> np.ndarray:
    """Return the numbers in some columns of a table, a row for each sample.

    Args:
        name: The name for messages.
        advice: What else a column may be, for the error.

    Raises:
        SettingError: A cell is no finite number.
    """
    for row in rows:
        for column in columns:
            if not _is_number(row[column]):
                raise SettingError(
                    f"{name!r}: column {column!r} holds something else than finite numbers, "
                    f"{row[column]!r}: take it out, or write numbers; {advice}"
                )
    return np.array([[row[column] for column in columns] for row in rows], np.float32)


def column_of_paths(name: str, columns: Sequence[str]) -> str | None:
    """Return the column of paths of pictures; None if no column is called so.

    Raises:
        SettingError: There are several.
    """
    return _chosen(name, columns, _PATHS)


def read_table(
    path: Path, name: str, label: str | None = None, targets: Sequence[str] = ()
) -> Table:
    """Read a CSV file.

    Args:
        name: The name for messages.
        label: The column of the labels; the one with a usual name when not given.
        targets: The columns of measured targets, of which the first stands for the labels.

    Raises:
        SettingError: It is no such table, or it is in doubt what a column or a row means.
    """
    columns, rows = read_cells(path, name)
    for wanted in filter(None, (label, *targets)):
        if wanted not in columns:
            raise SettingError(f"{name!r} has no column {wanted!r}, but {columns}")
    of_label = targets[0] if targets else label or _chosen(name, columns, _LABELS)
    of_path = column_of_paths(name, columns)
    of_split = _chosen(name, columns, _SPLITS)
    if of_label is None:
        raise SettingError(
            f"{name!r} has the columns {columns}: wanted is one of {_LABELS} (or label=...), one "
            f"of {_PATHS} or columns of numbers, and split (train, val) where the data are split, "
            "with commas between them"
        )
    labelled = [row for row in rows if row[of_label].lower() not in _MISSING]
    if not labelled:
        raise SettingError(
            f"{name!r} has no row with a label in the column {of_label!r}"
        )
    remarks = [f"labels of column {of_label!r}"]
    if len(labelled) < len(rows):
        remarks.append(f"{len(rows) - len(labelled)} rows without a label left out")
    parts: list[list[Row]] = [labelled]
    if of_split is not None:
        parts, remark = _split(name, labelled, of_split)
        remarks.append(remark)
    return Table(
        name, parts, of_label, of_path, of_split, tuple(remarks), tuple(targets)
    )


def read_cells(path: Path, name: str) -> tuple[list[str], list[Row]]:
    """Return the columns and the rows of a CSV file, without spaces around cells.

    Raises:
        SettingError: It is no table, or has two columns of one name.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [
                [cell.strip() for cell in line] for line in csv.reader(file) if line
            ]
    except (csv.Error, UnicodeError, OSError) as error:
        raise SettingError(
            f"{name!r} cannot be read as a table ({error}): save it as CSV in UTF-8"
        ) from error
    columns, *rows = lines or [[]]
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise SettingError(
            f"{name!r} has several columns called {twice[0]!r}: rename them"
        )
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise SettingError(
                f"{name!r}: row {number} below the header, {row}, does not have one cell for each "
                f"of the columns {columns}, with commas between them"
            )
    return columns, [dict(zip(columns, row, strict=True)) for row in rows]


def _chosen(name: str, columns: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the column that is called by one of these words."""
    candidates = [column for column in columns if column.lower() in words]
    if len(candidates) > 1:
        raise SettingError(
            f"{name!r} has the columns {candidates}, either of which may count: rename the other, "
            "or say which are the labels, label=... (--set data.label=NAME)"
        )
    return candidates[0] if candidates else None


def _split(name: str, rows: Sequence[Row], column: str) -> tuple[list[list[Row]], str]:
    """Return the rows to learn from and those held out, and a remark; all if none are held out."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row[column].lower()].append(row)
    words = [word for word in (*TRAIN, *HELD_OUT) if word in parts]
    if len(set(words) & set(TRAIN)) != 1 or len(parts) > len(words):
        raise SettingError(
            f"{name!r}: the column {column!r} holds {sorted(parts)}: wanted is one of {TRAIN} for "
            f"rows to learn from, one of {HELD_OUT} for those held out, and nothing else"
        )
    chosen = [parts[word] for word in words[:2]]
    if len(chosen) == 1:
        return chosen, f"column {column!r} holds {words[0]!r} alone"
    remark = f"split by column {column!r}, {' and '.join(map(repr, words[:2]))}"
    if unused := len(rows) - sum(map(len, chosen)):
        remark += f", and {unused} rows of {listed(words[2:])} left out"
    return chosen, remark


def _is_number(cell: str) -> bool:
    """Return whether a cell is a finite number, also in float32."""
    try:
        return abs(float(cell)) <= _LARGEST and "_" not in cell
    except ValueError:
        return False
