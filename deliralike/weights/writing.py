"""Writing: the suffix names the format, and a file appears whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike.errors import StateError, WeightFileError, reason
from deliralike.network.state import host_array
from deliralike.weights import frameworks, npz_files, safetensors_files
from deliralike.weights.inflate import AnyPath, refuse_nul
from deliralike.weights.mark import mark_archive

if TYPE_CHECKING:
    from deliralike.network.base import AbstractNetwork

State = Mapping[str, Any]

_LONGEST_NAME = 60_000  # bytes; a zip archive counts them in two
_WRITERS: dict[str, Callable[..., None]] = {
    ".safetensors": safetensors_files.write,
    ".npz": npz_files.write,
}


def write(
    path: AnyPath,
    weights: AbstractNetwork | State,
) -> None:
    """Write the weights of a network, or a neutral state, in the format of the suffix.

    ``.safetensors`` is our own; ``.npz`` is NumPy's; ``.pth`` and ``.pt`` are written by the
    backend of that framework as a plain dict of tensors. The file appears at once and whole: a
    failure leaves what was there before.

    Raises:
        WeightFileError: The suffix is unknown, an array has a type that the format lacks, or the
            disk refuses.

    Example:
        >>> import tempfile
        >>> from deliralike.weights import read
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = f"{folder.name}/x.safetensors"
        >>> write(path, {"fc.weight": np.ones((2, 3))})
        >>> read(path)["fc.weight"].shape
        (2, 3)
        >>> folder.cleanup()
    """
    path = refuse_nul(path)
    writer = writer_of(path)
    state = storable(path, _state_of(weights))
    with replacing(path) as temporary:
        writer(temporary, state)
        mark_archive(temporary)


def writer_of(path: Path) -> Callable[..., None]:
    """Return the function that writes the format of the suffix.

    Raises:
        WeightFileError: No format has the suffix.
    """
    if path.suffix in _WRITERS:
        return _WRITERS[path.suffix]
    name, files = frameworks.find(lambda files: path.suffix in files.suffixes)
    if files is None:
        suffixes = [*_WRITERS]
        for _, others in frameworks.formats():
            suffixes += others.suffixes
        raise WeightFileError(
            f"no weight format has the suffix {path.suffix!r} of {str(path)!r}: wanted one of "
            f"{', '.join(suffixes)}"
        )
    return frameworks.backend(name, f"{path} is to be {files.name}").write_weights


def storable(path: Path, state: State) -> dict[str, np.ndarray]:
    """Return the arrays of a state as files store them: plain numbers in native byte order."""
    if not state:
        raise WeightFileError(f"{path}: there are no weights to write")
    keep = ("bfloat16",) if path.suffix == ".safetensors" else ()
    arrays = {}
    try:
        for name, value in state.items():
            _check_name(path, str(name))
            arrays[str(name)] = host_array(name, value, keep=keep)
    except StateError as error:
        raise WeightFileError(f"{path} cannot hold the weights: {error}") from None
    return arrays


def _check_name(path: Path, name: str) -> None:
    """Raise an error for a name that is no UTF-8, too long, reserved, or has a NUL in it."""
    encoded = name.encode(errors="replace")
    fits = encoded.decode() == name and len(encoded) <= _LONGEST_NAME
    is_reserved = path.suffix == ".safetensors" and name == safetensors_files.RESERVED
    if "\0" in name or not fits or is_reserved:
        shown = name if len(name) < 80 else f"{name[:60]}…"
        raise WeightFileError(
            f"{path} cannot hold weights by the name {shown!r}: wanted Unicode text of at most "
            f"{_LONGEST_NAME:,} bytes without a NUL, and for safetensors not "
            f"{safetensors_files.RESERVED!r}; rename the layer or the parameter"
        )


def _state_of(weights: Any) -> State:
    if hasattr(weights, "neutral_state"):
        return weights.neutral_state()
    if isinstance(weights, Mapping):
        return weights
    raise WeightFileError(
        f"a {type(weights).__name__} has no neutral state: wanted a network or a dict of arrays "
        "by name; a network of a framework's own is wrapped first: "
        "backends.get(name).wrap(network)"
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `path` when it is whole and on the disk.

    After a failure the old file stays.
    """
    final = path.resolve()  # a link stays a link
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb"):
            mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors would let nobody else read the file
        flush(temporary)
        temporary.replace(final)
        flush(final.parent)
    except WeightFileError:
        raise
    except Exception as error:
        # without the name of the temporary file
        words = getattr(error, "strerror", None) or reason(error)
        raise WeightFileError(
            f"{path} was not written, and what was there is left as it was: {words}"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
