"""The mark of files that this package wrote.

A marked file is read exactly; names in other files are guessed, and the guess is reported.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]  # by name
Notes = tuple[str, ...]

_MARK = (
    "deliralike weights 1"  # the number counts the ways in which a file may be marked
)
_ZIP = b"PK\x03\x04"


class FileStates(dict[str, Arrays]):
    """The states of a file by their place in it.

    Attributes:
        notes: In words, the guesses about another program's file, and the entries left aside.
    """

    notes: Notes = ()


def mark_archive(path: Path) -> None:
    """Mark a zip archive by its comment, which readers of arrays ignore; other files stay."""
    with path.open("rb") as file:
        is_archive = file.read(len(_ZIP)) == _ZIP
    if is_archive:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = _MARK.encode()


def is_marked(archive: zipfile.ZipFile) -> bool:
    """Return whether this package wrote the archive."""
    return archive.comment == _MARK.encode()


def archive_is_marked(path: Path) -> bool:
    """Return whether a file is an archive that this package wrote."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return is_marked(archive)
