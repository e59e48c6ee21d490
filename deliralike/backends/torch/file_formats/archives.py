"""Find the bytes of storages in a file of PyTorch's: a zip of records, or the older pickles."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from deliralike.backends.torch.file_formats.pickles import PickleReader, Storage
from deliralike.weights import refuse_hostile_archive

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_SHORT_PICKLE = (
    2**20
)  # bytes; a longer pickle that is larger than its file is no pickle of weights
_ORDERS = {b"little": "<", b"big": ">"}


@contextmanager
def opened(path: Path) -> Iterator[Zip | Pickles]:
    """Open a file of either kind.

    Raises:
        ValueError, LookupError, WeightFileError, zipfile.BadZipFile: The file is damaged or
            hostile.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            refuse_hostile_archive(path, archive)
            yield Zip(archive, path.stat().st_size)
    else:
        with path.open("rb") as file:
            yield Pickles(file, path.stat().st_size)


class Zip:
    """A zip, whose records have a length and a checksum.

    Attributes:
        value: The contents as descriptions; see `PickleReader`.
        order: The byte order of numbers: ``"<"`` or ``">"``.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self._archive = archive
        self._folder = archive.namelist()[0].partition("/")[0]
        self.order = "<"
        if f"{self._folder}/byteorder" in archive.namelist():
            self.order = _ORDERS[self._record("byteorder", 16)]
        pickle = self._record("data.pkl", max(size, _SHORT_PICKLE))
        self.value = PickleReader(BytesIO(pickle), len(pickle)).value

    def read(self, storage: Storage) -> bytes:
        """Return the bytes of a storage, as many as it claims; the claim is checked first.

        Raises:
            ValueError, LookupError: The storage is missing, or has another size.
        """
        info = self._info(f"data/{storage.key}")
        per_element = storage.nbytes // max(storage.elements, 1)
        surplus = (
            info.file_size - storage.nbytes
        )  # an untyped storage may end within an element
        if not 0 <= surplus < max(per_element, 1):
            raise ValueError(
                f"its record {info.filename!r} has {info.file_size:,} bytes, and "
                f"{storage.elements:,} elements of {storage.kind} take {storage.nbytes:,}"
            )
        return self._bytes(info)

    def _record(self, name: str, most: int) -> bytes:
        info = self._info(name)
        if info.file_size > most:
            raise ValueError(
                f"its record {name!r} has {info.file_size:,} bytes, wanted {most:,} at most"
            )
        return self._bytes(info)

    def _info(self, name: str) -> zipfile.ZipInfo:
        return self._archive.getinfo(f"{self._folder}/{name}")

    def _bytes(self, info: zipfile.ZipInfo) -> bytes:
        """Read a record to its end, which checks the checksum."""
        content = self._archive.read(info)
        if len(content) != info.file_size:
            raise ValueError(
                f"its record {info.filename!r} has {len(content):,} bytes in place of "
                f"{info.file_size:,}"
            )
        return content


class Pickles:
    """The format before PyTorch 1.6: pickles, then storages, each after its number of elements.

    It has the attributes of `Zip`.
    """

    order = "<"

    def __init__(self, file: IO[bytes], size: int):
        self._file = file
        self._size = size
        bounded: Any = _Bounded(file, size)
        for wanted in (_MAGIC, _PROTOCOL):
            if PickleReader(bounded, size).value != wanted:
                raise ValueError("it does not begin as PyTorch begins its files")
        PickleReader(bounded, size)  # the machine that wrote the file
        contents = PickleReader(bounded, size)
        self.value = contents.value
        keys = PickleReader(bounded, size).value
        self._places = self._find(contents.storages, keys)

    def read(self, storage: Storage) -> bytes:
        """Return the bytes of a storage, whose size is checked already."""
        self._file.seek(self._places[storage.key])
        return self._file.read(storage.nbytes)

    def _find(self, storages: dict[str, Storage], keys: Any) -> dict[str, int]:
        """Return the position of each storage, after a check that all are within the file."""
        is_list = isinstance(keys, list) and all(
            isinstance(key, str | int) for key in keys
        )
        if not is_list or sorted(map(str, keys)) != sorted(storages):
            raise ValueError(
                "its list of storages is not that of the storages that its tensors use"
            )
        places = {}
        for key in map(str, keys):
            storage = storages[key]
            elements = int.from_bytes(self._file.read(8), "little")
            place = self._file.tell()
            if elements != storage.elements or place + storage.nbytes > self._size:
                raise ValueError(
                    f"its storage {key!r} has {elements:,} elements and {self._size - place:,} "
                    f"bytes are left, wanted {storage.elements:,} of {storage.kind}"
                )
            places[key] = place
            self._file.seek(storage.nbytes, 1)
        return places


class _Bounded:
    """A file that never allocates memory for more bytes than it has.

    A plain file allocates as many bytes as it is asked for before it reads.
    """

    def __init__(self, file: IO[bytes], size: int):
        self._file = file
        self._size = size
        self.readline = file.readline
        self.tell = file.tell

    def read(self, count: int) -> bytes:
        """Read as many bytes, or those that are left."""
        return self._file.read(min(count, self._size - self._file.tell()))
