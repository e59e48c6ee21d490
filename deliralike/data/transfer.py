"""How a batch gets from a worker process to its reader: large arrays through a file in memory, the rest with pickle.

Python's pipe is slow for them: it carried 160 MB a second where this way carried several times as much. The file is
gone as soon as it is read. Without a folder in memory, or when that is full (containers often allow 64 MB), a batch
goes through the pipe.
"""

import pickle
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_LEAST = 2**16  # bytes; below, a pipe is as fast
_MEMORY = Path("/dev/shm")  # on Linux a file system in memory


@dataclass(frozen=True)
class Parcel:
    """A pickled value; the contents of its arrays follow each other in `file`, if there is one."""

    pickled: bytes
    file: str = ""
    sizes: tuple[int, ...] = ()


@contextmanager
def folder() -> Iterator[str]:
    """A folder in memory that is gone with all its files at the end of the block; an empty text if there is none."""
    try:
        made = tempfile.TemporaryDirectory(prefix="deliralike-", dir=_MEMORY)
    except OSError:
        yield ""
        return
    with made as path:
        yield path


def pack(value: Any, folder: str) -> Parcel:
    """Pack a value up, in the worker."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    file = Path(folder, uuid.uuid4().hex)
    if not folder or sum(view.nbytes for view in raw) < _LEAST or not _written(file, raw):
        return Parcel(pickle.dumps(value, protocol=5))
    return Parcel(pickled, str(file), tuple(view.nbytes for view in raw))


def unpack(parcel: Parcel) -> Any:
    """The value, in memory of its own; the file is removed."""
    if not parcel.file:
        return pickle.loads(parcel.pickled)
    arrays: list[Any] = [np.empty(size, np.uint8) for size in parcel.sizes]
    with open(parcel.file, "rb") as file:
        for array in arrays:
            file.readinto(array)
    discard(parcel)
    return pickle.loads(parcel.pickled, buffers=arrays)


def discard(parcel: Parcel) -> None:
    """Remove the file unread."""
    if parcel.file:
        Path(parcel.file).unlink(missing_ok=True)


def _written(file: Path, views: list[memoryview]) -> bool:
    try:
        with open(file, "xb") as stream:
            stream.writelines(views)
    except OSError:  # full
        file.unlink(missing_ok=True)
        return False
    return True
