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
    columns = list(zip(*rows, strict=True))
    try:
        return structure.unflatten([_stacked(column) for column in columns])
    except _Unequal as unequal:
        raise BatchError(_account(unequal, columns, samples)) from unequal


class _Unequal(Exception):
    """The leaves of one place cannot be stacked."""

    def __init__(self, column: tuple[Any, ...], first: str, other: str, at: int):
        super().__init__(f"{first} and {other}")
        self.column = column
        self.first = first
        self.other = other
        self.at = at


def _leaves(sample: Any, structure: Any, first: Any, place: int) -> list[Any]:
    leaves, other = nest.flatten(sample)
    if other != structure:
        places = ("at place 0 of the batch", f"at place {place}")
        difference = nest.first_difference(first, sample, "sample", places)
        raise BatchError(f"the samples of a batch must be built alike: {difference}")
    return leaves


def _stacked(column: tuple[Any, ...]) -> Any:
    if not _is_stackable(column[0]):
        return _common(column)
    if any(map(np.ma.is_masked, column)):
        raise BatchError(
            "a sample has masked elements, which a batch cannot keep: fill them in a transform, "
            "array.filled(value)"
        )
    arrays = [np.asarray(leaf) for leaf in column]
    for at, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise _Unequal(column, f"shape {arrays[0].shape}", f"shape {array.shape}", at)
    return np.stack(arrays)


def _is_stackable(leaf: Any) -> bool:
    if isinstance(leaf, bool | int | float | complex | str | np.generic):
        return True
    return hasattr(leaf, "__array__")


def _common(column: tuple[Any, ...]) -> Any:
    for at, leaf in enumerate(column):
        if leaf is not column[0] and leaf != column[0]:
            raise _Unequal(column, nest.described(column[0]), nest.described(leaf), at)
    return column[0]


def _account(unequal: _Unequal, columns: list[Any], samples: Sequence[Any]) -> str:
    place = next(index for index, column in enumerate(columns) if column is unequal.column)
    path = nest.leaves_with_paths(samples[0], "sample")[place][0]
    return (
        f"the samples of a batch must agree in shape, to be stacked: {path} has {unequal.first} "
        f"at place 0 of the batch and {unequal.other} at place {unequal.at}. Crop or pad them in "
        "a transform, or use batch_size=1."
    )
