"""The only place where samples become a batch: stacked leaf by leaf, the structure kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError


def collate(samples: Sequence[Any]) -> Any:
    """Stack samples into a batch of the same structure; numbers become arrays.

    Texts become an array of texts. Other leaves (``None``, an object) must be the same in all
    samples and stay one.

    Shapes:
        Leaves ``(...)`` become ``(batch, ...)``.

    Raises:
        BatchError: The samples differ in structure, or two leaves in shape; path and both shapes
            are named.

    Example:
        >>> collate([{"x": np.zeros(2), "y": 1}, {"x": np.ones(2), "y": 0}])
        {'x': array([[0., 0.], [1., 1.]]), 'y': array([1, 0])}
    """
    if not samples:
        raise BatchError("a batch needs at least one sample, and there is none")
    leaves, structure = nest.flatten(samples[0])
    rows = [leaves]
    for place, sample in enumerate(samples[1:], 1):
        rows.append(_leaves(sample, structure, samples[0], place))
    stacked = []
    for number, column in enumerate(zip(*rows, strict=True)):
        stacked.append(_stacked(column, samples[0], number))
    return structure.unflatten(stacked)


def _unequal(
    sample: Any, number: int, first: str, other: str, place: int
) -> BatchError:
    """Return the error of the first sample's leaf of this number, from which another differs."""
    path, _ = nest.leaves_with_paths(sample, "sample")[number]
    return BatchError(
        f"the samples of a batch must agree in shape, to be stacked: {path} has {first} at place "
        f"0 of the batch and {other} at place {place}. Crop or pad them in a transform, or use "
        "batch_size=1."
    )


def _leaves(sample: Any, structure: Any, first: Any, place: int) -> list[Any]:
    leaves, other = nest.flatten(sample)
    if other != structure:
        places = ("at place 0 of the batch", f"at place {place}")
        difference = nest.first_difference(first, sample, "sample", places)
        raise BatchError(f"the samples of a batch must be built alike: {difference}")
    return leaves


def _stacked(column: tuple[Any, ...], sample: Any, number: int) -> Any:
    first = column[0]
    if not _is_stackable(first):
        for place, leaf in enumerate(column):
            if leaf is not first and leaf != first:
                words = nest.described(first), nest.described(leaf)
                raise _unequal(sample, number, *words, place)
        return first
    if any(map(np.ma.is_masked, column)):
        raise BatchError(
            "a sample has masked elements, which a batch cannot keep: fill them in a transform, "
            "array.filled(value)"
        )
    arrays = [np.asarray(leaf) for leaf in column]
    shape = arrays[0].shape
    for place, array in enumerate(arrays):
        if array.shape != shape:
            words = f"shape {shape}", f"shape {array.shape}"
            raise _unequal(sample, number, *words, place)
    return np.stack(arrays)


def _is_stackable(leaf: Any) -> bool:
    if isinstance(leaf, bool | int | float | complex | str | np.generic):
        return True
    return hasattr(leaf, "__array__")
