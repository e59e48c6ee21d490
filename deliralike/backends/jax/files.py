"""The weight files of flax: msgpack, and the folders of Orbax, which comes with flax.

Both hold nothing that is executed.
"""

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import jax
import msgpack
import numpy as np
from flax import serialization

from deliralike.errors import StateError, WeightFileError
from deliralike.network.state import host_array
from deliralike.weights import mark, refuse_expansion, trees

_AVERAGED = ("ema_params", "params_ema", "ema")
_NESTED_UNDER = ("model", "state", "model_state", "state_dict", *_AVERAGED)
_OF_TRAINING = (
    "opt_state",
    "optimizer",
    "optimizer_state",
    "opt",
    "step",
    "epoch",
    "rng",
    "rngs",
    "key",
    "metrics",
    "loss_scale",
    "dynamic_scale",
    "config",
)
_DRAWN = "rngs"  # where nnx keeps the keys of dropout, which are no weights
_NAMES_FILE = "deliralike.json"  # in a folder of ours; Orbax reads the files that it knows
_TEXTS = (*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB)  # the bytes with which a text begins in msgpack
_WANTED = "wanted arrays in nested dicts, as flax.serialization.to_bytes or Orbax write them"


def read(path: Path) -> mark.FileStates:
    """The arrays under neutral names and in PyTorch's layouts.

    Returns:
        What was written, for a file of ours. For another's, a state for each place of a training
        state that holds one; ``""`` where there is nothing else. Nothing that may be weights is
        left aside.

    Raises:
        WeightFileError: There is something else than arrays in nested dicts in it.
    """
    if path.is_dir():
        tree, listing = _orbax(path), _names_file(path)
    else:
        packed = path.read_bytes()
        tree = serialization.msgpack_restore(packed)
        listing = _first_value(packed) if isinstance(tree, Mapping) and tree else None
    try:
        places = mark.places_in(listing)
    except WeightFileError as error:
        raise WeightFileError(f"{path}: {error}") from error
    if places is not None:
        return mark.FileStates({"": _written(path, tree, places)}, exact=True)
    notes: list[str] = ["names and layouts taken for flax's"]
    states = {key: _state(path, part, notes) for key, part in _parts(path, tree, notes).items()}
    return mark.FileStates(states, notes=dict.fromkeys(notes))


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write a state in flax's names and layouts.

    The result is one file, or a folder of Orbax where the name is that of a folder.
    """
    try:
        tree, places = trees.channels_last(state)
    except ValueError as error:
        raise WeightFileError(f"flax's nested names cannot hold these weights: {error}") from None
    if (
        path.name.split(".")[-3:-2] == ["orbax"] or path.suffix == ".orbax"
    ):  # also under its temporary name
        path.unlink(missing_ok=True)
        with _quiet(), _checkpointer() as checkpointer:
            checkpointer.save(path.absolute(), tree)
        (path / _NAMES_FILE).write_text(mark.listing(places))
    else:
        _write_msgpack(path, tree, mark.listing(places))


def _write_msgpack(path: Path, tree: dict[str, Any], listing: str) -> None:
    """Pack a tree, with the listing under its first key before its first entry.

    A key that comes twice has the later value for those who do not look for the earlier: flax reads
    the tree alone.
    """
    packer = msgpack.Packer()
    packed = serialization.msgpack_serialize(tree, in_place=True)  # a copy would sort the names
    start = len(packer.pack_map_header(len(tree)))
    with path.open("wb") as file:
        file.write(
            packer.pack_map_header(len(tree) + 1)
            + packer.pack(next(iter(tree)))
            + packer.pack(listing)
        )
        file.write(memoryview(packed)[start:])


def _first_value(packed: bytes) -> Any:
    """The first value of a packed dict, where that is a text; None where it is anything else."""
    unpacker = msgpack.Unpacker(BytesIO(packed), strict_map_key=False)
    unpacker.read_map_header()
    unpacker.skip()
    kind = packed[unpacker.tell()]
    return unpacker.unpack() if kind in _TEXTS else None


def _names_file(path: Path) -> str | None:
    """The listing in a folder that we wrote; None where there is none."""
    file = path / _NAMES_FILE
    if not file.is_file():
        return None
    text = file.read_text(errors="replace")
    if mark.places_in(text) is None:
        raise WeightFileError(
            f"{file} is damaged, and with it the names of the weights: copy the whole folder again"
        )
    return text


def _written(path: Path, tree: Any, places: Mapping[str, trees.Path]) -> dict[str, np.ndarray]:
    """The state that we wrote, from where the listing says that its arrays lie."""
    try:
        found = trees.from_places(tree, places)
    except ValueError as error:
        raise WeightFileError(f"{path}: {error}") from None
    return {
        name: _own(trees.turned_back(name, place, _array(path, place, found[place])))
        for name, place in places.items()
    }


def _orbax(path: Path) -> Any:
    with _quiet(), _checkpointer() as checkpointer:
        metadata = checkpointer.metadata(path.absolute()).item_metadata
        if metadata is None:
            raise WeightFileError(
                f"{path} is a damaged folder of Orbax: its '_METADATA', 'manifest.ocdbt' or the "
                "arrays in 'd' are missing or were changed; copy the whole folder again"
            )
        described = metadata.tree
        sizes = [
            int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
            for leaf in jax.tree.leaves(described)
            if getattr(leaf, "shape", None) is not None
        ]
        folder_size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        refuse_expansion(path, sum(sizes), folder_size)
        orbax = importlib.import_module("orbax.checkpoint")
        arguments = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), described)
        return checkpointer.restore(
            path.absolute(), args=orbax.args.PyTreeRestore(restore_args=arguments)
        )


def _checkpointer() -> Any:
    orbax = importlib.import_module("orbax.checkpoint")
    return orbax.Checkpointer(orbax.PyTreeCheckpointHandler())


@contextmanager
def _quiet() -> Iterator[None]:
    """Orbax reports each step, and warns of what it may do one day."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _parts(path: Path, tree: Any, notes: list[str]) -> dict[str, Any]:
    """Return the weights in a training state, or the whole tree.

    The whole tree is returned where other weights may lie beside the usual places, as linen's
    statistics do.
    """
    if not isinstance(tree, Mapping) or not tree:
        raise WeightFileError(
            f"{path} holds a {type(tree).__name__} in place of arrays by name; {_WANTED}"
        )
    known = (
        ("params", "batch_stats", *_AVERAGED)
        if isinstance(tree.get("params"), Mapping)
        else _NESTED_UNDER
    )
    if any(_may_hold_weights(key, tree[key]) for key in tree if key not in known):
        return {"": tree}
    if beside := [key for key in tree if key not in known]:
        notes.append(f"read as a training state; {', '.join(map(repr, beside))} left aside")
    if "params" in known:
        statistics = (
            {"batch_stats": tree["batch_stats"]}
            if isinstance(tree.get("batch_stats"), Mapping)
            else {}
        )
        found = {
            "" if len(tree) == 1 + len(statistics) else "params": _joined(
                tree["params"], statistics
            )
        }
        averaged = [key for key in _AVERAGED if isinstance(tree.get(key), Mapping)]
        return found | {key: _joined(tree[key], statistics) for key in averaged}
    nested = [key for key in _NESTED_UNDER if isinstance(tree.get(key), Mapping)]
    if (
        not nested or len(nested) == len(tree) == 1 and "kernel" in tree[nested[0]]
    ):  # a layer of that name
        return {"": tree}
    return {
        f"{key}.{inner}".strip("."): part
        for key in nested
        for inner, part in _parts(path, tree[key], notes).items()
    }


def _may_hold_weights(key: Any, value: Any) -> bool:
    """Return whether a value beside the usual places may be weights.

    It may where it has an array that belongs to no optimizer and is no counter and no key.
    """
    if key in _OF_TRAINING:
        return False
    arrays = [
        leaf
        for _, leaf in trees.leaves(value)
        if isinstance(leaf, np.ndarray | np.generic | jax.Array)
    ]
    return any(array.ndim > 0 or array.dtype.kind == "f" for array in arrays)


def _joined(parameters: Any, statistics: dict[str, Any]) -> Any:
    return parameters if "params" in parameters else {"params": parameters, **statistics}


def _array(path: Path, place: trees.Path, leaf: Any) -> np.ndarray:
    """A leaf as an array of numbers on the host."""
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
        raise WeightFileError(
            f"{path}: {'.'.join(place)!r} is a {type(leaf).__name__}, no array; {_WANTED}"
        )
    try:
        return host_array(".".join(place), leaf)
    except StateError as error:
        raise WeightFileError(f"{path}: {error}; {_WANTED}") from None


def _own(array: np.ndarray) -> np.ndarray:
    """The array, in storage that is the caller's."""
    return array if array.flags.owndata and array.flags.writeable else array.copy()


def _is_key(place: trees.Path, leaf: Any) -> bool:
    """Return whether a leaf is one of nnx's random keys or their counts.

    A weight of a layer called ``rngs`` is not one.
    """
    return _DRAWN in place and getattr(getattr(leaf, "dtype", None), "kind", "") not in ("f", "c")


def _state(path: Path, tree: Any, notes: list[str]) -> dict[str, np.ndarray]:
    """Every leaf as an array of numbers that the caller owns."""
    arrays = {}
    for place, leaf in trees.leaves(tree):
        if _is_key(place, leaf):
            notes.append(f"random keys under {_DRAWN!r} left aside")
        elif leaf is not None:
            arrays[place] = _own(_array(path, place, leaf))
    if not arrays:
        raise WeightFileError(f"{path} holds no arrays; {_WANTED}")
    return trees.neutral(arrays)
