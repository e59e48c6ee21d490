"""Archives of NumPy, and of Chainer, which are the same format with Chainer's names."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deliralike.errors import WeightFileError
from deliralike.weights import chainer_names, mark


def read(
    path: Path, archive: zipfile.ZipFile
) -> tuple[mark.Arrays, bool, tuple[str, ...]]:
    """Return every array of an open archive, whether this package wrote it, and notes.

    Chainer's names in a foreign one become neutral. Its members, each with a name of its own, are
    checked already.
    """
    members = {name.removesuffix(".npy"): name for name in archive.namelist()}
    exact = mark.is_marked(archive)
    names, notes = chainer_names.neutral(list(members))
    if exact:
        names, notes = {name: name for name in members}, ()
    state = {}
    for name, neutral_name in names.items():
        array = _read_member(path, archive, name, members[name])
        state[neutral_name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return state, exact, notes


def _read_member(
    path: Path, archive: zipfile.ZipFile, name: str, member: str
) -> np.ndarray:
    """Return one array; its header must describe exactly the bytes that follow."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_2_0
        if version == (1, 0):
            read_header = np.lib.format.read_array_header_1_0
        shape, _, dtype = read_header(file)
        if dtype.kind not in "biufc":
            kind = f"the type {dtype}"
            if dtype.hasobject:
                kind = "Python objects, which only unsafe reading brings back"
            raise WeightFileError(
                f"{path}: {name!r} holds {kind}; wanted an array of numbers"
            )
        rest = archive.getinfo(member).file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != rest:
            raise WeightFileError(
                f"{path}: {name!r} claims the shape {shape} of {dtype}, but {rest:,} bytes follow"
            )
        file.seek(0)
        return np.lib.format.read_array(file)  # reaching the end checks the sum


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write an archive that `numpy.load` reads without pickle."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in state.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
