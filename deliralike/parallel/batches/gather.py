"""The only place where the outputs of replicas are joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from operator import add
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import SettingError, ShapeError, StructureError, suggestion
from deliralike.nest.arrays import Arrays
from deliralike.parallel.batches.partition import whole
from deliralike.parallel.batches.spec import Part, mark_leaves

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
    rows = [first]
    for index, output in enumerate(outputs[1:], start=1):
        rows.append(_row(structure, outputs[0], output, index))
    try:
        leaves = joiner.join_all(rows)
    except _Refused:
        raise _error_with_path(joiner, outputs[0], rows) from None
    return structure.unflatten(leaves)


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
    backend: Arrays | None

    def is_native(self, value: Any) -> bool:
        """Return whether a value is an array of the backend."""
        return self.backend is not None and self.backend.is_array(value)

    def is_array(self, value: Any) -> bool:
        """Return whether a value is an array of the backend or of NumPy, or a scalar of NumPy's."""
        return self.is_native(value) or isinstance(value, _HOST)

    def join_all(self, rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return all leaves of the replicas joined, those of the backend in one call."""
        columns = [*zip(*rows, strict=True)]
        are_native = [self._joins_natively(column) for column in columns]
        try:
            joined = self._concatenate_all([*compress(columns, are_native)])
        except Exception:  # noqa: BLE001  # raised again below, where the error gets a path
            return [self.join(column) for column in columns]
        leaves = []
        for column, is_native in zip(columns, are_native, strict=True):
            leaves.append(next(joined) if is_native else self.join(column))
        return leaves

    def _joins_natively(self, column: Sequence[Any]) -> bool:
        """Return whether a column holds arrays of the backend of one type, with an axis `dim`."""
        first = column[0]
        if not self.is_native(first) or not -first.ndim <= self.dim < first.ndim:
            return False
        return all(
            type(leaf) is type(first) and leaf.ndim == first.ndim for leaf in column
        )

    def _concatenate_all(self, columns: Sequence[Sequence[Any]]) -> Iterator[Any]:
        if not columns:
            return iter(())
        return iter(self._backend.concatenate_all(columns, self.dim, self.device))

    def join(self, column: Sequence[Any]) -> Any:
        """Return one leaf of all replicas joined into one."""
        first = column[0]
        if self.is_native(first):
            return self._join_arrays(column, is_native=True)
        if isinstance(first, _HOST):
            return self._join_arrays(column, is_native=False)
        if type(first) is Part:
            return self._join_parts(first.word, [part.value for part in column])
        return self._join_others(column)

    def _join_arrays(self, column: Sequence[Any], *, is_native: bool) -> Any:
        shape = column[0].shape
        for leaf in column:
            if type(leaf) is not type(column[0]) or leaf.shape != shape:
                self._refuse_mismatch(column, is_native=is_native)
                break
        if not shape:
            return self._join_scalars(column, is_native=is_native)
        if not -len(shape) <= self.dim < len(shape):
            raise _Refused(
                ShapeError,
                f"has shape {tuple(shape)} on replica 0, so there is no dim {self.dim} to join "
                f"it along: reduce it in the network, or gather along another dim.",
            )
        if is_native:
            return self._backend.concatenate(column, self.dim, self.device)
        return column[0] if len(column) == 1 else concatenate_on_host(column, self.dim)

    @property
    def _backend(self) -> Arrays:
        """The backend, where a native array was found."""
        assert self.backend is not None
        return self.backend

    def _refuse_mismatch(self, column: Sequence[Any], *, is_native: bool) -> None:
        for index, leaf in enumerate(column):
            is_same_kind = (
                self.is_native(leaf) if is_native else isinstance(leaf, _HOST)
            )
            if not is_same_kind:
                raise _kind_error(column, index)
        _refuse_shapes([tuple(leaf.shape) for leaf in column], self.dim)

    def _join_scalars(self, column: Sequence[Any], *, is_native: bool) -> Any:
        vector = (
            self._backend.stack(column, self.device) if is_native else np.stack(column)
        )
        if self.scalars == "stack":
            return vector
        weighted = [vector[index] * weight for index, weight in enumerate(self.weights)]
        total = reduce(add, weighted)
        return np.asarray(total) if isinstance(total, np.generic) else total

    def _join_parts(self, word: str | None, values: Sequence[Any]) -> Any:
        value = values[0]
        if word == "copy" and self.device is not None and self.is_native(value):
            return self._backend.split(value, (1,), 0, [self.device])[0]
        if word in ("copy", "keep"):
            return value
        if word == "split" and type(value) in (list, tuple):
            return reduce(add, values)
        return self.join(values)

    def _join_others(self, column: Sequence[Any]) -> Any:
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
        return list(column) if self.others == "list" else first

    def _is_array_or_container(self, leaf: Any) -> bool:
        """Return whether a leaf is an array or a container, where the first replica has neither."""
        return self.is_array(leaf) or nest.leaves(leaf) != [leaf]


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


def _refuse_shapes(shapes: Sequence[tuple[int, ...]], dim: int) -> None:
    """Check that shapes differ in their size along one axis only.

    Raises:
        _Refused: They differ otherwise.
    """
    first = shapes[0]
    for index, shape in enumerate(shapes):
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


def _error_with_path(
    joiner: _Joiner, output: Any, rows: Sequence[Sequence[Any]]
) -> Exception:
    """Return the public error for leaves that cannot be joined, with the path of the first one.

    Raises:
        AssertionError: All leaves can be joined.
    """
    for (path, _), *column in zip(
        nest.leaves_with_paths(output, "output"), *rows, strict=True
    ):
        try:
            joiner.join(column)
        except _Refused as refused:
            return refused.kind(f"{path} {refused}")
    raise AssertionError("the same leaves can be joined the second time")


def _check(
    outputs: Sequence[Any], scalars: str, others: str, sizes: Sequence[int] | None
) -> None:
    if not len(outputs):
        raise SettingError(
            "gather: there are no outputs, wanted those of at least one replica"
        )
    for name, word, choices in (
        ("scalars", scalars, SCALARS),
        ("others", others, OTHERS),
    ):
        if word not in choices:
            raise SettingError(
                f"gather: {name}={word!r} is unknown. {suggestion(word, choices)}"
            )
    if sizes is not None and len(sizes) != len(outputs):
        raise SettingError(
            f"gather: sizes={tuple(sizes)} are {len(sizes)}, but there are {len(outputs)} outputs"
        )


def _weights(scalars: str, sizes: Sequence[int] | None, count: int) -> Sequence[float]:
    """Return the factors by which each replica's scalar is multiplied."""
    if scalars != "mean":
        return [1] * count
    if sizes is None or not sum(sizes):
        return [1 / count] * count
    total = sum(sizes)
    return [size / total for size in sizes]


def _shown(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
