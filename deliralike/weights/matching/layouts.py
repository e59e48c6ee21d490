"""Layouts of arrays: how one side's axes are split, permuted and merged to the other side's."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, permutations

import numpy as np

from deliralike.weights.matching.distance import relative_difference

Shape = tuple[int, ...]
NEAR = 1e-6  # relative: equal up to the rounding of a cast to float32
_MOST_AXES = 5  # 120 orders


@dataclass(frozen=True)
class Transform:
    """The layout of a reference's array in the candidate: reshaped, permuted, reshaped again.

    Attributes:
        start: The shape in the reference.
        split: The same elements with the axes split that are to be parted.
        axes: The order of those axes in the candidate.
        end: The shape in the candidate.

    Example:
        >>> Transform((6, 4), (2, 3, 4), (2, 0, 1), (4, 2, 3)).apply(np.ones((6, 4))).shape
        (4, 2, 3)
    """

    start: Shape
    split: Shape
    axes: tuple[int, ...]
    end: Shape

    def apply(self, array: np.ndarray) -> np.ndarray:
        """From the reference's layout to the candidate's."""
        moved = array.reshape(self.split).transpose(self.axes)
        return np.ascontiguousarray(moved).reshape(self.end)

    @property
    def inverse(self) -> Transform:
        """The transform from the candidate's layout to the reference's."""
        split = tuple(self.split[axis] for axis in self.axes)
        back = tuple(np.argsort(self.axes).tolist())
        return Transform(self.end, split, back, self.start)

    @property
    def plain(self) -> bool:
        """Whether the elements keep their order."""
        return self.axes == tuple(range(len(self.axes)))

    @property
    def effect(self) -> tuple[Shape, tuple[int, ...]]:
        """What is the same for two transforms of a shape that move every number alike."""
        sizes = tuple(size for size in self.split if size > 1)
        long = [axis for axis in self.axes if self.split[axis] > 1]
        return sizes, tuple(np.argsort(long).tolist())

    @property
    def turned(self) -> bool:
        """Whether axes are exchanged as frameworks do.

        That is ``(out, in)`` as ``(in, out)``, or ``(out, in, *size)`` as ``(*size, in, out)``, or
        back.
        """
        count = len(self.axes)
        in_order = tuple(range(count))
        if min(len(self.start), len(self.end)) == 2:
            first = self.axes[0]
            matrix, rows = self.end, self.split[first:]
            if len(self.start) == 2:
                matrix, rows = self.start, self.split[:first]
            is_rotated = first > 0 and self.axes == in_order[first:] + in_order[:first]
            return is_rotated and math.prod(rows) == matrix[0]
        if count < 3:
            return False
        to_last = (*in_order[2:], 1, 0)
        to_first = (count - 1, count - 2, *in_order[:-2])
        return self.axes in (to_last, to_first)

    def __str__(self) -> str:
        """In words; empty where nothing changes."""
        if self.start == self.end and self.plain:
            return ""
        if self.plain:
            return f"reshaped to {self.end}"
        if self.split == self.start:
            return f"axes {self.axes}"
        return f"as {self.split}, axes {self.axes}"


def plain(shape: Shape) -> Transform:
    """The transform that changes nothing."""
    return Transform(shape, shape, tuple(range(len(shape))), shape)


@cache
def transforms(start: Shape, end: Shape) -> tuple[Transform, ...]:
    """Return every way to permute axes from one shape to another, the plain and usual ones first.

    Axes of the shape with fewer of them are split.

    Example:
        >>> [str(transform) for transform in transforms((3, 3), (3, 3))], transforms((2, 3), (5,))
        (['', 'axes (1, 0)'], ())
        >>> [str(transform) for transform in transforms((10, 4), (4, 2, 5))][0]
        'as (2, 5, 4), axes (2, 0, 1)'
    """
    if math.prod(start) != math.prod(end):
        return ()
    if max(len(start), len(end)) > _MOST_AXES:
        return (plain(start),) if start == end else ()
    if len(end) > len(start):
        found = [transform.inverse for transform in _merging(end, start)]
    else:
        found = list(_merging(start, end))
    return tuple(
        sorted(dict.fromkeys(found), key=lambda each: (not each.plain, not each.turned))
    )


def flattenings(
    shape: Shape, channels: Sequence[int], axis: int = 1
) -> tuple[Transform, ...]:
    """Return how an axis changes from channels first to channels last, and back.

    Along it lie the pixels of several channels.

    Args:
        shape: Such as ``(out, channels * pixels)``.
        channels: The numbers of channels to try.
        axis: The one that changes.
    """
    size = shape[axis]
    before = shape[:axis]
    after = shape[axis + 1 :]
    found = []
    for count in dict.fromkeys(channels):
        if not 1 < count < size or size % count:
            continue
        pixels = size // count
        order = list(range(len(shape) + 1))
        order[axis : axis + 2] = [axis + 1, axis]
        for parts in ((count, pixels), (pixels, count)):
            found.append(
                Transform(shape, (*before, *parts, *after), tuple(order), shape)
            )
    return tuple(found)


def _merging(start: Shape, end: Shape) -> Iterator[Transform]:
    """Yield transforms that permute axes and merge neighbours to the axes of a shape.

    None of them splits an axis.
    """
    for order in permutations(range(len(start))):
        if _merges_to(tuple(start[axis] for axis in order), end):
            yield Transform(start, start, order, end)


def _merges_to(many: Shape, few: Shape) -> bool:
    """Whether neighbouring axes of the first multiply to the axes of the second."""
    if len(many) == len(few):
        return many == few
    return set(_products(few)) <= set(_products(many))


def _products(shape: Shape) -> Iterator[int]:
    """Yield the products of the first axes."""
    return accumulate(shape, operator.mul, initial=1)


def channels_first(axes: int) -> tuple[int, ...]:
    """The order that takes an array with its channels last to one that has them first.

    Example:
        >>> channels_first(4)
        (0, 3, 1, 2)
    """
    if axes < 3:
        return tuple(range(axes))
    return (0, axes - 1, *range(1, axes - 1))


def equal_under(
    reference: np.ndarray, candidate: np.ndarray, options: Sequence[Transform]
) -> Transform | None:
    """The first transform under which both hold the same values, up to the rounding of a cast."""
    for transform in options:
        if relative_difference(transform.apply(reference), candidate) <= NEAR:
            return transform
    return None
