"""Layouts that come from TensorFlow (flax): nested dicts, kernels with the channels last."""

from __future__ import annotations

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
