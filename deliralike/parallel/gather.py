"""The only place where the outputs of replicas become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import nest
from deliralike.errors import SettingError, ShapeError, StructureError, suggestion
from deliralike.parallel.spec import Part, marked

if TYPE_CHECKING:
    from deliralike.backends.base import Backend

SCALARS = ("stack", "mean", "sum")
OTHERS = ("equal", "list")


def gather(
    outputs: Sequence[Any],
    dim: int = 0,
    device: Any = None,
    *,
    scalars: str = "stack",
    others: str = "equal",
    sizes: Sequence[int] | None = None,
    spec: Any = None,
    backend: Backend | None = None,
) -> Any:
    """The outputs of replicas as one nest of the same structure: the inverse of `scatter`.

    Arrays are concatenated in the order of the replicas, in one graph with them. With one output the same rules hold.

    Args:
        dim: The axis that counts samples; negative ones count from each array's last.
        device: Where the results are; that of the first replica when None.
        scalars: What becomes of arrays without axes, NumPy's scalars among them: ``"stack"`` makes a vector with one
            element for each replica, whatever `dim` is; ``"mean"`` weighs them by `sizes`; ``"sum"`` adds them.
        others: What becomes of all other leaves: ``"equal"`` returns one, and it is an error when they differ between
            replicas; ``"list"`` returns a list of one for each replica.
        sizes: The number of samples that each replica has seen, for ``"mean"``; equal ones when None.
        spec: As in `scatter`: lists and tuples that were split are joined, and of what was copied or kept the first
            replica's is returned.
        backend: Whose arrays are joined, besides NumPy's.

    Shapes:
        Arrays ``(share, ...)`` become ``(batch, ...)``; arrays ``()`` become ``(replicas,)``, or ``()`` when reduced.

    Raises:
        StructureError: The outputs are built differently, or a leaf that must be equal is not.
        ShapeError: Arrays differ in an axis other than `dim`, or have no such axis.

    Example:
        >>> gather([{"y": np.zeros((2, 3)), "name": "a"}, {"y": np.ones((1, 3)), "name": "a"}])["y"].shape
        (3, 3)
    """
    _check(outputs, scalars, others, sizes)
    joining = _Joining(dim, device, scalars, others, _weights(scalars, sizes, len(outputs)), backend)
    if spec is not None:
        outputs = [marked(output, spec, joining.is_array, "output") for output in outputs]
    first, structure = nest.flatten(outputs[0])
    rows = [first]
    for index, output in enumerate(outputs[1:], 1):
        leaves, built = nest.flatten(output)
        if built != structure:
            _refuse_difference(outputs[0], output, index)
        rows.append(leaves)
    try:
        return structure.unflatten([joining.joined(column) for column in zip(*rows, strict=True)])
    except _Refused:
        raise _complaint(joining, outputs[0], rows) from None


class _Refused(Exception):
    """Why leaves cannot be joined; with the public error that it becomes."""

    def __init__(self, kind: type[Exception], reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class _Joining:
    """What becomes of one leaf of each replica."""

    def __init__(
        self, dim: int, device: Any, scalars: str, others: str, weights: Sequence[float], backend: Backend | None
    ) -> None:
        """State where, along which axis, by which rules and whose arrays."""
        self.dim, self.device, self.backend, self.weights = dim, device, backend, weights
        self.scalars, self.others = scalars, others
        self.is_native: Callable[[Any], bool] = (lambda value: False) if backend is None else backend.is_array

    def is_array(self, value: Any) -> bool:
        """Whether it is one of the backend's arrays or of NumPy's, or a scalar of NumPy's."""
        return self.is_native(value) or isinstance(value, np.ndarray | np.number | np.bool_)

    def joined(self, column: Sequence[Any]) -> Any:
        """One leaf of all replicas."""
        first = column[0]
        if self.is_array(first):
            return self._arrays(column)
        if type(first) is Part:
            return self._parts(first.word, [part.value for part in column])
        if any(self.is_array(leaf) for leaf in column):
            raise _unlike(column)
        return self._others(column)

    def _arrays(self, column: Sequence[Any]) -> Any:
        native = self.is_native(column[0])
        same = self.is_native if native else self.is_array
        if not all(same(leaf) and self.is_native(leaf) == native for leaf in column):
            raise _unlike(column)
        if not column[0].shape:
            return self._scalars(column, native)
        _refuse_shapes([tuple(leaf.shape) for leaf in column], self.dim)
        if native:
            return self.backend.concatenate(column, self.dim, self.device)  # type: ignore[union-attr]
        return column[0] if len(column) == 1 else np.concatenate(column, self.dim)

    def _scalars(self, column: Sequence[Any], native: bool) -> Any:
        _refuse_shapes_of_scalars(column)
        vector = self.backend.stack(column, self.device) if native else np.stack(column)  # type: ignore[union-attr]
        if self.scalars == "stack":
            return vector
        total = reduce(add, (vector[index] * weight for index, weight in enumerate(self.weights)))
        return np.asarray(total) if isinstance(total, np.generic) else total

    def _parts(self, word: str | None, values: Sequence[Any]) -> Any:
        if word in ("copy", "keep"):
            value = values[0]
            is_moved = word == "copy" and self.device is not None and self.is_native(value)
            return self.backend.split(value, (1,), 0, [self.device])[0] if is_moved else value  # type: ignore[union-attr]
        if word == "split" and type(values[0]) in (list, tuple):
            return reduce(add, values)
        return self.joined(values)

    def _others(self, column: Sequence[Any]) -> Any:
        if self.others == "list":
            return list(column)
        for index, leaf in enumerate(column):
            if not _same(column[0], leaf):
                raise _Refused(StructureError, f"is {_shown(column[0])} on replica 0 and {_shown(leaf)} on replica "
                               f"{index}: return an array, or gather with others='list'.")  # fmt: skip
        return column[0]


def _same(first: Any, second: Any) -> bool:
    """Identical, or of one type and plainly equal; NaN equals NaN. An odd comparison counts as a difference."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    try:
        if first != first and second != second:
            return isinstance(first, float | complex)
        return (first == second) is True
    except Exception:  # noqa: BLE001 - any object may come, and its comparison may do anything
        return False


def _refuse_shapes(shapes: Sequence[tuple[int, ...]], dim: int) -> None:
    axes = len(shapes[0])
    if not -axes <= dim < axes:
        raise _Refused(ShapeError, f"has shape {shapes[0]} on replica 0, so there is no dim {dim} to join it along.")
    rest = _without(shapes[0], dim)
    for index, shape in enumerate(shapes):
        if len(shape) != axes or _without(shape, dim) != rest:
            raise _Refused(ShapeError, f"has shape {shapes[0]} on replica 0 and {shape} on replica {index}: they may "
                           f"differ along dim {dim} only.")  # fmt: skip


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim % len(shape) + 1 :]


def _refuse_shapes_of_scalars(column: Sequence[Any]) -> None:
    for index, leaf in enumerate(column):
        if leaf.shape:
            raise _Refused(ShapeError, f"has shape () on replica 0 and {tuple(leaf.shape)} on replica {index}.")


def _unlike(column: Sequence[Any]) -> _Refused:
    index = next(index for index, leaf in enumerate(column) if type(leaf) is not type(column[0]))
    return _Refused(StructureError, f"is {nest.described(column[0])} on replica 0 and {nest.described(column[index])} "
                    f"on replica {index}.")  # fmt: skip


def _refuse_difference(first: Any, other: Any, index: int) -> None:
    """An error when two outputs are built differently; default factories and the like may differ."""
    difference = nest.first_difference(first, other, "output", ("on replica 0", f"on replica {index}"))
    if difference:
        raise StructureError(difference)


def _complaint(joining: _Joining, output: Any, rows: Sequence[Sequence[Any]]) -> Exception:
    """Why leaves could not be joined, with the path of the first such leaf."""
    for (path, _), column in zip(nest.leaves_with_paths(output, "output"), zip(*rows, strict=True), strict=True):
        try:
            joining.joined(column)
        except _Refused as refused:
            return refused.kind(f"{path} {refused}")
    raise AssertionError("the same leaves can be joined the second time")


def _check(outputs: Sequence[Any], scalars: str, others: str, sizes: Sequence[int] | None) -> None:
    if not len(outputs):
        raise SettingError("gather: there are no outputs, wanted those of at least one replica")
    for name, word, choices in (("scalars", scalars, SCALARS), ("others", others, OTHERS)):
        if word not in choices:
            raise SettingError(f"gather: {name}={word!r} is unknown. {suggestion(word, choices)}")
    if sizes is not None and len(sizes) != len(outputs):
        raise SettingError(f"gather: sizes={tuple(sizes)} are {len(sizes)}, but there are {len(outputs)} outputs")


def _weights(scalars: str, sizes: Sequence[int] | None, count: int) -> Sequence[float]:
    """What each replica's scalar is multiplied by."""
    if scalars != "mean":
        return [1] * count
    total = sum(sizes or ())
    return [1 / count] * count if not total else [size / total for size in sizes or ()]


def _shown(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
