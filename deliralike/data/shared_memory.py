"""The way of a batch from a worker process to its reader.

Large arrays pass through a file in memory, the rest is pickled. Python's pipe is slow for large
arrays: it carried 160 MB a second where a file in memory carried several times as much. The file is
removed as soon as it is read. Without a folder in memory, or when that is full (containers often
allow 64 MB), a batch goes through the pipe.
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
    """A pickled value; the contents of its arrays stand one after the other in `file`, if any."""

    pickled: bytes
    file: str = ""
    sizes: tuple[int, ...] = ()


@contextmanager
def folder() -> Iterator[str]:
    """Make a folder in memory that is removed with all its files at the end of the block.

    Yields:
        Its path, or an empty text if the system has no such memory.
    """
    try:
        directory = tempfile.TemporaryDirectory(prefix="deliralike-", dir=_MEMORY)
    except OSError:
        yield ""
        return
    with directory as path:
        yield path


def pack(value: Any, folder: str) -> Parcel:
    """Pack a value into a parcel, in the worker."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    sizes = tuple(view.nbytes for view in views)
    file = Path(folder, uuid.uuid4().hex)
    if folder and sum(sizes) >= _LEAST and _written(file, views):
        return Parcel(pickled, str(file), sizes)
    return Parcel(pickle.dumps(value, protocol=5))


def unpack(parcel: Parcel) -> Any:
    """Return the value, in memory of its own, and remove the file."""
    if not parcel.file:
        return pickle.loads(parcel.pickled)
    arrays: list[Any] = [np.empty(size, np.uint8) for size in parcel.sizes]
    with open(parcel.file, "rb") as file:
        for array in arrays:
            file.readinto(array)
    discard(parcel)
    return pickle.loads(parcel.pickled, buffers=arrays)


def discard(parcel: Parcel) -> None:
    """Remove the file without reading it."""
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
