"""Layouts that come from TensorFlow (flax): nested dicts, kernels with the channels last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Path = tuple[str, ...]

_WRAPPED = ("value", "raw_value")  # how a dumped nnx.State holds each array
_HEADS = ("query", "key", "value")  # of flax's attention
_COLLECTIONS = ("params", "batch_stats")  # of flax's linen
LEAVES = {
    "kernel": "weight",
    "embedding": "weight",
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
    """Yield the leaves of nested dicts and lists, each with its path."""
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
    """Return arrays by path as a state with PyTorch's names of parameters and its layouts.

    Kernels of two axes are transposed; of more, ``(*size, in, out)`` becomes ``(out, in, *size)``.
    The heads of flax's attention are merged. Arrays that no rule knows stay as they are.

    Example:
        >>> state = neutral({("a", "kernel"): np.ones((3, 5, 2, 4))})
        >>> state["a.weight"].shape
        (4, 2, 3, 5)
    """
    state: dict[str, np.ndarray] = {}
    for path, array in _of_layers(arrays).items():
        name = neutral_name(path)
        if name in state:
            raise ValueError(f"two arrays are called {name!r}")
        if path[-1:] == ("kernel",) and array.ndim > 1:
            array = np.moveaxis(array, (-1, -2), (0, 1))
        state[name] = np.asarray(array, order="C")
    return state


def neutral_name(path: Path) -> str:
    """Return the path with dots, its last part with PyTorch's name."""
    if len(path) > 1 and path[0] in _COLLECTIONS:
        path = path[1:]
    *layer, leaf = path
    return ".".join([*layer, LEAVES.get(leaf, leaf)])


def channels_last(
    state: Mapping[str, np.ndarray],
) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return a state as nested dicts with flax's names and layouts, and the place of each array.

    `from_places` is its inverse. A matrix is the kernel of a linear layer, or a table where its
    layer's name says so (``embed``, ``wte`` …).

    Raises:
        ValueError: Two names need the same place.
    """
    tree: dict[str, Any] = {}
    places: dict[str, Path] = {}
    for name, array in state.items():
        *path, leaf = name.split(".")
        flax_leaf = _BACK.get(leaf, leaf)
        if leaf == "weight":
            flax_leaf = _array_kind(name, array.ndim)
        if leaf == "weight" and flax_leaf == "kernel":
            array = np.moveaxis(array, (0, 1), (-1, -2))
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ValueError(f"{name!r} lies below an array")
        if leaf in node or flax_leaf in node:
            raise ValueError(f"two arrays would be called {name!r}")
        node[flax_leaf] = np.asarray(array, order="C")
        places[name] = (*path, flax_leaf)
    return tree, places


def from_places(tree: Any, places: Mapping[str, Path]) -> dict[Path, Any]:
    """Return the leaves of nested dicts at some places, in their order.

    Raises:
        ValueError: A place is empty, or there are leaves at other places.
    """
    arrays = dict(leaves(tree))
    differences = set(arrays).symmetric_difference(places.values())
    if differences:
        paths = sorted(".".join(place) for place in differences)
        shown = ", ".join(map(repr, paths[:4]))
        raise ValueError(f"the arrays and the list of their names differ: {shown}")
    return {place: arrays[place] for place in places.values()}


def turned_back(name: str, place: Path, array: np.ndarray) -> np.ndarray:
    """Return an array of `channels_last` in its original layout."""
    if place[-1] == "kernel" and name.rpartition(".")[2] == "weight":
        array = np.moveaxis(array, (-1, -2), (0, 1))
    return np.asarray(array, order="C")


def _array_kind(name: str, axes: int) -> str:
    """Return flax's name of a weight: ``"kernel"``, ``"scale"`` of a norm, or ``"embedding"``."""
    layer = name.rpartition(".")[0].rpartition(".")[2]
    if axes < 2:
        return "scale"
    if axes == 2 and _TABLES.search(layer):
        return "embedding"
    return "kernel"


def _of_layers(arrays: Mapping[Path, np.ndarray]) -> dict[Path, np.ndarray]:
    """Return the arrays with those of attention layers as a linear layer has them.

    What they mean follows from the layer, and never from their shapes alone.
    """
    found = {}
    for path, array in arrays.items():
        bare = path[:-1] if len(path) > 1 and path[-1] in _WRAPPED else path
        found[bare] = np.asarray(array)
    for path in list(found):
        if path[-2:] == ("query", "kernel"):
            _merge_heads(found, path[:-2])
    return found


def _merge_heads(arrays: dict[Path, np.ndarray], layer: Path) -> None:
    """Merge the axes ``(heads, width)`` of an attention layer of flax, in this order.

    They are the last axes of queries, keys, values and their biases, and the first of the output.
    """
    for part in (*_HEADS, "out"):
        kernel = arrays.get((*layer, part, "kernel"))
        if kernel is None or kernel.ndim != 3:
            return
    values = arrays[*layer, "value", "kernel"]
    out = arrays[*layer, "out", "kernel"]
    if values.shape[1:] != out.shape[:2]:
        return
    for part in _HEADS:
        for leaf, axes in (("kernel", 3), ("bias", 2)):
            place = (*layer, part, leaf)
            if place in arrays and arrays[place].ndim == axes:
                array = arrays[place]
                arrays[place] = array.reshape(*array.shape[:-2], -1)
    arrays[*layer, "out", "kernel"] = out.reshape(-1, out.shape[2])
