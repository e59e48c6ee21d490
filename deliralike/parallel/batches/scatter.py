"""The only place where a batch is split over devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError, SettingError
from deliralike.nest.arrays import Arrays
from deliralike.parallel.batches.partition import partition, whole
from deliralike.parallel.batches.spec import ARGUMENTS, Part, mark_leaves, readable

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

    @property
    def offsets(self) -> tuple[int, ...]:
        """The index, within the whole batch, of each share's first sample."""
        return tuple(accumulate(self.sizes[:-1], initial=0))


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
    if spec is not None:
        batch = mark_leaves(batch, spec, splitter.is_array, root)
    leaves, structure = nest.flatten(batch)
    try:
        counts = [splitter.count(leaf) for leaf in leaves]
    except (IndexError, _Refused):
        raise _batch_error(splitter, batch, root) from None
    totals = {count for count in {*counts} if count is not None}
    if len(totals) > 1:
        raise _batch_error(splitter, batch, root)
    sizes = partition(totals.pop() if totals else 0, len(devices))
    if not leaves:
        return Shares([structure.unflatten(())], sizes)
    rows = zip(*splitter.columns(leaves, counts, sizes), strict=True)
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
    if spec is not None:
        batch = mark_leaves(batch, spec, splitter.is_array, root)
    return [splitter.count(leaf) for leaf in nest.leaves(batch)]


class _Refused(Exception):
    """The reason why a leaf cannot be split."""


class _Splitter:
    """Splits or copies the leaves of a batch."""

    def __init__(
        self, devices: Sequence[Any], dim: int, backend: Arrays | None
    ) -> None:
        """Take the devices, the axis and the backend."""
        self.devices = tuple(devices)
        self.dim = dim
        self.backend = backend

    def is_native(self, leaf: Any) -> bool:
        """Return whether a leaf is an array of the backend."""
        return self.backend is not None and self.backend.is_array(leaf)

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is an array of the backend or of NumPy."""
        return isinstance(leaf, np.ndarray) or self.is_native(leaf)

    def columns(
        self,
        leaves: Sequence[Any],
        counts: Sequence[int | None],
        sizes: tuple[int, ...],
    ) -> list[Sequence[Any]]:
        """Return the pieces of each leaf, one for each device, whatever the leaves are."""
        natives: list[Any] = []
        columns: list[Sequence[Any] | None] = []
        for leaf, count in zip(leaves, counts, strict=True):
            value = leaf.value if type(leaf) is Part else leaf
            if count is None:
                columns.append(self._copies(leaf, len(sizes)))
            elif self.is_native(value):
                natives.append(value)
                columns.append(None)
            else:  # NumPy's array, or a list or tuple of samples
                dim = self.dim if isinstance(value, np.ndarray) else 0
                columns.append([value[index] for index in _indices(sizes, dim)])
        pieces = iter(self._split_all(natives, sizes) if natives else ())
        return [next(pieces) if column is None else column for column in columns]

    def count(self, leaf: Any) -> int | None:
        """Return the number of samples in a leaf, or None.

        Raises:
            _Refused: The leaf cannot be split.
        """
        if type(leaf) is Part:
            return self._count_part(leaf.word, leaf.value)
        if self.is_array(leaf):
            return leaf.shape[self.dim] if leaf.shape else None
        if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.generic):
            owners = "NumPy's"
            if self.backend is not None:
                owners += f" or of backend {self.backend.name!r}"
            raise _Refused(
                f"is {nest.described(leaf)}, which is no array of {owners}: convert it, or name "
                "its backend"
            )
        return None

    def _count_part(self, word: str | None, value: Any) -> int | None:
        if word is None:
            return self.count(value)
        if word != "split":
            return None
        if type(value) in (list, tuple):
            return len(value)
        count = self.count(value)
        if count is None:
            raise _Refused(
                f"cannot be split, being {nest.described(value)}: say 'copy' or 'keep' of it in "
                "the spec"
            )
        return count

    def _split_all(
        self, arrays: Sequence[Any], sizes: tuple[int, ...]
    ) -> list[Sequence[Any]]:
        split, dim, devices = self._backend.split, self.dim, self.devices
        return [split(array, sizes, dim, devices) for array in arrays]

    def _copies(self, leaf: Any, count: int) -> Sequence[Any]:
        """Return a leaf that is not split, for each device."""
        if self.is_native(leaf):
            return [self._move(leaf, device) for device in self.devices[:count]]
        if type(leaf) is not Part:
            return (leaf,) * count
        if leaf.word == "copy":
            return [self._copy(leaf.value, device) for device in self.devices[:count]]
        if leaf.word == "keep":
            return (leaf.value,) * count
        return self._copies(leaf.value, count)

    def _move(self, array: Any, device: Any) -> Any:
        return self._backend.split(array, (1,), 0, (device,))[0]

    def _copy(self, value: Any, device: Any) -> Any:
        if self.is_native(value):
            return self._backend.stack([value], device).reshape(value.shape)
        if isinstance(value, np.ndarray):
            return value.copy()
        return copy.deepcopy(value)

    @property
    def _backend(self) -> Arrays:
        """The backend, where a native array was found."""
        assert self.backend is not None
        return self.backend


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


def _batch_error(splitter: _Splitter, batch: Any, root: str) -> BatchError:
    """Return the error for a batch that cannot be split, with the paths."""
    counts: dict[str, int] = {}
    for path, leaf in nest.leaves_with_paths(batch, root):
        try:
            count = splitter.count(leaf)
        except IndexError:
            array = leaf.value if type(leaf) is Part else leaf
            message = (
                f"{path} has shape {tuple(array.shape)}, so there is no dim {splitter.dim} to "
                "split it along: give another dim, or say 'copy' or 'keep' of it in the spec"
            )
            return BatchError(readable(message, root))
        except _Refused as refused:
            return BatchError(readable(f"{path} {refused}", root))
        if count is not None:
            counts[path] = count
    return BatchError(readable(_disagreement(counts, splitter.dim), root))


def _disagreement(counts: dict[str, int], dim: int) -> str:
    (first, size), *rest = counts.items()
    other, other_size = next((path, count) for path, count in rest if count != size)
    return (
        f"the arrays of a batch must agree on their size along dim {dim}: {first} has {size}, "
        f"{other} has {other_size}."
    )


def _some(devices: Sequence[Any]) -> Sequence[Any]:
    if isinstance(devices, str) or not len(devices):
        raise SettingError(f"devices={devices!r}: wanted a list of at least one device")
    return devices
