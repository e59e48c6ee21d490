"""flax's own weight files: msgpack, and the folders of Orbax, which comes with flax. Both hold nothing that runs."""

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import serialization

from deliralike.errors import StateError, WeightFileError
from deliralike.state import host_array
from deliralike.weights import refuse_expansion, trees

_AVERAGED = ("ema_params", "params_ema", "ema")
_NESTED_UNDER = ("model", "state", "model_state", "state_dict", *_AVERAGED)
_DRAWN = "rngs"  # where nnx keeps the keys of dropout, which are no weights
_WANTED = "wanted arrays in nested dicts, as flax.serialization.to_bytes or Orbax write them"


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """The arrays under neutral names and in PyTorch's layouts.

    Returns:
        A state for each place of a training state that holds one; ``""`` where there is nothing else.

    Raises:
        WeightFileError: There is something else than arrays in nested dicts in it.
    """
    tree = _orbax(path) if path.is_dir() else serialization.msgpack_restore(path.read_bytes())
    return {key: _state(path, part) for key, part in _parts(path, tree).items()}


def write(path: Path, state: Mapping[str, np.ndarray]) -> None:
    """Write a state in flax's names and layouts: one file, or a folder of Orbax where a folder's name is given."""
    try:
        tree = trees.channels_last(state)
    except ValueError as error:
        raise WeightFileError(f"flax's nested names cannot hold these weights: {error}") from None
    if path.name.split(".")[-3:-2] == ["orbax"] or path.suffix == ".orbax":  # also under its temporary name
        path.unlink(missing_ok=True)
        with _quiet(), _checkpointer() as checkpointer:
            checkpointer.save(path.absolute(), tree)
    else:
        path.write_bytes(serialization.msgpack_serialize(tree, in_place=True))  # a copy would sort the names


def _orbax(path: Path) -> Any:
    with _quiet(), _checkpointer() as checkpointer:
        described = checkpointer.metadata(path.absolute()).item_metadata.tree
        sizes = [int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(described)
                 if getattr(leaf, "shape", None) is not None]  # fmt: skip
        folder_size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        refuse_expansion(path, sum(sizes), folder_size)
        orbax = importlib.import_module("orbax.checkpoint")
        arguments = jax.tree.map(lambda _: orbax.RestoreArgs(restore_type=np.ndarray), described)
        return checkpointer.restore(path.absolute(), args=orbax.args.PyTreeRestore(restore_args=arguments))


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


def _parts(path: Path, tree: Any) -> dict[str, Any]:
    """The weights in a training state; linen's statistics lie beside its parameters."""
    if not isinstance(tree, Mapping) or not tree:
        raise WeightFileError(f"{path} holds a {type(tree).__name__} in place of arrays by name; {_WANTED}")
    if isinstance(tree.get("params"), Mapping):
        statistics = {"batch_stats": tree["batch_stats"]} if isinstance(tree.get("batch_stats"), Mapping) else {}
        found = {"" if len(tree) == 1 + len(statistics) else "params": _joined(tree["params"], statistics)}
        averaged = [key for key in _AVERAGED if isinstance(tree.get(key), Mapping)]
        return found | {key: _joined(tree[key], statistics) for key in averaged}
    nested = [key for key in _NESTED_UNDER if isinstance(tree.get(key), Mapping)]
    if not nested or len(nested) == len(tree) == 1 and "kernel" in tree[nested[0]]:  # a layer of that name
        return {"": tree}
    return {f"{key}.{inner}".strip("."): part for key in nested for inner, part in _parts(path, tree[key]).items()}


def _joined(parameters: Any, statistics: dict[str, Any]) -> Any:
    return parameters if "params" in parameters else {"params": parameters, **statistics}


def _state(path: Path, tree: Any) -> dict[str, np.ndarray]:
    """Every leaf as an array of numbers that the caller owns."""
    arrays = {}
    for place, leaf in trees.leaves(tree):
        if _DRAWN in place or leaf is None:
            continue
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
            raise WeightFileError(f"{path}: {'.'.join(place)!r} is a {type(leaf).__name__}, no array; {_WANTED}")
        try:
            array = host_array(".".join(place), leaf)
        except StateError as error:
            raise WeightFileError(f"{path}: {error}; {_WANTED}") from None
        arrays[place] = array if array.flags.owndata and array.flags.writeable else array.copy()
    if not arrays:
        raise WeightFileError(f"{path} holds no arrays; {_WANTED}")
    return trees.neutral(arrays)
