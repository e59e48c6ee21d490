"""The sources that a loader can read: nests of arrays, and indexable datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.data.collate import collate
from deliralike.errors import ArgumentError, BatchError


class Arrays:
    """A nest of arrays of equal length; a batch takes one index operation a leaf."""

    def __init__(self, arrays: Any):
        batching.refuse_lists(arrays)
        self._arrays = batching.on_host(arrays)
        self.samples = batching.size(self._arrays)

    def sample(self, index: Any) -> Any:
        """Return one sample, as views; leaves that are no arrays are in every one.

        Of several indices it is a copy of these samples, as a batch.
        """
        return batching.take(self._arrays, index)

    take = sample


class Indexed:
    """A dataset with a length and an item for each index."""

    def __init__(self, dataset: Any):
        self._dataset = dataset
        self.samples = len(dataset)
        if self.samples == 0:
            raise BatchError(
                f"a batch needs at least one sample, and this {type(dataset).__name__} has none"
            )

    def sample(self, index: int) -> Any:
        """Return one sample; an error of the dataset's own gets a note with the index."""
        try:
            return self._dataset[int(index)]
        except Exception as error:
            error.add_note(f"while sample {int(index)} was read")
            raise

    def take(self, indices: np.ndarray) -> Any:
        """Return some samples, read one by one and stacked."""
        return collate([self.sample(index) for index in indices])


Source = Arrays | Indexed  # samples that can be reached in any order


@dataclass(frozen=True)
class Subset(Sequence[Any]):
    """Some samples of an indexable dataset, read only when they are asked for.

    Example:
        >>> Subset("abcd", np.array([3, 1]))[0]
        'd'
    """

    dataset: Any
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[int(self.indices[index])]


def is_indexable(samples: Any) -> bool:
    """Return whether there is a length and an item for each index."""
    return hasattr(samples, "__len__") and hasattr(samples, "__getitem__")


def readable(samples: Any) -> Source:
    """Return the source for whatever holds samples.

    Tuples, dicts, dataclasses and single arrays are nests of arrays. Everything else with a length
    and items is a dataset; so a list is a list of samples.

    Raises:
        ArgumentError: The samples have no length or no items.
        BatchError: There are no samples, or the arrays differ in length.
    """
    if isinstance(samples, tuple | Mapping | np.ndarray):
        return Arrays(samples)
    if hasattr(samples, "iloc") and getattr(samples, "ndim", 0) == 2:
        raise ArgumentError(
            f"a table, {nest.described(samples)}, is indexed by its columns: give the arrays of "
            "inputs and target, (table[names].to_numpy(), table[name].to_numpy())"
        )
    if is_indexable(samples) and not isinstance(samples, str | bytes):
        return Indexed(samples)
    if is_dataclass(samples) and not isinstance(samples, type):
        return Arrays(samples)
    raise ArgumentError(
        "samples come from a tuple or dict of arrays, from a dataset with a length (__len__) and "
        "an item for each index, or from data.Batches(function), whose function returns an "
        f"iterator of batches, not from {nest.described(samples)}"
    )


def subset(samples: Any, indices: np.ndarray) -> Any:
    """Return some samples: of a nest of arrays a nest of copies, of a dataset a `Subset`.

    A `Subset` reads its samples on demand.

    Example:
        >>> subset({"x": np.arange(4) * 10}, np.array([3, 1]))
        {'x': array([30, 10])}
    """
    source = readable(samples)
    if isinstance(source, Arrays):
        return source.take(indices)
    return Subset(samples, indices)
