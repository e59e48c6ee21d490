"""The only place where the outputs of replicas are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import (
    SettingError,
    ShapeError,
    StructureError,
    refuse_unknown_word,
)
from deliralike.nest.arrays import Arrays
from deliralike.parallel.batches.scatter import (
    LeafRefused,
    array_test,
    for_each_leaf,
    mark_leaves,
    mean_by_samples,
    unmarked,
    whole,
)

SCALARS = ("stack", "mean", "sum")
OTHERS = ("equal", "list")
_HOST = (np.ndarray, np.number, np.bool_)


def gather(
    outputs: Sequence[Any],
    dim: int = 0,
    device: Any = None,
    *,
    scalars: str = "stack",
    others: str = "equal",
    sizes: Sequence[int] | None = None,
    spec: Any = None,
    backend: Arrays | None = None,
) -> Any:
    """Join the outputs of replicas into one nest of the same structure: the inverse of `scatter`.

    Arrays are concatenated in the order of the replicas, in one graph with them; NumPy arrays keep
    their byte order and masks. With one output the same rules hold.

    Args:
        dim: The axis that counts samples; negative ones count from each array's last.
        device: The device of the results; that of the first replica when None.
        scalars: The rule for arrays without axes, NumPy's scalars among them: ``"stack"`` makes a
            vector with one element for each replica, whatever `dim` is; ``"mean"`` weighs them by
            `sizes`; ``"sum"`` adds them.
        others: The rule for all other leaves: ``"equal"`` returns one, and raises an error when
            they differ between replicas; ``"list"`` returns a list of one for each replica.
        sizes: The number of samples of each replica, for ``"mean"``; equal ones when None.
        spec: As in `scatter`: lists and tuples that were split are joined, and of copied or kept
            leaves the first replica's is returned.
        backend: The backend whose arrays are joined, besides NumPy's.

    Shapes:
        Arrays ``(share, ...)`` become ``(batch, ...)``; arrays ``()`` become ``(replicas,)``, or
        ``()`` when reduced.

    Raises:
        StructureError: The outputs are built differently, or a leaf that must be equal is not.
        ShapeError: Arrays differ in an axis other than `dim`, or have no such axis.
        SettingError: There is no output, or an option is unknown or no whole number.

    Example:
        >>> outputs = [{"y": np.zeros((2, 3)), "name": "a"}, {"y": np.ones((1, 3)), "name": "a"}]
        >>> gather(outputs)["y"].shape
        (3, 3)
    """
    _check(outputs, scalars, others, sizes)
    joiner = _Joiner(
        dim=whole("gather: dim", dim),
        device=device,
        scalars=scalars,
        others=others,
        sizes=[0] * len(outputs) if sizes is None else sizes,
        backend=backend,
    )
    if spec is not None:
        outputs = [
            mark_leaves(output, spec, joiner.is_array, "output") for output in outputs
        ]
    first, structure = nest.flatten(outputs[0])
    words, first = unmarked(first)
    rows = [first]
    for index, output in enumerate(outputs[1:], start=1):
        row = _row(structure, outputs[0], output, index)
        rows.append(unmarked(row)[1])
    columns = list(zip(*rows, strict=True))
    leaves = zip(words, columns, strict=True)
    ways = for_each_leaf(joiner.way, leaves, structure, "output")
    return structure.unflatten(joiner.join_all(ways, columns))


@dataclass(frozen=True, kw_only=True)
class _Joiner:
    """Joins one leaf of every replica into one leaf.

    Attributes:
        sizes: The number of samples of each replica; zeros where they are equal.
    """

    dim: int
    device: Any
    scalars: str
    others: str
    sizes: Sequence[int]
    backend: Any  # of `Arrays`, or None

    @cached_property
    def is_native(self) -> Callable[[Any], bool]:
        """The test whether a value is an array of the backend."""
        return array_test(self.backend)

    def is_array(self, value: Any) -> bool:
        """Return whether a value is an array of the backend or of NumPy, or a scalar of NumPy's."""
        return self.is_native(value) or _is_host(value)

    def way(self, word: str | None, column: Sequence[Any]) -> str:
        """Return in which way a leaf of all replicas is joined: a key of `join_all`.

        Args:
            word: The word of the spec for this leaf.

        Raises:
            LeafRefused: The leaves cannot be joined.
        """
        first = column[0]
        if word in ("copy", "keep"):
            return word
        if word == "split" and type(first) in (list, tuple):
            return "samples"
        is_native = self.is_native(first)
        if not (is_native or _is_host(first)):
            self._check_others(column)
            return "others"
        self._check_arrays(column, self.is_native if is_native else _is_host)
        if not first.shape:
            return "scalars"
        return "native" if is_native else "host"

    def join_all(
        self, ways: Sequence[str], columns: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """Return all leaves of the replicas joined, those of the backend in one call."""
        natives = []
        for way, column in zip(ways, columns, strict=True):
            if way == "native":
                natives.append(column)
        joined = iter(())
        if natives:
            joined = iter(self.backend.concatenate_all(natives, self.dim, self.device))
        leaves = []
        for way, column in zip(ways, columns, strict=True):
            leaves.append(next(joined) if way == "native" else self._join(way, column))
        return leaves

    def _join(self, way: str, column: Sequence[Any]) -> Any:
        first = column[0]
        if way == "scalars":
            return self._join_scalars(column)
        if way == "host" and len(column) > 1:
            return concatenate_on_host(column, self.dim)
        if way == "samples":
            return reduce(add, column)
        if way == "others" and self.others == "list":
            return list(column)
        if way == "copy" and self.device is not None and self.is_native(first):
            return self.backend.split(first, (1,), 0, [self.device])[0]
        return first

    def _check_arrays(
        self, column: Sequence[Any], is_same_kind: Callable[[Any], bool]
    ) -> None:
        shape = column[0].shape
        axes = _other_axes(shape, self.dim)
        for index, leaf in enumerate(column):
            if not is_same_kind(leaf):
                raise _kind_error(column, index)
            if leaf.shape != shape and _other_axes(leaf.shape, self.dim) != axes:
                raise LeafRefused(
                    ShapeError,
                    f"has shape {tuple(shape)} on replica 0 and {tuple(leaf.shape)} on replica "
                    f"{index}: they may differ along dim {self.dim} only.",
                )
        if shape and not -len(shape) <= self.dim < len(shape):
            raise LeafRefused(
                ShapeError,
                f"has shape {tuple(shape)} on replica 0, so there is no dim {self.dim} to join "
                f"it along: reduce it in the network, or gather along another dim.",
            )

    def _join_scalars(self, column: Sequence[Any]) -> Any:
        if self.is_native(column[0]):
            vector = self.backend.stack(column, self.device)
        else:
            vector = np.stack(column)
        if self.scalars == "stack":
            return vector
        # Flags become numbers, which can be counted.
        values = [vector[index] * 1 for index in range(len(column))]
        if self.scalars == "mean":
            total = mean_by_samples(values, self.sizes)
        else:
            total = reduce(add, values)
        return np.asarray(total) if isinstance(total, np.generic) else total

    def _check_others(self, column: Sequence[Any]) -> None:
        first = column[0]
        for index, leaf in enumerate(column):
            if type(leaf) is not type(first) and (
                self.is_array(leaf) or nest.leaves(leaf) != [leaf]  # a container
            ):
                raise _kind_error(column, index)
            if self.others == "equal" and not _same(first, leaf):
                raise LeafRefused(
                    StructureError,
                    f"is {_shown(first)} on replica 0 and {_shown(leaf)} on replica "
                    f"{index}: return an array, or gather with others='list'.",
                )


def _is_host(value: Any) -> bool:
    return isinstance(value, _HOST)


def concatenate_on_host(arrays: Sequence[np.ndarray], dim: int) -> np.ndarray:
    """Join NumPy arrays one after another, with the byte order and the masks that they have."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        return np.ma.concatenate(arrays, dim)
    dtype = arrays[0].dtype
    if dtype.isnative or any(array.dtype != dtype for array in arrays):
        return np.concatenate(arrays, dim)
    return np.concatenate(
        arrays, dim, dtype=dtype
    )  # NumPy joins them in this machine's order


def _same(first: Any, second: Any) -> bool:
    """Return whether two values are identical, or of one type and plainly equal.

    NaN equals NaN. A comparison that fails counts as a difference.
    """
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    try:
        if first != first and second != second:
            return isinstance(first, float | complex)
        return (first == second) is True
    except Exception:  # noqa: BLE001
        return False


def _other_axes(shape: Sequence[int], dim: int) -> list[int | None]:
    """Return a shape without the size of one axis, which stays in its place."""
    axes: list[int | None] = list(shape)
    if -len(axes) <= dim < len(axes):
        axes[dim] = None
    return axes


def _kind_error(column: Sequence[Any], index: int) -> LeafRefused:
    return LeafRefused(
        StructureError,
        f"is {nest.described(column[0])} on replica 0 and {nest.described(column[index])} "
        f"on replica {index}.",
    )


def _row(structure: Any, first: Any, output: Any, index: int) -> list[Any]:
    """Return the leaves of an output, in the order of the first output's.

    Raises:
        StructureError: The output is built differently.
    """
    try:
        return structure.flatten_up_to(output)
    except ValueError:
        where = ("on replica 0", f"on replica {index}")
        difference = nest.first_difference(first, output, "output", where)
        if difference:
            raise StructureError(difference) from None
        return nest.leaves(output)  # only default factories and the like differ


def _check(
    outputs: Sequence[Any], scalars: str, others: str, sizes: Sequence[int] | None
) -> None:
    if not len(outputs):
        raise SettingError(
            "gather: there are no outputs, wanted those of at least one replica"
        )
    refuse_unknown_word("gather: scalars", scalars, SCALARS)
    refuse_unknown_word("gather: others", others, OTHERS)
    if sizes is not None and len(sizes) != len(outputs):
        raise SettingError(
            f"gather: sizes={tuple(sizes)} are {len(sizes)}, but there are {len(outputs)} outputs"
        )


def _shown(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
