"""The mark of files that this package wrote.

A marked file is read exactly; names in other files are guessed, and the guess is reported.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]  # by name
Notes = tuple[str, ...]

_MARK = (
    "deliralike weights 1"  # the number counts the ways in which a file may be marked
)
_END_OF_ARCHIVE = b"PK\x05\x06"
_LENGTH_OF_END = 22  # bytes


class FileStates(dict[str, Arrays]):
    """The states of a file by their place in it, and the origin of their names.

    Attributes:
        exact: Whether this package wrote the file, so that the names are those that were written.
        notes: In words, the guesses about another program's file, and the entries left aside.
    """

    def __init__(
        self,
        states: Mapping[str, Arrays],
        exact: bool = False,
        notes: Iterable[str] = (),
    ) -> None:
        """Keep the states in their order."""
        super().__init__(states)
        self.exact = exact
        self.notes = tuple(notes)


def mark_archive(path: Path) -> None:
    """Mark a zip archive by its comment, which readers of arrays ignore; other files stay."""
    with path.open("r+b") as file:
        if file.seek(0, os.SEEK_END) < _LENGTH_OF_END:
            return
        file.seek(-_LENGTH_OF_END, os.SEEK_END)
        end = file.read()
        if end.startswith(_END_OF_ARCHIVE) and end.endswith(b"\0\0"):  # no comment yet
            file.seek(-2, os.SEEK_END)
            file.write(len(_MARK).to_bytes(2, "little") + _MARK.encode())


def is_marked(archive: zipfile.ZipFile) -> bool:
    """Return whether this package wrote the archive."""
    return archive.comment == _MARK.encode()


def archive_is_marked(path: Path) -> bool:
    """Return whether a file is an archive that this package wrote."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return is_marked(archive)
