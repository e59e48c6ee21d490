"""The only place where a batch is shared out over devices."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError, SettingError
from deliralike.parallel.batches.partition import partition
from deliralike.parallel.batches.spec import ARGUMENTS, Part, marked, readable, types_of

if TYPE_CHECKING:
    from deliralike.backends.base import Backend

__all__ = ["ARGUMENTS", "Shares", "scatter", "split_batch"]


@dataclass(frozen=True)
class Shares:
    """A batch, shared out.

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
    backend: Backend | None = None,
) -> list[Any]:
    """Share a batch out over devices: one nest of the same structure for each.

    Samples keep their order, no share is empty, and any two differ by at most one sample; a batch
    with fewer samples than devices makes fewer shares, and one without samples or without arrays
    makes one. Leaves that are not arrays (a name, a flag, ``None``) go to every device as they are,
    and so do arrays without axes. Pieces may be views of the batch, and keep its byte order and
    masks. NumPy arrays stay NumPy arrays on every backend but Chainer, which computes on them.

    Args:
        dim: The axis that counts samples; negative ones count from each array's last.
        spec: What to do with which leaves, when not that: a nest of words built like the batch, in
            which one word may stand for a whole subtree. ``"split"``: an array is split along
            `dim`, a list or tuple without arrays is split as a sequence of samples. ``"copy"``:
            each device gets a copy of its own. ``"keep"``: each gets the object as it is. None: the
            rule above.
        backend: Whose arrays are split, besides NumPy's, and moved to the devices.

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
    backend: Backend | None = None,
    root: str = "batch",
) -> Shares:
    """`scatter` with the number of samples in each share.

    Args:
        root: What errors call the batch; with `ARGUMENTS` it is a pair ``(args, kwargs)``.
    """
    sharing = _Sharing(_some(devices), _whole(dim), backend)
    if spec is not None:
        batch = marked(batch, spec, sharing.is_array, root)
    leaves, structure = nest.flatten(batch)
    try:
        counts = sharing.counts(leaves)
    except (IndexError, _Refused):
        raise _complaint(sharing, batch, root) from None
    found = {*counts} - {None}
    if len(found) > 1:
        raise _complaint(sharing, batch, root)
    sizes = partition(found.pop() or 0 if found else 0, len(devices))
    columns = sharing.columns(leaves, counts, sizes)
    shares = zip(*columns, strict=True) if columns else [()]
    return Shares([structure.unflatten(share) for share in shares], sizes)


def samples_of_leaves(
    batch: Any, dim: int = 0, spec: Any = None, backend: Backend | None = None, root: str = "batch"
) -> list[int | None]:
    """Return the number of samples in each leaf that `split_batch` would split, in order.

    It is None for a leaf that goes to every device as it is.
    """
    sharing = _Sharing((None,), _whole(dim), backend)
    return sharing.counts(
        nest.leaves(batch if spec is None else marked(batch, spec, sharing.is_array, root))
    )


class _Refused(Exception):
    """Why a leaf cannot be shared out."""


class _Sharing:
    """What happens to the leaves of a batch."""

    def __init__(self, devices: Sequence[Any], dim: int, backend: Backend | None) -> None:
        """State where to, along which axis, and whose arrays."""
        self.devices, self.dim, self.backend = tuple(devices), dim, backend
        self.is_native: Callable[[Any], bool] = _never if backend is None else backend.is_array

    def is_array(self, leaf: Any) -> bool:
        """Whether it is one of the backend's arrays or of NumPy's."""
        return isinstance(leaf, np.ndarray) or self.is_native(leaf)

    def counts(self, leaves: Sequence[Any]) -> list[int | None]:
        """The number of samples in each leaf that is to be split; None for one that is sent."""
        dim, arrays = self.dim, types_of(leaves, self.is_array)
        return [
            shape[dim] if type(leaf) in arrays and (shape := leaf.shape) else self._count(leaf)
            for leaf in leaves
        ]

    def columns(
        self, leaves: Sequence[Any], counts: Sequence[int | None], sizes: tuple[int, ...]
    ) -> list[Sequence[Any]]:
        """Of each leaf what every device gets."""
        native, dim, devices = types_of(leaves, self.is_native), self.dim, self.devices
        split = self._pieces if self.backend is None else self.backend.split
        of_host = _indices(sizes, dim)
        return [
            self._sent(leaf, len(sizes))
            if count is None
            else split(leaf, sizes, dim, devices)
            if type(leaf) in native
            else [leaf[index] for index in of_host]
            if type(leaf) is np.ndarray
            else self._pieces(leaf, sizes, dim, devices)
            for leaf, count in zip(leaves, counts, strict=True)
        ]

    def _count(self, leaf: Any) -> int | None:
        if type(leaf) is Part:
            return self._count_part(leaf.word, leaf.value)
        if self.is_array(leaf):
            return leaf.shape[self.dim] if leaf.shape else None
        if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.generic):
            whose = (
                "NumPy's"
                if self.backend is None
                else f"NumPy's or of backend {self.backend.name!r}"
            )
            raise _Refused(
                f"is a {type(leaf).__name__}, which is no array of {whose}: convert it, or name "
                "its backend"
            )
        return None

    def _count_part(self, word: str | None, value: Any) -> int | None:
        if word is None:
            return self._count(value)
        if word != "split":
            return None
        if type(value) in (list, tuple):
            return len(value)
        count = self._count(value)
        if count is None:
            raise _Refused(
                f"cannot be split, being {nest.described(value)}: say 'copy' or 'keep' of it in "
                "the spec"
            )
        return count

    def _pieces(
        self, leaf: Any, sizes: tuple[int, ...], dim: int, devices: Sequence[Any]
    ) -> Sequence[Any]:
        if type(leaf) is Part:
            split = self.backend.split if self.is_native(leaf.value) else self._pieces  # type: ignore[union-attr]
            return split(leaf.value, sizes, dim, devices)
        return [
            leaf[index] for index in _indices(sizes, dim if isinstance(leaf, np.ndarray) else 0)
        ]

    def _sent(self, leaf: Any, shares: int) -> Sequence[Any]:
        if self.is_native(leaf):
            return [self._moved(leaf, device) for device in self.devices[:shares]]
        if type(leaf) is not Part:
            return (leaf,) * shares
        if leaf.word == "copy":
            return [self._copied(leaf.value, device) for device in self.devices[:shares]]
        return (leaf.value,) * shares if leaf.word == "keep" else self._sent(leaf.value, shares)

    def _moved(self, array: Any, device: Any) -> Any:
        return self.backend.split(array, (1,), 0, (device,))[0]  # type: ignore[union-attr]

    def _copied(self, value: Any, device: Any) -> Any:
        if self.is_native(value):
            return self.backend.stack([value], device).reshape(value.shape)  # type: ignore[union-attr]
        return value.copy() if isinstance(value, np.ndarray) else copy.deepcopy(value)


@lru_cache
def _indices(sizes: tuple[int, ...], dim: int) -> list[Any]:
    """What picks each share out of an array of any number of axes."""
    ranges = [slice(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True)]
    if dim < 0:
        return [(..., each, *[slice(None)] * (-dim - 1)) for each in ranges]
    return [(*[slice(None)] * dim, each) for each in ranges] if dim else ranges


def _never(value: Any) -> bool:
    return False


def _complaint(sharing: _Sharing, batch: Any, root: str) -> BatchError:
    """Why a batch cannot be shared out, with the paths."""
    counts: dict[str, int] = {}
    for path, leaf in nest.leaves_with_paths(batch, root):
        try:
            (count,) = sharing.counts([leaf])
        except IndexError:
            shape = tuple((leaf.value if type(leaf) is Part else leaf).shape)
            reason = f"{path} has shape {shape}, so there is no dim {sharing.dim} to split it along"
            return BatchError(
                readable(
                    f"{reason}: give another dim, or say 'copy' or 'keep' of it in the spec", root
                )
            )
        except _Refused as refused:
            return BatchError(readable(f"{path} {refused}", root))
        counts |= {} if count is None else {path: count}
    return BatchError(readable(_disagreement(counts, sharing.dim), root))


def _disagreement(counts: dict[str, int], dim: int) -> str:
    (first, size), *rest = counts.items()
    other, found = next((path, count) for path, count in rest if count != size)
    return (
        f"the arrays of a batch must agree on their size along dim {dim}: {first} has {size}, "
        f"{other} has {found}."
    )


def _some(devices: Sequence[Any]) -> Sequence[Any]:
    if isinstance(devices, str) or not len(devices):
        raise SettingError(f"devices={devices!r}: wanted a list of at least one device")
    return devices


def _whole(dim: int) -> int:
    try:
        return operator.index(dim)
    except TypeError:
        raise SettingError(
            f"dim={dim!r} is a {type(dim).__name__}, wanted a whole number"
        ) from None
