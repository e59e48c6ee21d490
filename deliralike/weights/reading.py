"""Reading: the kind of a file is read off its content, then its reader takes over.

No code from a file is run.
"""

from __future__ import annotations

import logging
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deliralike.errors import (
    BackendUnavailable,
    WeightFileError,
    WeightFileMissing,
    reason,
)
from deliralike.network.state import AVERAGES
from deliralike.terminal import log
from deliralike.weights import frameworks, npz_files, safetensors_files
from deliralike.weights.inflate import AnyPath, refuse_hostile_archive, refuse_nul
from deliralike.weights.mark import Arrays, Notes, archive_is_marked

# What torch.nn.DataParallel and torch.compile put before every name.
_WRAPPERS = ("module.", "_orig_mod.")
_NOT_ASKED = (
    "a dense layer behind a flattened picture, and a transposed convolution, are as they lie in "
    "the file, which does not say how: weights.load and zoo.load ask the network"
)


@dataclass(frozen=True)
class Contents:
    """The contents of a weight file.

    Attributes:
        kind: The kind of file, with an article.
        states: The weights by their place in the file: ``""`` where there is nothing else, else the
            dotted keys of a checkpoint, such as ``"model_ema"``; the most likely one comes first.
        order: The meaning of the order of names: ``"all"`` for the order in which the layers were
            made, ``""`` for nothing.
        channels_last: Whether kernels lay in the file with the channels last; they do not in
            `states`.
        exact: Whether this package wrote the file, so that its names are those that were written.
            Otherwise they may be guessed.
        notes: In words, the guesses, and the entries that were left aside.
    """

    kind: str
    states: Mapping[str, Arrays]
    order: str = "all"
    channels_last: bool = False
    exact: bool = False
    notes: Notes = ()

    def first(self) -> tuple[Arrays, Notes]:
        """Return the most likely state with the names of the file, and all notes."""
        first, *others = self.states
        if not others:
            return self.states[first], self.notes
        places = ", ".join(map(repr, others))
        note = (
            f"the weights under {first!r} were taken; there are others under {places}"
        )
        return self.states[first], (*self.notes, note)

    def best(self) -> tuple[Arrays, Notes]:
        """Return the most likely state, and all notes.

        In a file of another program the prefixes of PyTorch's wrappers are taken off.
        """
        state, notes = self.first()
        bare = without_prefix(state)
        if self.exact or bare is state:
            return state, notes
        pairs = zip(state, bare, strict=True)
        name, new = next(pair for pair in pairs if pair[1] != pair[0])
        prefix = name.removesuffix(new)
        return bare, (*notes, f"the prefix {prefix!r} was taken off all names")

    def without_network(self) -> tuple[Arrays, Notes]:
        """Return the most likely state and all notes, where there is no network to ask."""
        state, notes = self.best()
        axes = {array.ndim for array in state.values()}
        if self.channels_last and 2 in axes and max(axes) > 2:
            notes = (*notes, _NOT_ASKED)
        return state, notes


def read(path: AnyPath) -> Arrays:
    """Read the weights in a file by name, as arrays that the caller owns.

    No code from the file is run. A file of `write` gives exactly the weights that were written.
    Names of other files are guessed; the guess is logged to the logger ``"deliralike"`` as a
    warning, and no array is left out but a trainer's own.

    The formats are safetensors; ``torch.save(model.state_dict())``, also nested under
    ``"state_dict"``, ``"model"`` and other keys, and with the ``module.`` of DataParallel or the
    ``_orig_mod.`` of ``torch.compile`` before every name, which is taken off; NumPy's ``.npz``,
    where Chainer's names (``a/b/W`` and those of a trainer's snapshot) become neutral ones
    (``a.b.weight``); flax's msgpack and Orbax's folders, where names and
    layouts become neutral as well (``conv.kernel`` of ``(height, width, in, out)`` is
    ``conv.weight`` of ``(out, in, height, width)``). A layer
    behind a flattened picture stays as it lies in such a file, with pixels before channels, since
    nothing tells which one that is; `load` asks the network. The content
    decides, not the suffix. Names keep the order in which they were written; bfloat16, which NumPy
    lacks, becomes float32.

    Raises:
        WeightFileMissing: There is no such file.
        WeightFileError: The file is hostile, cut short, foreign or unreadable; the message says
            which.
        BackendUnavailable: It is the file of a framework that is not installed.
    """
    file_contents = contents(path)
    state, notes = file_contents.without_network()
    report(path, file_contents.kind, notes)
    return state


def report(path: object, kind: str, notes: Notes) -> None:
    """Log what was guessed of a file; nothing where there is nothing to say."""
    if notes:
        log(logging.WARNING, f"{path}, {kind}: {'; '.join(notes)}")


def contents(path: AnyPath) -> Contents:
    """Return all states in a file, in the layouts of `read`; names keep their prefixes.

    Raises:
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read`.
    """
    path = refuse_nul(path)
    if path.is_dir():
        return _of_framework(path, *_folder_format(path))
    beginning = _beginning(path)
    if safetensors_files.is_ours(beginning):
        with _explaining(path, "a safetensors file"):
            state, exact = safetensors_files.read(path)
            return Contents("a safetensors file", {"": state}, exact=exact)
    if beginning.startswith(_ZIP):
        archive_contents = _of_archive(path)
        if archive_contents is not None:
            return archive_contents
    name, files = frameworks.find(lambda files: beginning.startswith(files.beginnings))
    if files is None or beginning.startswith(_HDF5):  # which begins as msgpack may
        raise WeightFileError(
            f"{path} is not a weight file: found {_describe(beginning)}, wanted {_wanted()}"
        )
    return _of_framework(path, name, files)


def without_prefix(state: Arrays) -> Arrays:
    """Return the state without the prefixes that PyTorch's wrappers give to all names."""
    for prefix in _WRAPPERS:
        names = state.keys() - {AVERAGES}
        if names and all(name.startswith(prefix) for name in names):
            bare = {name.removeprefix(prefix): array for name, array in state.items()}
            return without_prefix(bare)  # a wrapper may be within another one
    return state


_ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF"
_FOREIGN = {
    b"version https://git-lfs": (
        "a Git LFS pointer in place of the file itself (fetch it with 'git lfs pull')"
    ),
    b"\x93NUMPY": "a single NumPy array without a name",
    b"PK\x05\x06": "an empty archive",
    b"\x1f\x8b": "a gzip archive (unpack it first)",
    _HDF5: (
        "an HDF5 file (Chainer reads its own into a network on Chainer: "
        "chainer.serializers.load_hdf5(path, network))"
    ),
    b"<": "a web page or another text in markup",
}


def _of_archive(path: Path) -> Contents | None:
    """Return the contents of a zip archive of NumPy; None for any other archive."""
    if not zipfile.is_zipfile(path):
        raise WeightFileError(
            f"{path} begins as a zip archive, and its end is missing: it was cut off, or is still "
            "being written"
        )
    with _explaining(path, "a zip archive"), zipfile.ZipFile(path) as archive:
        refuse_hostile_archive(path, archive)
        names = archive.namelist()
        if all(name.endswith(".npy") for name in names):
            state, exact, notes = npz_files.read(path, archive)
            kind = "a NumPy archive (.npz)"
            return Contents(kind, {"": state}, exact=exact, notes=notes)
    return None


def _of_framework(path: Path, name: str, files: Any) -> Contents:
    with _explaining(path, files.name):
        states = frameworks.backend(name, f"{path} is {files.name}").read_states(path)
        exact = archive_is_marked(path)
    notes = getattr(states, "notes", ())
    return Contents(files.name, states, files.order, files.channels_last, exact, notes)


def _folder_format(path: Path) -> tuple[str, Any]:
    """Return the framework that keeps its weights in such a folder."""
    with _opening(path):
        names = set(os.listdir(path))
    name, files = frameworks.find(
        lambda files: bool(names.intersection(files.folder_marks))
    )
    if files is None:
        raise WeightFileError(f"{path} is a directory, wanted {_wanted()}")
    for member in path.rglob("*"):
        if not (member.is_file() or member.is_dir()):
            raise WeightFileError(
                f"{member} is a device or pipe, wanted an ordinary file"
            )
    return name, files


def _beginning(path: Path) -> bytes:
    """Return the first bytes of an ordinary file."""
    with _opening(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise WeightFileError(f"{path} is a device or pipe, wanted {_wanted()}")
        with path.open("rb") as file:
            return file.read(64)


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Turn a refusal of the operating system into an error that says what was wanted."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WeightFileMissing(
            f"there is no file {str(path)!r}: wanted {_wanted()}"
        ) from error
    except OSError as error:
        raise WeightFileError(
            f"{path} cannot be opened ({error.strerror or error}): wanted {_wanted()}"
        ) from error


def _describe(beginning: bytes) -> str:
    if not beginning:
        return "an empty file"
    for start, words in _FOREIGN.items():
        if beginning.lstrip().startswith(start):
            return words
    return f"a file that begins with {beginning[:16]!r}"


def _wanted() -> str:
    kinds = [files.name for _, files in frameworks.formats()]
    return " or ".join(["a safetensors file", "a NumPy archive (.npz)", *kinds])


@contextmanager
def _explaining(path: Path, kind: str) -> Iterator[None]:
    """Turn any failure to read into an error that names the file and its apparent kind."""
    try:
        yield
    except (WeightFileError, BackendUnavailable):
        raise
    except Exception as error:
        raise WeightFileError(
            f"{path} looks like {kind} but cannot be read: {reason(error)}. Wanted {_wanted()}"
        ) from error
