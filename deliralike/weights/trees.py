"""Layouts of TensorFlow's descent (flax, Keras): arrays in nested dicts, kernels with the channels last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Path = tuple[str, ...]

_WRAPPED = ("value", "raw_value")  # how a dumped nnx.State holds each array
_COLLECTIONS = ("params", "batch_stats")  # of flax's linen
_LEAVES = {
    "kernel": "weight",
    "depthwise_kernel": "weight",
    "embedding": "weight",
    "embeddings": "weight",
    "scale": "weight",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "var": "running_var",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_BACK = {"bias": "bias", "running_mean": "mean", "running_var": "var"}
_TABLES = re.compile(r"(^|[._])(embed\w*|\w*embeddings?|wte|wpe)$")


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What lies in nested dicts and lists, with its path."""
    if isinstance(tree, Mapping):
        items: Any = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        yield path, tree
        return
    for key, value in items:
        yield from leaves(value, (*path, str(key)))


def neutral(arrays: Mapping[Path, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays by path as a state with PyTorch's names of parameters and its layouts.

    Kernels of two axes are transposed; of more, ``(*size, in, out)`` becomes ``(out, in, *size)``, depthwise ones
    ``(*size, in, multiplier)`` become ``(in * multiplier, 1, *size)``. Arrays that no rule knows stay as they are.

    Example:
        >>> {name: array.shape for name, array in neutral({("a", "kernel"): np.ones((3, 5, 2, 4))}).items()}
        {'a.weight': (4, 2, 3, 5)}
    """
    state: dict[str, np.ndarray] = {}
    for path, array in arrays.items():
        name = neutral_name(path)
        if name in state:
            raise ValueError(f"two arrays are called {name!r}")
        state[name] = np.asarray(_from_channels_last(path, np.asarray(array)), order="C")
    return state


def neutral_name(path: Path) -> str:
    """The path with dots, the last part by PyTorch's word."""
    path = path[:-1] if len(path) > 1 and path[-1] in _WRAPPED else path
    path = path[1:] if len(path) > 1 and path[0] in _COLLECTIONS else path
    return ".".join([*path[:-1], _LEAVES.get(path[-1], path[-1])])


def channels_last(state: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Path]]:
    """A state as nested dicts with flax's names and layouts, and where each array lies; `from_places` is its inverse.

    A matrix is the kernel of a linear layer, or a table where its layer's name says so (``embed``, ``wte`` …).

    Raises:
        ValueError: Two names need the same place.
    """
    tree: dict[str, Any] = {}
    places: dict[str, Path] = {}
    for name, array in state.items():
        *path, leaf = name.split(".")
        theirs = array_kind(name, array.ndim) if leaf == "weight" else _BACK.get(leaf, leaf)
        array = np.moveaxis(array, (0, 1), (-1, -2)) if leaf != theirs == "kernel" else array
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ValueError(f"{name!r} lies below an array")
        if leaf in node or theirs in node:
            raise ValueError(f"two arrays would be called {name!r}")
        node[theirs] = np.asarray(array, order="C")
        places[name] = (*path, theirs)
    return tree, places


def from_places(tree: Any, places: Mapping[str, Path]) -> dict[Path, Any]:
    """The leaves of nested dicts at some places, in their order.

    Raises:
        ValueError: A place is empty, or there are leaves at others.
    """
    found = dict(leaves(tree))
    if set(found) != set(places.values()):
        odd = sorted(".".join(place) for place in set(found).symmetric_difference(places.values()))
        raise ValueError(f"the arrays and the list of their names differ: {', '.join(map(repr, odd[:4]))}")
    return {place: found[place] for place in places.values()}


def turned_back(name: str, place: Path, array: np.ndarray) -> np.ndarray:
    """One array of `channels_last` in the layout that it had."""
    turned = place[-1] == "kernel" and name.rpartition(".")[2] == "weight"
    return np.asarray(np.moveaxis(array, (-1, -2), (0, 1)) if turned else array, order="C")


def kernels(state: Mapping[str, np.ndarray]) -> list[str]:
    """The names of a state whose arrays lie otherwise where channels come last."""
    found = (name for name, array in state.items() if name.split(".")[-1] == "weight" and array.ndim > 1)
    return [name for name in found if array_kind(name, state[name].ndim) == "kernel"]


def array_kind(name: str, axes: int) -> str:
    """What flax calls a weight: a ``"kernel"``, a norm's ``"scale"`` or a table, ``"embedding"``."""
    layer = name.rpartition(".")[0].rpartition(".")[2]
    if axes < 2:
        return "scale"
    return "embedding" if axes == 2 and _TABLES.search(layer) else "kernel"


def _from_channels_last(path: Path, array: np.ndarray) -> np.ndarray:
    words = [part for part in path if part not in _WRAPPED]
    if words[-1] not in ("kernel", "depthwise_kernel") or array.ndim < 2:
        return array
    if words[-1] == "depthwise_kernel" or (len(words) > 1 and "depthwise" in words[-2]):
        *size, inputs, multiplier = array.shape
        return np.moveaxis(array.reshape(*size, inputs * multiplier), -1, 0)[:, None]
    return np.moveaxis(array, (-1, -2), (0, 1))
