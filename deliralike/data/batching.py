"""Batches in a seeded order, which is the same on every backend, machine and version of NumPy."""

from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from deliralike import nest
from deliralike.data.keyed_rng import random_words
from deliralike.errors import ArgumentError, BatchError, whole_number

Nest = TypeVar("Nest")


def batch_count(samples: int, batch_size: int, drop_last: bool = False) -> int:
    """Return the number of batches in so many samples.

    Example:
        >>> batch_count(5, 2), batch_count(5, 2, drop_last=True)
        (3, 2)
    """
    whole_number("batch_size", batch_size, 1)
    if drop_last:
        return samples // batch_size
    return -(-samples // batch_size)


def order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the samples in an epoch, a permutation drawn from `seed` and `epoch`."""
    return permutation(samples, seed, "data/order", epoch)


def permutation(count: int, seed: int, path: str, draw: int = 0) -> np.ndarray:
    """Return a permutation keyed by `seed`, the text `path` and the number of the draw.

    It sorts random words that NumPy promises never to change; NumPy's own shuffles may.
    """
    words = random_words(seed, path, draw, count)
    return np.argsort(words, kind="stable")


def on_host(arrays: Any) -> Any:
    """Return the nest with NumPy arrays in the places of other frameworks' arrays.

    Memory is shared where the framework allows it.

    Raises:
        ArgumentError: One of them does not become a NumPy array.
    """
    structure = nest.flatten(arrays)[1]
    leaves = [
        _on_host(path, leaf) for path, leaf in nest.leaves_with_paths(arrays, "samples")
    ]
    return structure.unflatten(leaves)


def size(arrays: Any) -> int:
    """Return the number of samples in a nest of arrays.

    Raises:
        BatchError: Two arrays differ in length (both are named), or there is no array or no sample.
    """
    lengths = {
        path: len(leaf)
        for path, leaf in nest.leaves_with_paths(arrays, "batch")
        if _is_array(leaf)
    }
    if not lengths:
        raise BatchError(
            "a batch needs at least one array with a first axis, and this "
            f"{type(arrays).__name__} has none"
        )
    (first, samples), *others = lengths.items()
    for path, length in others:
        if length != samples:
            raise BatchError(
                f"the arrays of a batch must agree on their size along dim 0: "
                f"{first} has {samples}, {path} has {length}"
            )
    if samples == 0:
        raise BatchError(f"a batch needs at least one sample, and {first} has none")
    return samples


def take(arrays: Nest, indices: np.ndarray | slice | int) -> Nest:
    """Return the samples of a nest of arrays in these places; other leaves as they are."""
    return nest.map_where(_is_array, itemgetter(indices), arrays)


def _on_host(path: str, leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic) or not hasattr(leaf, "__array__"):
        return leaf
    try:
        return np.asarray(leaf)
    except Exception as error:
        raise ArgumentError(
            f"{path} is {nest.described(leaf)}, which does not become a NumPy array: {error}. "
            "Convert it before"
        ) from error


def refuse_lists(arrays: Any) -> None:
    """Raise an error for a list in the place of an array.

    A list counts as a container, so each of its numbers or arrays would go into every batch, or
    its first axis would be taken for that of the samples. One of arrays as long as an array beside
    it is a container.

    Raises:
        ArgumentError: There is such a list.
    """
    leaves, structure = nest.flatten(arrays, lambda each: type(each) is list)
    lengths = {len(leaf) for leaf in leaves if _is_array(leaf)}
    for number, leaf in enumerate(leaves):
        if type(leaf) is not list or not leaf:
            continue
        if not (_is_array(leaf[0]) and len(leaf[0]) in lengths):
            place = nest.path_of(structure, number, "samples")
            raise ArgumentError(
                f"{place} is a list of {len(leaf)}, wanted an array with the samples along its "
                f"first axis: np.asarray({place}). Several arrays are a tuple"
            )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0
