"""Tensors and their parts: what one framework stores as one tensor, another stores as several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Unit:
    """A tensor, or a part of one.

    Attributes:
        name: In common words; the tensor's own where it is whole.
        source: The name of the tensor that holds it.
        shape: Its own.
        rows: Which indices of the tensor it is, along an axis; None where it is whole.
        axis: The axis of the tensor along which it is cut.
    """

    name: str
    source: str
    shape: Shape
    rows: range | None = None
    axis: int = 0

    @property
    def whole(self) -> bool:
        """Whether it is all of its tensor."""
        return self.rows is None

    @property
    def layer(self) -> str:
        """The path of the layer that holds its tensor."""
        return parent(self.source)

    @property
    def owner(self) -> str:
        """The path of the layer, in common words."""
        return parent(self.name)

    def read(self, array: np.ndarray) -> np.ndarray:
        """This part of a tensor."""
        if self.rows is None:
            return array
        return self._view(array).reshape(self.shape)

    def write(self, array: np.ndarray, value: np.ndarray) -> None:
        """Set this part of a tensor."""
        view = self._view(array)
        view[...] = value.reshape(view.shape)

    def _view(self, array: np.ndarray) -> np.ndarray:
        if self.rows is None:
            return array
        rows = slice(self.rows.start, self.rows.stop, self.rows.step)
        return array[(*(slice(None),) * self.axis, rows)]

    def __str__(self) -> str:
        """The tensor, and which part of it."""
        if self.whole:
            return self.source
        return f"{self.source}[{last(self.owner)}]"


def whole(name: str, shape: Shape) -> Unit:
    """A tensor as one unit."""
    return Unit(name, name, shape)


def cut(
    name: str,
    shape: Shape,
    names: Sequence[str],
    axis: int = 0,
    interleaved: bool = False,
) -> list[Unit]:
    """Return the equal parts of a tensor along an axis: consecutive blocks, or every n-th row."""
    count = len(names)
    size = shape[axis] // count
    after = shape[axis + 1 :]
    part = (*shape[:axis], size, *after)
    if size == 1 and len(shape) > 1:  # as layers that are scanned over
        part = (*shape[:axis], *after)
    units = []
    for place, each in enumerate(names):
        rows = range(place * size, (place + 1) * size)
        if interleaved:
            rows = range(place, shape[axis], count)
        units.append(Unit(each, name, part, rows, axis))
    return units


def shown(units: Sequence[Unit]) -> str:
    """Return the sum of units as a text."""
    return " + ".join(map(str, units))


def assembled(
    written: Iterator[tuple[Unit, np.ndarray | None]], shapes: Mapping[str, Shape]
) -> dict[str, Any]:
    """Return tensors put together from units.

    Tensors that lack a unit are left out; absent ones stay None. A unit may come several times, as
    where the other side has several names for it.
    """
    tensors: dict[str, Any] = {}
    added: set[Unit] = set()
    missing = {name: math.prod(shape) for name, shape in shapes.items()}
    for unit, value in written:
        name = unit.source
        if unit not in added:
            added.add(unit)
            missing[name] -= math.prod(unit.shape)
        if value is None:
            tensors.setdefault(name, None)
            continue
        if tensors.get(name) is None:
            tensors[name] = np.zeros(shapes[name], value.dtype)
        unit.write(tensors[name], value)
    complete = {}
    for name in shapes:
        if name in tensors and not missing[name]:
            complete[name] = tensors[name]
    return complete


# Dotted names


def parent(name: str) -> str:
    """Return a name without its last part."""
    return name.rpartition(".")[0]


def above(name: str) -> Iterator[str]:
    """Yield the paths of all blocks around a tensor or block, the innermost first.

    Example:
        >>> list(above("body.fc.weight"))
        ['body.fc', 'body', '']
    """
    while name:
        name = parent(name)
        yield name


def last(name: str) -> str:
    """Return the last part of a name."""
    return name.rpartition(".")[2]


def join(*parts: str) -> str:
    """Dotted, without empty parts."""
    return ".".join(part for part in parts if part)
