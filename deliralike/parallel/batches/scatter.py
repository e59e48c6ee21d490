"""The only place where a batch is split over devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError, SettingError
from deliralike.nest.arrays import Arrays
from deliralike.parallel.batches.partition import partition, whole
from deliralike.parallel.batches.spec import (
    ARGUMENTS,
    array_test,
    mark_leaves,
    readable,
    unmarked,
)

__all__ = ["ARGUMENTS", "Shares", "scatter", "split_batch"]


@dataclass(frozen=True)
class Shares:
    """The shares of a batch.

    Attributes:
        nests: One nest of the batch's structure for each device that takes part.
        sizes: The number of samples in each.
    """

    nests: list[Any]
    sizes: tuple[int, ...]


def scatter(
    batch: Any,
    devices: Sequence[Any],
    dim: int = 0,
    *,
    spec: Any = None,
    backend: Arrays | None = None,
) -> list[Any]:
    """Split a batch over devices: one nest of the same structure for each.

    Samples keep their order, no share is empty, and any two differ by at most one sample; a batch
    with fewer samples than devices makes fewer shares, and one without samples or without arrays
    makes one. Leaves that are not arrays (a name, a flag, ``None``) go to every device as they are,
    and so do arrays without axes. Pieces may be views of the batch, and keep its byte order and
    masks. NumPy arrays stay NumPy arrays on every backend but Chainer, which computes on them.

    Args:
        dim: The axis that counts samples; negative ones count from each array's last.
        spec: Exceptions to that rule: a nest of words built like the batch, in which one word may
            stand for a whole subtree. ``"split"``: an array is split along `dim`, a list or tuple
            without arrays is split as a sequence of samples. ``"copy"``: each device gets a copy of
            its own. ``"keep"``: each device gets the object as it is. None: the rule above.
        backend: The backend whose arrays are split, besides NumPy's, and moved to the devices.

    Shapes:
        An array leaf ``(batch, ...)`` becomes ``(share, ...)``; the shares add up to ``batch``.

    Raises:
        BatchError: Two leaves differ in size along `dim`, or one that is to be split cannot be.
        StructureError: The `spec` is not built like the batch.

    Example:
        >>> batch = {"x": np.zeros((7, 3)), "name": "train"}
        >>> [share["x"].shape for share in scatter(batch, ["cpu", "cpu"])]
        [(4, 3), (3, 3)]
        >>> scatter(["a", "b", "c"], ["cpu", "cpu"], spec="split")
        [['a', 'b'], ['c']]
    """
    return split_batch(batch, devices, dim, spec, backend).nests


def split_batch(
    batch: Any,
    devices: Sequence[Any],
    dim: int = 0,
    spec: Any = None,
    backend: Arrays | None = None,
    *,
    root: str = "batch",
) -> Shares:
    """Split a batch like `scatter`, and return the number of samples in each share too.

    Args:
        root: The name of the batch in errors; with `ARGUMENTS` the batch is a pair
            ``(args, kwargs)``.

    Raises:
        BatchError: Two leaves differ in size along `dim`, or one that is to be split cannot be.
        StructureError: The `spec` is not built like the batch.
    """
    splitter = _Splitter(_some(devices), whole("scatter: dim", dim), backend)
    words, leaves, structure = splitter.flatten(batch, spec, root)
    counts = _counts(splitter, words, leaves, structure, root)
    samples = max(_distinct(counts), default=0)
    sizes = partition(samples, len(devices))
    if not leaves:
        return Shares([structure.unflatten(())], sizes)
    rows = zip(*splitter.split_all(words, leaves, counts, sizes), strict=True)
    return Shares([structure.unflatten(row) for row in rows], sizes)


def samples_of_leaves(
    batch: Any,
    dim: int = 0,
    spec: Any = None,
    backend: Arrays | None = None,
    root: str = "batch",
) -> list[int | None]:
    """Return the number of samples in each leaf that `split_batch` would split, in order.

    It is None for a leaf that goes to every device as it is.
    """
    splitter = _Splitter((None,), whole("scatter: dim", dim), backend)
    words, leaves, structure = splitter.flatten(batch, spec, root)
    return _counts(splitter, words, leaves, structure, root)


class _Refused(Exception):
    """The reason why a leaf cannot be split."""


class _Splitter:
    """Splits or copies the leaves of a batch."""

    def __init__(self, devices: Sequence[Any], dim: int, backend: Any) -> None:
        """Take the devices, the axis, and the backend or None."""
        self.devices = tuple(devices)
        self.dim = dim
        self.backend = backend
        self.is_native = array_test(backend)

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is an array of the backend or of NumPy."""
        return self.is_native(leaf) or isinstance(leaf, np.ndarray)

    def flatten(self, batch: Any, spec: Any, root: str) -> tuple[list, list, Any]:
        """Return the word of the spec for each leaf, the leaves, and their structure."""
        if spec is not None:
            batch = mark_leaves(batch, spec, self.is_array, root)
        leaves, structure = nest.flatten(batch)
        return *unmarked(leaves), structure

    def count(self, word: str | None, leaf: Any) -> int | None:
        """Return the number of samples in a leaf, or None where it goes to every device.

        Args:
            word: The word of the spec for this leaf.

        Raises:
            _Refused: The leaf cannot be split.
        """
        if word in ("copy", "keep"):
            return None
        if word == "split" and type(leaf) in (list, tuple):
            return len(leaf)
        if self.is_array(leaf) and leaf.shape:
            return self._size(leaf.shape)
        if hasattr(leaf, "__dlpack__") and not self._is_known(leaf):
            owners = "NumPy's"
            if self.backend is not None:
                owners += f" or of backend {self.backend.name!r}"
            raise _Refused(
                f"is {nest.described(leaf)}, which is no array of {owners}: convert it, or name "
                "its backend"
            )
        if word == "split":
            raise _Refused(
                f"cannot be split, being {nest.described(leaf)}: say 'copy' or 'keep' of it in "
                "the spec"
            )
        return None

    def _is_known(self, leaf: Any) -> bool:
        return self.is_array(leaf) or isinstance(leaf, np.generic)

    def _size(self, shape: tuple[int, ...]) -> int:
        if not -len(shape) <= self.dim < len(shape):
            raise _Refused(
                f"has shape {tuple(shape)}, so there is no dim {self.dim} to "
                "split it along: give another dim, or say 'copy' or 'keep' of it in the spec"
            )
        return shape[self.dim]

    def split_all(
        self,
        words: Sequence[str | None],
        leaves: Sequence[Any],
        counts: Sequence[int | None],
        sizes: tuple[int, ...],
    ) -> list[Sequence[Any]]:
        """Return the pieces of each leaf, one for each device."""
        columns: list[Sequence[Any]] = []
        for word, leaf, count in zip(words, leaves, counts, strict=True):
            if count is None:
                columns.append(self._copies(word, leaf, self.devices[: len(sizes)]))
            elif self.is_native(leaf):
                split = self.backend.split(leaf, sizes, self.dim, self.devices)
                columns.append(split)
            else:  # NumPy's array, or a list or tuple of samples
                dim = self.dim if isinstance(leaf, np.ndarray) else 0
                columns.append([leaf[index] for index in _indices(sizes, dim)])
        return columns

    def _copies(
        self, word: str | None, leaf: Any, devices: Sequence[Any]
    ) -> Sequence[Any]:
        """Return a leaf that is not split, for each device."""
        if word == "copy":
            return [self._copy(leaf, device) for device in devices]
        if word != "keep" and self.is_native(leaf):
            return [self.backend.split(leaf, (1,), 0, (each,))[0] for each in devices]
        return (leaf,) * len(devices)

    def _copy(self, value: Any, device: Any) -> Any:
        if self.is_native(value):
            return self.backend.stack([value], device).reshape(value.shape)
        return copy.deepcopy(value)


@lru_cache
def _indices(sizes: tuple[int, ...], dim: int) -> list[Any]:
    """Return the index of each share in an array of any number of axes."""
    indices = []
    start = 0
    for size in sizes:
        indices.append(_index(slice(start, start + size), dim))
        start += size
    return indices


def _index(samples: slice, dim: int) -> Any:
    """Return the index of some samples along an axis of an array."""
    if dim == 0:
        return samples
    if dim > 0:
        return (*[slice(None)] * dim, samples)
    return (..., samples, *[slice(None)] * (-dim - 1))


def _counts(
    splitter: _Splitter,
    words: Sequence[str | None],
    leaves: Sequence[Any],
    structure: Any,
    root: str,
) -> list[int | None]:
    """Return the number of samples in each leaf; None for one that is not split.

    Raises:
        BatchError: A leaf cannot be split, or two differ; the message names the paths.
    """
    counts = []
    for index, (word, leaf) in enumerate(zip(words, leaves, strict=True)):
        try:
            counts.append(splitter.count(word, leaf))
        except _Refused as refused:
            path = nest.path_of(structure, index, root)
            raise BatchError(readable(f"{path} {refused}", root)) from None
    if len(_distinct(counts)) > 1:
        message = _disagreement(counts, splitter.dim, structure, root)
        raise BatchError(readable(message, root))
    return counts


def _distinct(counts: Sequence[int | None]) -> set[Any]:
    return {*counts} - {None}


def _disagreement(
    counts: Sequence[int | None], dim: int, structure: Any, root: str
) -> str:
    """Return a message with the paths of the first two leaves that differ in size."""
    sizes: dict[int, str] = {}
    for index, count in enumerate(counts):
        if count is not None and count not in sizes:
            sizes[count] = nest.path_of(structure, index, root)
    (size, path), (other_size, other_path), *_ = sizes.items()
    return (
        f"the arrays of a batch must agree on their size along dim {dim}: "
        f"{path} has {size}, {other_path} has {other_size}."
    )


def _some(devices: Sequence[Any]) -> Sequence[Any]:
    if isinstance(devices, str) or not len(devices):
        raise SettingError(f"devices={devices!r}: wanted a list of at least one device")
    return devices
