"""A text file that grows line by line, and can be cut back to an earlier size."""

from __future__ import annotations

import os
from pathlib import Path

from deliralike.errors import StateError, naming


class LineFile:
    """A file of lines that are written at once, so that a killed run leaves its records.

    Attributes:
        path: The file; it and its folder are made with the first line.
        size: The size in bytes after the last line that was added, or when the file was cut back.
    """

    def __init__(self, path: str | Path) -> None:
        """Take the path without opening the file."""
        self.path = Path(path)
        self.size = 0

    def add(self, *lines: str) -> None:
        """Append lines."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line}\n" for line in lines)
        mode = "a" if self.size else "w"
        with (
            naming(self.path),
            self.path.open(mode, encoding="utf-8", newline="") as file,
        ):
            file.write(text)
            self.size = file.tell()

    def clear(self) -> None:
        """Begin anew: the next line takes the place of the contents."""
        self.size = 0

    def measure(self) -> None:
        """Take the present size of the file: lines are added to its contents."""
        self.size = self.path.stat().st_size if self.path.exists() else 0

    def cut_back(self, size: int) -> None:
        """Remove all lines after the first `size` bytes.

        A file that is shorter, as after a power cut, keeps its whole lines.

        Raises:
            StateError: No line ends there, so it is another file, which does not change.
        """
        if self.path.exists():
            with self.path.open("rb+") as file:
                end = self._end_of_line(file.read(size), size)
                file.truncate(end)
        self.measure()

    def _end_of_line(self, content: bytes, size: int) -> int:
        if len(content) == size and content[-1:] not in (b"", b"\n"):
            raise StateError(
                f"{os.fspath(self.path)!r} has no line that ends after {size} bytes, as it had "
                "when the checkpoint was written: it is another file. Move it away, or record to "
                "another path."
            )
        return content.rfind(b"\n") + 1
