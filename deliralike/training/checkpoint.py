"""Checkpoints: a nest of numbers, texts and arrays as a folder that is whole at any moment.

A folder has one safetensors file for each part that holds arrays, which every reader of such files
reads, and ``state.json`` for all else, with the sizes and checksums of the files. It holds no code.

A new checkpoint is written aside, in ``.NAME.new``, and takes the place of the old one by two
renames; between them the old one is ``.NAME.old``, where `read` finds it. One process at a time
writes a folder, which ``.NAME.lock`` guards. The rest that a killed process leaves is ignored, and
removed by the next writer.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from deliralike.errors import ArgumentError, CheckpointError, CheckpointMissing
from deliralike.training import array_file
from deliralike.training.array_file import Content
from deliralike.training.json_nests import Flattener, unflatten
from deliralike.training.lock import locked
from deliralike.weights import flush
from deliralike.weights.inflate import AnyPath

STATE = "state.json"
LOCK = ".lock"
FORMAT = "deliralike checkpoint"
VERSION = 5
_END = ',\n "crc32": '


def write(folder: AnyPath, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint, which replaces an older one, and flush it to the disk.

    Args:
        state: Parts by name. Each is made of dicts with texts as keys, lists, tuples, numbers,
            texts, None and NumPy arrays; NumPy's scalars become Python's, and bfloat16 arrays come
            back as float32 with the same values. The arrays of ``state["network"]`` are in
            ``network.safetensors``, as `deliralike.weights.write` has them if the part is a neutral
            state.

    Returns:
        The folder.

    Raises:
        CheckpointError: Something cannot be stored exactly, something other than a checkpoint is in
            the place, another process is writing it, or the disk refuses. What was there is left as
            it was.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> state = {"network": {"fc.weight": np.ones((2, 3))}, "run": {"step": 7}}
        >>> path = write(f"{folder.name}/latest", state)
        >>> sorted(file.name for file in path.iterdir()), read(path)["run"]
        (['network.safetensors', 'state.json'], {'step': 7})
        >>> folder.cleanup()
    """
    folder = Path(folder).resolve()
    parts = _flattened(state)
    with refused_by_disk(folder):
        _make(folder.parent)
        with _locked(folder):
            _recover(folder)
            _refuse_foreign(folder)
            new = _sibling(folder, "new")
            shutil.rmtree(new, ignore_errors=True)
            try:
                _fill(new, parts)
                _replace(folder, new)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    return folder


def read(folder: AnyPath) -> dict[str, Any]:
    """Read the state in a checkpoint; everything is checked before anything is returned.

    Raises:
        ArgumentError: `folder` is no path.
        CheckpointMissing: There is no checkpoint.
        CheckpointError: It is damaged, cut short, changed, of a newer version, or something else.
    """
    if not isinstance(folder, str | os.PathLike):
        raise ArgumentError(
            f"a checkpoint is read from the path of its folder, such as resume='run/last', not "
            f"from {folder!r}"
        )
    place = _existing(Path(folder))
    if place is None:
        raise CheckpointMissing(f"there is no checkpoint {str(Path(folder))!r}")
    folder = place
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, wanted the folder of a checkpoint")
    described = _described(folder / STATE)
    try:
        arrays = {}
        for part, content in described["files"].items():
            path = folder / _file(part)
            arrays[part] = array_file.read(path, Content(**content))
        state = {}
        for part, value in described["state"].items():
            state[part] = unflatten(value, arrays.get(part, {}))
        return state
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{folder / STATE} does not say what a checkpoint says: {error!r}"
        ) from error


def exists(folder: AnyPath) -> bool:
    """Return whether there is a checkpoint that `read` would read."""
    place = _existing(Path(folder)) or Path(folder)
    return (place / STATE).is_file()


def remove(folder: AnyPath) -> None:
    """Remove a checkpoint, and what a killed process left of one; it is whole until it is gone.

    Raises:
        CheckpointError: The folder is no checkpoint, or the disk refuses.
    """
    folder = Path(folder).resolve()
    if not folder.parent.is_dir():
        return
    with refused_by_disk(folder, "removed"), _locked(folder):
        _recover(folder)
        _refuse_foreign(folder)
        moved = _sibling(folder, "gone")
        with suppress(FileNotFoundError):
            folder.rename(moved)
        for left in (moved, _sibling(folder, "new")):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def folder_of_run(folder: AnyPath) -> Iterator[None]:
    """Hold the lock on the folder of a run's checkpoints, which is made if it does not exist.

    Raises:
        CheckpointError: Another process writes there.
    """
    folder = Path(folder)
    with ExitStack() as stack:
        with refused_by_disk(folder):
            _make(folder.resolve())
            stack.enter_context(locked(folder / LOCK, str(folder)))
        yield


# Writing ------------------------------------------------------------------------------------------


def _flattened(
    state: Mapping[str, Any],
) -> dict[str, tuple[Any, dict[str, np.ndarray]]]:
    """Return the JSON and the arrays of each part."""
    parts = {}
    try:
        for part, nested in state.items():
            flattener = Flattener(str(part))
            flat = flattener.flatten(nested)
            parts[flattener.where] = (flat, flattener.arrays)
        return parts
    except RecursionError:
        raise CheckpointError(
            "the state holds itself, or is nested deeper than can be written"
        ) from None


def _make(folder: Path) -> None:
    """Make a folder and those above it, and flush them to the disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


def _fill(new: Path, parts: Mapping[str, tuple[Any, dict[str, np.ndarray]]]) -> None:
    """Write all parts into a new folder, and flush it to the disk."""
    new.mkdir()
    files = {}
    values = {}
    for part, (value, arrays) in parts.items():
        values[part] = value
        if arrays:
            content = array_file.write(new / _file(part), arrays)
            files[part] = asdict(content)
    described = {"format": FORMAT, "version": VERSION, "files": files, "state": values}
    text = json.dumps(described, indent=1).removesuffix("\n}")
    checksum = zlib.crc32(text.encode())
    array_file.write_bytes(new / STATE, [f"{text}{_END}{checksum}\n}}\n".encode()])
    flush(new)


def _replace(folder: Path, new: Path) -> None:
    """Let the new folder take the place of the old one; a failure brings the old one back."""
    old = _sibling(folder, "old")
    with suppress(FileNotFoundError):
        os.replace(folder, old)
    try:
        os.replace(new, folder)
        flush(folder.parent)
    except BaseException:
        if not new.exists():
            os.replace(folder, new)
        _recover(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _recover(folder: Path) -> None:
    """Undo the first of the two renames if a process was killed before the second; clean up."""
    old = _sibling(folder, "old")
    if not os.path.lexists(folder) and old.is_dir():
        os.replace(old, folder)
    for what in ("old", "gone"):
        shutil.rmtree(_sibling(folder, what), ignore_errors=True)


def _refuse_foreign(folder: Path) -> None:
    """Raise an error if something else than a checkpoint is in the place."""
    if not folder.exists() or (folder / STATE).is_file():
        return
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is a file, and was left as it was: give the name of a folder"
        )
    if any(folder.iterdir()):
        raise CheckpointError(
            f"{folder} holds something else than a checkpoint, and was left as it was: give "
            "another folder"
        )


def _locked(folder: Path) -> AbstractContextManager[None]:
    return locked(_sibling(folder, "lock"), str(folder))


def _file(part: str) -> str:
    return f"{quote(part, safe=' ')}.safetensors"


def _sibling(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


@contextmanager
def refused_by_disk(folder: Path, done: str = "written") -> Iterator[None]:
    """Say of an operating system error which folder or file was not written."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{folder} was not {done}, and what was there is left as it was: "
            f"{error.strerror or error}"
        ) from error


# Reading ------------------------------------------------------------------------------------------


def _existing(folder: Path) -> Path | None:
    """Return the folder, or its place while a writer replaces it; None if there is neither."""
    for path in (folder, _sibling(folder.resolve(), "old")):
        if os.path.exists(path):
            return path
    return None


def _described(path: Path) -> dict[str, Any]:
    """Return the checked content of ``state.json``."""
    if not os.path.lexists(path):
        names = sorted(place.parent.name for place in path.parent.glob(f"*/{STATE}"))
        advice = (
            f", but checkpoints: give one of them, such as {names[-1]}" if names else ""
        )
        raise CheckpointError(
            f"{path.parent} is no checkpoint: there is no {STATE} in it{advice}"
        )
    data = array_file.read_bytes(path).tobytes()
    try:
        described = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or cut short: {error}") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was not written by deliralike: wanted a {FORMAT}"
        )
    if described.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {described.get('version')!r} of the format, and this deliralike "
            f"reads version {VERSION}: read it with the one that wrote it"
        )
    text, _, end = data.rpartition(_END.encode())
    if end.strip(b"\n }") != str(zlib.crc32(text)).encode():
        raise CheckpointError(
            f"{path} is damaged or was changed: its checksum is not the one that was written"
        )
    return described
