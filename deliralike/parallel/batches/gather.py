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
    array_test,
    mark_leaves,
    sample_weights,
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
        weights=_weights(scalars, sizes, len(outputs)),
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
    ways = _plan(joiner, words, columns, structure)
    return structure.unflatten(joiner.join_all(ways, columns))


def _plan(
    joiner: _Joiner,
    words: Sequence[str | None],
    columns: Sequence[Sequence[Any]],
    structure: Any,
) -> list[str]:
    """Return in which way each leaf is joined; see `_Joiner.way`.

    Raises:
        StructureError, ShapeError: Names the path of a leaf that cannot be joined.
    """
    ways = []
    for word, column in zip(words, columns, strict=True):
        try:
            ways.append(joiner.way(word, column))
        except _Refused as refused:
            path = nest.path_of(structure, len(ways), "output")
            raise refused.kind(f"{path} {refused}") from None
    return ways


class _Refused(Exception):
    """The reason why leaves cannot be joined, with the class of the public error."""

    def __init__(self, kind: type[Exception], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class _Joiner:
    """Joins one leaf of every replica into one leaf.

    Attributes:
        weights: The factors by which each replica's scalar is multiplied.
    """

    dim: int
    device: Any
    scalars: str
    others: str
    weights: Sequence[float]
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
            _Refused: The leaves cannot be joined.
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
        for index, leaf in enumerate(column):
            if not is_same_kind(leaf):
                raise _kind_error(column, index)
            if leaf.shape != shape:
                _refuse_other_shape(tuple(shape), tuple(leaf.shape), index, self.dim)
        if shape and not -len(shape) <= self.dim < len(shape):
            raise _Refused(
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
        weighted = [vector[index] * weight for index, weight in enumerate(self.weights)]
        total = reduce(add, weighted)
        return np.asarray(total) if isinstance(total, np.generic) else total

    def _check_others(self, column: Sequence[Any]) -> None:
        first = column[0]
        for index, leaf in enumerate(column):
            if type(leaf) is not type(first) and self._is_array_or_container(leaf):
                raise _kind_error(column, index)
            if self.others == "equal" and not _same(first, leaf):
                raise _Refused(
                    StructureError,
                    f"is {_shown(first)} on replica 0 and {_shown(leaf)} on replica "
                    f"{index}: return an array, or gather with others='list'.",
                )

    def _is_array_or_container(self, leaf: Any) -> bool:
        """Return whether a leaf is an array or a container, where the first replica has neither."""
        return self.is_array(leaf) or nest.leaves(leaf) != [leaf]


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


def _refuse_other_shape(
    first: tuple[int, ...], shape: tuple[int, ...], index: int, dim: int
) -> None:
    """Check that two shapes differ along one axis only.

    Raises:
        _Refused: They differ along another axis, or one has fewer axes.
    """
    if len(shape) != len(first) or _without(shape, dim) != _without(first, dim):
        raise _Refused(
            ShapeError,
            f"has shape {first} on replica 0 and {shape} on replica {index}: they may "
            f"differ along dim {dim} only.",
        )


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    if not -len(shape) <= dim < len(shape):
        return shape
    return shape[:dim] + shape[dim % len(shape) + 1 :]


def _kind_error(column: Sequence[Any], index: int) -> _Refused:
    return _Refused(
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


def _weights(scalars: str, sizes: Sequence[int] | None, count: int) -> Sequence[float]:
    """Return the factors by which each replica's scalar is multiplied."""
    if scalars != "mean":
        return [1] * count
    return sample_weights([0] * count if sizes is None else sizes)


def _shown(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
