"""Our own format, safetensors, which holds arrays and no code; the names keep their order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from deliralike.errors import WeightFileError

# safetensors sorts the names. This key holds their own order, and marks a file as ours.
ORDER = "deliralike.order"
RESERVED = "__metadata__"  # in the place of a name
_ZIP = b"PK\x03\x04"


def is_ours(beginning: bytes) -> bool:
    """Return whether a file begins as safetensors do: eight bytes of length, then a JSON object.

    The length may begin like a pickle, but never fills its upper half.
    """
    like_pickle = beginning.startswith(b"\x80") and any(beginning[4:8])
    return beginning[8:9] == b"{" and not beginning.startswith(_ZIP) and not like_pickle


def read(
    path: Path, whole: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], bool]:
    """Return every array, and whether this package wrote the file.

    The library checks the header before anything in it is used.

    Args:
        whole: The bytes of the file, if they have been read: the arrays are views of them.
    """
    with safetensors.safe_open(path, framework="np") as file:
        order = (file.metadata() or {}).get(ORDER)
        names = _ordered(file.keys(), order)
    state = {}
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
        for name in names:
            kind = header[name]["dtype"]
            if kind not in _STORED:
                raise WeightFileError(
                    f"{path}: {name!r} has the type {kind}, which NumPy lacks"
                )
            begin, end = (8 + length + place for place in header[name]["data_offsets"])
            if whole is None:
                stream.seek(begin)
                part = np.fromfile(stream, np.uint8, end - begin)
            else:
                part = whole[begin:end]
            state[name] = _array(part, kind).reshape(header[name]["shape"])
    return state, order is not None


def _ordered(names: Iterable[str], order: str | None) -> list[str]:
    """Return the names in the order of writing, if the file has it."""
    present = list(names)
    known = json.loads(order or "[]")
    is_order = isinstance(known, list) and len(known) == len(present)
    return known if is_order and set(known) == set(present) else present


def _array(part: np.ndarray, kind: str) -> np.ndarray:
    """Return the numbers of a kind that lie in some bytes."""
    numbers = part.view(_STORED[kind])
    if kind == "BF16":  # the upper half of a float32
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


# NumPy's types of the kinds in a file, which is little-endian.
_STORED = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "C64": "<c8",
    "BOOL": "?",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
}
TYPES = {np.dtype(stored).name: kind for kind, stored in _STORED.items()}
TYPES |= {"uint16": "U16", "bfloat16": "BF16"}


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write arrays of plain numbers, with their order."""
    with path.open("wb") as file:
        file.writelines(pieces(state))


def pieces(state: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: the header, and then each array as it lies in memory."""
    header: dict[str, Any] = {RESERVED: {ORDER: json.dumps(list(state))}}
    # The largest items come first, so that each array begins where its type may lie in memory.
    names = sorted(state, key=lambda name: -state[name].itemsize)
    end = 0
    for name in names:
        array = state[name]
        if array.dtype.name not in TYPES:
            raise WeightFileError(
                f"{name!r} has the type {array.dtype}, which safetensors lack: use .npz or .pth"
            )
        begin = end
        end = end + array.nbytes
        header[name] = {
            "dtype": TYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield np.ascontiguousarray(state[name]).reshape(-1).view(np.uint8).data
