"""The weight files of flax: msgpack, and the folders of Orbax. Both are read and not written.

They hold nothing that is executed.
"""

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
_RNG_KEYS = "rngs"  # where nnx keeps the keys of dropout, which are no weights
_WANTED = (
    "wanted arrays in nested dicts, as flax.serialization.to_bytes or Orbax write them"
)


def read(path: Path) -> mark.FileStates:
    """Read the arrays under neutral names and in PyTorch's layouts.

    Returns:
        A state for each place of a training state that holds one; ``""`` where there is nothing
        else. Nothing that may be weights is left aside.

    Raises:
        WeightFileError: There is something else than arrays in nested dicts in it.
    """
    if path.is_dir():
        tree = _read_orbax(path)
    else:
        tree = serialization.msgpack_restore(path.read_bytes())
    notes: list[str] = ["names and layouts taken for flax's"]
    parts = _parts(path, tree, notes)
    states = mark.FileStates()
    for key, part in parts.items():
        states[key] = _state(path, part, notes)
    states.notes = tuple(dict.fromkeys(notes))
    return states


def _read_orbax(path: Path) -> Any:
    with _quiet(), _checkpointer() as checkpointer:
        metadata = checkpointer.metadata(path.absolute()).item_metadata
        if metadata is None:
            raise WeightFileError(
                f"{path} is a damaged folder of Orbax: its '_METADATA', 'manifest.ocdbt' or the "
                "arrays in 'd' are missing or were changed; copy the whole folder again"
            )
        size = 0
        for leaf in jax.tree.leaves(metadata.tree):
            if getattr(leaf, "shape", None) is not None:
                size += int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        folder_size = sum(
            file.stat().st_size for file in path.rglob("*") if file.is_file()
        )
        refuse_expansion(path, size, folder_size)
        orbax = importlib.import_module("orbax.checkpoint")
        arguments = jax.tree.map(
            lambda _: orbax.RestoreArgs(restore_type=np.ndarray), metadata.tree
        )
        restore = orbax.args.PyTreeRestore(restore_args=arguments)
        return checkpointer.restore(path.absolute(), args=restore)


def _checkpointer() -> Any:
    orbax = importlib.import_module("orbax.checkpoint")
    return orbax.Checkpointer(orbax.PyTreeCheckpointHandler())


@contextmanager
def _quiet() -> Iterator[None]:
    """Return a context without Orbax's reports of each step and warnings of its plans."""
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
    is_train_state = _has_subtree(tree, "params")
    known = ("params", "batch_stats", *_AVERAGED) if is_train_state else _NESTED_UNDER
    others = [key for key in tree if key not in known]
    if any(_may_hold_weights(key, tree[key]) for key in others):
        return {"": tree}
    if others:
        notes.append(
            f"read as a training state; {', '.join(map(repr, others))} left aside"
        )
    if is_train_state:
        return _parts_of_train_state(tree)
    nested = [key for key in _NESTED_UNDER if _has_subtree(tree, key)]
    if not nested:
        return {"": tree}
    is_alone = len(tree) == 1
    if is_alone and "kernel" in tree[nested[0]]:  # a layer of that name
        return {"": tree}
    parts = {}
    for key in nested:
        for inner, part in _parts(path, tree[key], notes).items():
            parts[f"{key}.{inner}".strip(".")] = part
    return parts


def _parts_of_train_state(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters and their averages, each with the statistics."""
    statistics = {}
    if _has_subtree(tree, "batch_stats"):
        statistics["batch_stats"] = tree["batch_stats"]
    is_alone = len(tree) == 1 + len(statistics)
    parts = {"" if is_alone else "params": _with_statistics(tree["params"], statistics)}
    for key in _AVERAGED:
        if _has_subtree(tree, key):
            parts[key] = _with_statistics(tree[key], statistics)
    return parts


def _has_subtree(tree: Mapping[str, Any], key: str) -> bool:
    return isinstance(tree.get(key), Mapping)


def _may_hold_weights(key: Any, value: Any) -> bool:
    """Return whether a value beside the usual places may be weights.

    It may where it has an array that belongs to no optimizer and is no counter and no key.
    """
    if key in _OF_TRAINING:
        return False
    for _, leaf in trees.leaves(value):
        is_array = isinstance(leaf, np.ndarray | np.generic | jax.Array)
        if is_array and (leaf.ndim > 0 or leaf.dtype.kind == "f"):
            return True
    return False


def _with_statistics(parameters: Any, statistics: dict[str, Any]) -> Any:
    if "params" in parameters:
        return parameters
    return {"params": parameters, **statistics}


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


def _is_key(place: trees.Path, leaf: Any) -> bool:
    """Return whether a leaf is one of nnx's random keys or their counts.

    A weight of a layer called ``rngs`` is not one.
    """
    kind = getattr(getattr(leaf, "dtype", None), "kind", "")
    return _RNG_KEYS in place and kind not in ("f", "c")


def _state(path: Path, tree: Any, notes: list[str]) -> dict[str, np.ndarray]:
    """Every leaf as an array of numbers that the caller owns."""
    arrays = {}
    for place, leaf in trees.leaves(tree):
        if _is_key(place, leaf):
            notes.append(f"random keys under {_RNG_KEYS!r} left aside")
        elif leaf is not None:
            array = _array(path, place, leaf)
            arrays[place] = np.require(array, requirements=["OWNDATA", "WRITEABLE"])
    if not arrays:
        raise WeightFileError(f"{path} holds no arrays; {_WANTED}")
    return trees.neutral(arrays)
