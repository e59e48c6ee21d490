"""Weight files: the one place that reads, writes and converts them.

Our own format is safetensors, which holds arrays and nothing that runs. What a file is, is told from its content; files
of a framework's own are left to its backend, loaded on demand, and no way of reading here runs code from a file.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import secrets
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from deliralike.errors import BackendUnavailable, SettingError, StateError, WeightFileError, WeightFileMissing
from deliralike.state import LoadReport, host_array

if TYPE_CHECKING:
    from deliralike.backends import WeightFiles
    from deliralike.network import AbstractNetwork

State = Mapping[str, Any]

_ORDER = "deliralike.order"  # safetensors sorts the names; their own order stands in the metadata under this key
_PARALLEL = "module."  # what torch.nn.DataParallel puts before every name
_ALWAYS_ALLOWED, _MOST_EXPANSION = 64 * 2**20, 100  # bytes; weights hardly compress: a file does not grow a hundredfold


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did, or would do.

    Attributes:
        source, target: The two files.
        names: The names of the weights, in order.
        bytes: What the arrays take in memory.
        dtypes: How many arrays there are of each type.
        written: False after a dry run.
    """

    source: Path
    target: Path
    names: tuple[str, ...]
    bytes: int
    dtypes: dict[str, int]
    written: bool

    def __str__(self) -> str:
        """One sentence."""
        kinds = ", ".join(f"{count} {dtype}" for dtype, count in self.dtypes.items())
        done = "" if self.written else " (dry run: nothing was written)"
        return f"{self.source} -> {self.target}: {len(self.names)} arrays ({kinds}), {self.bytes / 1e6:.1f} MB{done}"


def write(
    path: str | os.PathLike[str], weights: AbstractNetwork | State, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights of a network, or a neutral state, in the format that the suffix names.

    ``.safetensors`` is our own; ``.npz`` is NumPy's; ``.pth`` and ``.pt`` are written by the backend of that framework
    as a plain dict of tensors. The file appears at once and whole: a failure leaves what was there before.

    Args:
        metadata: Texts to keep beside the weights, for `read_metadata`; safetensors only.

    Raises:
        WeightFileError: The suffix is unknown, an array has a type that the format lacks, or the disk refuses.
        SettingError: The metadata are not texts, or the format has none.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> write(f"{folder.name}/x.safetensors", {"fc.weight": np.ones((2, 3))}, metadata={"epoch": "5"})
        >>> read(f"{folder.name}/x.safetensors")["fc.weight"].shape, read_metadata(f"{folder.name}/x.safetensors")
        ((2, 3), {'epoch': '5'})
        >>> folder.cleanup()
    """
    path = Path(path)
    writer = _writer(path)
    state = _storable(path, _state_of(weights))
    if metadata is not None:
        _check_metadata(path, writer, metadata)
    with _replacing(path) as temporary:
        writer(temporary, state, **({} if metadata is None else {"metadata": dict(metadata)}))


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The weights in a file by name, as arrays that the caller owns. No code from the file is run.

    Read are safetensors; ``torch.save(model.state_dict())``, also nested under ``"state_dict"`` or ``"model"`` and with
    the ``module.`` of DataParallel before every name, which is taken off; and NumPy's ``.npz``, where Chainer's names
    (``a/b/W`` and those of a trainer's snapshot) become neutral ones (``a.b.weight``). The content decides, not the
    suffix. Names keep the order in which they were written; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        WeightFileMissing: There is no such file.
        WeightFileError: The file is hostile, cut short, foreign or unreadable; the message says what was found.
        BackendUnavailable: It is the file of a framework that is not installed.
    """
    return _without_prefix(_read(Path(path)))


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts that were written beside the weights; empty for formats that have none.

    Raises:
        WeightFileMissing, WeightFileError: As for `read`.
    """
    path = Path(path)
    if not _is_safetensors(_beginning(path)):
        return {}
    with _explaining(path, "a safetensors file"), safetensors.safe_open(path, framework="np") as file:
        return {key: text for key, text in (file.metadata() or {}).items() if key != _ORDER}


def load(network: AbstractNetwork, path: str | os.PathLike[str], strict: bool = True) -> LoadReport:
    """Take over the weights in a file; see `read` and `AbstractNetwork.load_neutral_state`.

    Raises:
        StateError: The weights do not fit the network, which is left as it was.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read`.
    """
    state = _read(Path(path))
    if not any(name in state for name in network.neutral_slots()):  # a network may well have a block called "module"
        state = _without_prefix(state)
    try:
        return network.load_neutral_state(state, strict=strict)
    except StateError as error:
        raise StateError(f"{path}: {error}") from None


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str], dry_run: bool = False) -> ConversionReport:
    """Write the weights of one file into another, in the format that the target's suffix names; see `read` and `write`.

    Args:
        dry_run: Read and check everything, write nothing.
    """
    source, target = Path(source), Path(target)
    writer = _writer(target)
    state = _storable(target, read(source))
    if not dry_run:
        with _replacing(target) as temporary:
            writer(temporary, state)
    dtypes = Counter(str(array.dtype) for array in state.values())
    size = sum(array.nbytes for array in state.values())
    return ConversionReport(source, target, tuple(state), size, dict(dtypes), written=not dry_run)


def refuse_expansion(path: Path, size: int) -> None:
    """An error when a file unfolds into far more bytes than weights ever do; for readers of packed formats."""
    if size > max(_ALWAYS_ALLOWED, _MOST_EXPANSION * path.stat().st_size):
        raise WeightFileError(
            f"{path} of {path.stat().st_size:,} bytes claims to hold {size:,} bytes of arrays, more than "
            f"{_MOST_EXPANSION} times its size: it is damaged or hostile, and was not unpacked"
        )


# Telling files apart ---------------------------------------------------------------------------------------------

_ZIP = b"PK\x03\x04"
_FOREIGN = {
    b"version https://git-lfs": "a Git LFS pointer in place of the file itself (fetch it with 'git lfs pull')",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a single NumPy array without a name",
    b"PK\x05\x06": "an empty archive",
    b"\x1f\x8b": "a gzip archive (unpack it first)",
    b"<": "a web page or another text in markup",
}


def _read(path: Path) -> dict[str, np.ndarray]:
    beginning = _beginning(path)
    if _is_safetensors(beginning):
        with _explaining(path, "a safetensors file"):
            return _read_safetensors(path)
    if beginning.startswith(_ZIP):
        with _explaining(path, "a zip archive"), zipfile.ZipFile(path) as archive:
            refuse_expansion(path, sum(member.file_size for member in archive.infolist()))
            if all(name.endswith(".npy") for name in archive.namelist()):
                return _read_npz(path, archive)
    name, files = _framework_format(lambda files: beginning.startswith(files.beginnings))
    if files is None:
        raise WeightFileError(f"{path} is not a weight file: found {_describe(beginning)}, wanted {_wanted()}")
    with _explaining(path, files.name):
        return _backend(name, f"{path} is {files.name}").read_weights(path)


def _beginning(path: Path) -> bytes:
    """The first bytes of an ordinary file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise WeightFileError(f"{path} is a directory, wanted {_wanted()}")
        if not stat.S_ISREG(status.st_mode):
            raise WeightFileError(f"{path} is a device or pipe, wanted {_wanted()}")
        with path.open("rb") as file:
            return file.read(64)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WeightFileMissing(f"there is no file {str(path)!r}: wanted {_wanted()}") from error
    except OSError as error:
        raise WeightFileError(f"{path} cannot be opened ({error.strerror or error}): wanted {_wanted()}") from error


def _is_safetensors(beginning: bytes) -> bool:
    """Eight bytes of length, then a JSON object. The length may begin like a pickle, but never fills its upper half."""
    like_pickle = beginning.startswith(b"\x80") and any(beginning[4:8])
    return beginning[8:9] == b"{" and not beginning.startswith(_ZIP) and not like_pickle


def _describe(beginning: bytes) -> str:
    if not beginning:
        return "an empty file"
    known = (words for start, words in _FOREIGN.items() if beginning.lstrip().startswith(start))
    return next(known, f"a file that begins with {beginning[:16]!r}")


def _wanted() -> str:
    frameworks = [files.name for _, files in _framework_formats()]
    return " or ".join(["a safetensors file", "a NumPy archive (.npz)", *frameworks])


@contextmanager
def _explaining(path: Path, kind: str) -> Iterator[None]:
    """Any failure to read becomes an error that names the file and what it seems to be."""
    try:
        yield
    except (WeightFileError, BackendUnavailable):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise WeightFileError(f"{path} looks like {kind} but cannot be read: {reason}. Wanted {_wanted()}") from error


# The formats of frameworks ---------------------------------------------------------------------------------------


def _framework_formats() -> list[tuple[str, WeightFiles]]:
    return importlib.import_module("deliralike.backends").weight_files()


def _framework_format(fits: Callable[[WeightFiles], bool]) -> tuple[str, WeightFiles | None]:
    return next(((name, files) for name, files in _framework_formats() if fits(files)), ("", None))


def _backend(name: str, why: str) -> Any:
    try:
        return importlib.import_module("deliralike.backends").get(name)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"{why}: {error}") from error


# Reading ---------------------------------------------------------------------------------------------------------


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Every array; the library checks the header before a word of it is believed."""
    with safetensors.safe_open(path, framework="np") as file:
        names = _ordered(file.keys(), (file.metadata() or {}).get(_ORDER))
    header, start = _header(path)
    with path.open("rb") as bytes_of:
        return {name: _stored(path, bytes_of, name, header[name], start) for name in names}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What the file says about its arrays, and where their bytes begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def _ordered(names: Iterable[str], order: str | None) -> list[str]:
    """The order in which the names were written, if the file knows it; a wrong one loses no name."""
    names = list(names)
    known = json.loads(order) if order else []
    first = [name for name in known if name in set(names)] if isinstance(known, list) else []
    return list(dict.fromkeys([*first, *names]))


def _stored(path: Path, file: IO[bytes], name: str, described: Mapping[str, Any], start: int) -> np.ndarray:
    """One array, read straight into its place: twice as fast as by the library."""
    kind, shape = described["dtype"], described["shape"]
    if kind not in _STORED:
        raise WeightFileError(f"{path}: {name!r} has the type {kind}, which NumPy lacks")
    file.seek(start + described["data_offsets"][0])
    array = np.fromfile(file, _STORED[kind], math.prod(shape)).reshape(shape)
    if kind == "BF16":  # the upper half of a float32
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


_STORED = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "C64": "<c8", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


def _read_npz(path: Path, archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    members = {name.removesuffix(".npy"): name for name in archive.namelist()}
    if snapshot := {name: member for name, member in members.items() if name.startswith(_SNAPSHOT)}:
        members = {name.removeprefix(_SNAPSHOT): member for name, member in snapshot.items()}
    names = _neutral_names(list(members))
    return {names[name]: _checked(path, name, _member(path, archive, name, member)) for name, member in members.items()}


def _member(path: Path, archive: zipfile.ZipFile, name: str, member: str) -> np.ndarray:
    """One array; its header must describe exactly the bytes that follow."""
    with archive.open(member) as file:
        shape, fortran_order, dtype = _array_header(file)
        _refuse_kind(path, name, dtype)
        left = archive.getinfo(member).file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != left:
            raise WeightFileError(f"{path}: {name!r} claims the shape {shape} of {dtype}, but {left:,} bytes follow")
        array = np.empty(math.prod(shape), dtype)
        array.view(np.uint8).data[:] = file.read(left)  # reaching the end checks the sum
    return array.reshape(shape, order="F" if fortran_order else "C")


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def _checked(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    _refuse_kind(path, name, array.dtype)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _refuse_kind(path: Path, name: str, dtype: np.dtype) -> None:
    if dtype.kind not in "biufc":
        what = "Python objects, which only unsafe reading brings back" if dtype.hasobject else f"the type {dtype}"
        raise WeightFileError(f"{path}: {name!r} holds {what}; wanted an array of numbers")


# Names -----------------------------------------------------------------------------------------------------------

_SNAPSHOT = "updater/model:main/"  # where chainer.training.extensions.snapshot keeps the model
_LEAVES = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
    "N": "num_batches_tracked",
}


def _neutral_names(names: list[str]) -> dict[str, str]:
    """Chainer's names in neutral form; any others as they are."""
    if any("." in name for name in names):
        return {name: name for name in names}
    return {name: _neutral_name(name) for name in names}


def _neutral_name(name: str) -> str:
    *path, leaf = name.strip("/").split("/")
    return ".".join([*path, _LEAVES.get(leaf, leaf)])


def _without_prefix(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not state or not all(name.startswith(_PARALLEL) for name in state):
        return state
    return {name.removeprefix(_PARALLEL): array for name, array in state.items()}


# Writing ---------------------------------------------------------------------------------------------------------


def _writer(path: Path) -> Callable[..., None]:
    """What writes the format that the suffix names."""
    if path.suffix in _WRITERS:
        return _WRITERS[path.suffix]
    name, files = _framework_format(lambda files: path.suffix in files.suffixes)
    if files is None:
        suffixes = [*_WRITERS, *(suffix for _, files in _framework_formats() for suffix in files.suffixes)]
        raise WeightFileError(
            f"no weight format has the suffix {path.suffix!r} of {str(path)!r}: wanted one of {', '.join(suffixes)}"
        )
    return _backend(name, f"{path} is to be {files.name}").write_weights


def _write_safetensors(path: Path, state: State, metadata: Mapping[str, str] | None = None) -> None:
    texts = dict(metadata or {}) | {_ORDER: json.dumps(list(state))}
    safetensors.numpy.save_file(dict(state), path, metadata=texts)


def _write_npz(path: Path, state: State) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in state.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


_WRITERS: dict[str, Callable[..., None]] = {".safetensors": _write_safetensors, ".npz": _write_npz}


def _check_metadata(path: Path, writer: Callable[..., None], metadata: Mapping[str, str]) -> None:
    if writer is not _write_safetensors:
        raise SettingError(f"{path}: only safetensors files keep metadata, not {path.suffix!r}")
    wrong = {key: text for key, text in metadata.items() if not (isinstance(key, str) and isinstance(text, str))}
    if wrong or _ORDER in metadata:
        raise SettingError(f"{path}: metadata are texts by name (and {_ORDER!r} is taken), not {wrong or metadata!r}")


def _state_of(weights: Any) -> State:
    if hasattr(weights, "neutral_state"):
        return weights.neutral_state()
    if isinstance(weights, Mapping):
        return weights
    raise WeightFileError(
        f"a {type(weights).__name__} has no neutral state: wanted a network or a dict of arrays by name; a network "
        f"of a framework's own is wrapped first: backends.get(name).wrap(network)"
    )


def _storable(path: Path, state: State) -> dict[str, np.ndarray]:
    """Arrays as files want them: plain numbers, in order, in this machine's byte order."""
    if not state:
        raise WeightFileError(f"{path}: there are no weights to write")
    kept = ("bfloat16",) if path.suffix == ".safetensors" else ()
    try:
        arrays = {str(name): host_array(name, value, keep=kept) for name, value in state.items()}
    except StateError as error:
        raise WeightFileError(f"{path} cannot hold the weights: {error}") from None
    return arrays


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A new file beside the old one, which takes its place when all is written and on the disk, or never."""
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
        raise WeightFileError(
            f"{path} was not written, and what was there is left as it was: {_words(error)}"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _words(error: Exception) -> str:
    """What went wrong, without the name of the temporary file."""
    return getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
