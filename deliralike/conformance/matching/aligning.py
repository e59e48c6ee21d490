"""Which array of one nest is which array of another's, by what they hold.

A port may take its arguments in another order, return more or less than its original, and lay out
its arrays in another way. Values say which is which wherever both hold the same numbers; shapes say
it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import is_array
from deliralike.conformance.kinds import Axes
from deliralike.weights.matching.distance import order_free, relative_difference
from deliralike.weights.matching.layouts import (
    NEAR,
    Shape,
    Transform,
    equal_under,
    flattenings,
    transforms,
)

TRANSPOSED = (0, 1, 3, 2)  # rows and columns exchanged
_STILL = (
    1e-4  # relative: arrays that are so near in a layout say nothing for another one
)


@dataclass(frozen=True)
class Leaf:
    """An array of the reference's nest, and the array of the candidate's that holds it.

    Attributes:
        reference, candidate: Positions among the leaves of each nest.
        transform: From the reference's layout to the candidate's.
        by_value: Whether both held the same numbers; else their shapes fit.
    """

    reference: int
    candidate: int
    transform: Transform
    by_value: bool


@dataclass
class Orders:
    """The orders of axes that a candidate was seen to use, the latest first.

    Attributes:
        used: Orders of the reference's axes in the candidate, for arrays of as many axes.
    """

    used: list[Axes] = field(default_factory=list)

    def remember(self, axes: Axes) -> None:
        """Prefer this order from now on, if a layout has it.

        Rows and columns alone change places in the factors of a matrix product.
        """
        if axes == TRANSPOSED:
            return
        self.used = [axes, *(other for other in self.used if other != axes)]

    def preferred(self, options: Sequence[Transform]) -> Transform:
        """The option whose order was seen last; the plainest one where none was."""
        for axes in self.used:
            for option in options:
                if option.axes == axes and len(option.start) == len(option.end):
                    return option
        return options[0]

    def turned(self, array: np.ndarray) -> np.ndarray:
        """An array of the reference's in the order that was seen last for as many axes."""
        for axes in self.used:
            if len(axes) == array.ndim:
                return np.ascontiguousarray(array.transpose(axes))
        return array


@dataclass(frozen=True)
class Alignment:
    """How the arrays of a reference's nest lie in a candidate's.

    Attributes:
        leaves: Of the arrays that both have.
        complete: Whether every array of the reference has its place.
    """

    leaves: tuple[Leaf, ...] = ()
    complete: bool = True

    @property
    def by_value(self) -> bool:
        """Whether values decided everything."""
        return self.complete and all(leaf.by_value for leaf in self.leaves)

    def there(self, reference: Any, like: Any) -> Any:
        """The candidate's nest `like` with the reference's arrays in the places of its own."""
        arrays = nest.leaves(reference)
        leaves, structure = nest.flatten(like)
        leaves = list(leaves)
        for leaf in self.leaves:
            leaves[leaf.candidate] = _moved(
                leaf.transform.apply, arrays[leaf.reference]
            )
        return nest.unflatten(structure, leaves)

    def back(self, candidate: Any, like: Any) -> Any:
        """The reference's nest `like` with the candidate's arrays; None in the other places.

        An array of another size than the one that was aligned has its axes turned alone.
        """
        leaves = nest.leaves(candidate)
        expected, structure = nest.flatten(like)
        found: list[Any] = [None] * len(expected)
        for leaf in self.leaves:
            if leaf.candidate < len(leaves):
                array = leaves[leaf.candidate]
                fits = np.shape(array) == leaf.transform.end
                if fits:
                    invert = leaf.transform.inverse.apply
                else:
                    invert = partial(_turned_back, leaf.transform)
                found[leaf.reference] = _moved(invert, array)
        return nest.unflatten(structure, found)

    def numbers_there(self, numbers: Sequence[Any], count: int) -> list[Any]:
        """One array or None for each leaf of the reference, as one for each of the candidate's."""
        found: list[Any] = [None] * count
        for leaf in self.leaves:
            if numbers[leaf.reference] is not None:
                moved = _moved(leaf.transform.apply, numbers[leaf.reference])
                before = found[leaf.candidate]
                found[leaf.candidate] = moved if before is None else before + moved
        return found


def _turned_back(transform: Transform, array: np.ndarray) -> np.ndarray:
    """An array of another size with its axes in the reference's order, where that is all."""
    is_order = transform.split == transform.start and array.ndim == len(transform.axes)
    return array.transpose(transform.inverse.axes) if is_order else array


def _moved(move: Callable[[np.ndarray], np.ndarray], array: Any) -> Any:
    return move(array) if is_array(array) else array


def plain(values: Any) -> Alignment:
    """The alignment of a nest with one of the same structure and shapes."""
    found = []
    for at, array in _arrays(values).items():
        found.append(Leaf(at, at, transforms(array.shape, array.shape)[0], True))
    return Alignment(tuple(found))


def align(reference: Any, candidate: Any, orders: Orders | None = None) -> Alignment:
    """Find the arrays of the reference's nest in the candidate's.

    An array that the reference has twice may be one array of the candidate's.

    Args:
        reference, candidate: Nests of NumPy arrays and plain values.
        orders: What is known of the candidate's layouts; learns from what values decide.
    """
    search = _Search(_arrays(reference), _arrays(candidate), orders or Orders())
    found: dict[int, Leaf] = {}
    for look in (search.same, search.fitting):
        for at in search.expected:
            leaf = None if at in found else look(at)
            if leaf is not None:
                found[at] = leaf
                search.taken.setdefault(leaf.candidate, at)
    is_complete = len(found) == len(search.expected)
    return Alignment(tuple(found[at] for at in sorted(found)), is_complete)


@dataclass
class _Search:
    """The arrays of both nests by their positions, and the reference's by the candidate's."""

    expected: dict[int, np.ndarray]
    actual: dict[int, np.ndarray]
    orders: Orders
    taken: dict[int, int] = field(default_factory=dict)

    def same(self, at: int) -> Leaf | None:
        """The candidate's array with the same numbers, in some layout; a free one if there is one."""
        array, taken = self.expected[at], self.taken
        for other in sorted(
            self.actual, key=lambda one: (one in taken, one != at, one)
        ):
            value = self.actual[other]
            are_floating = value.dtype.kind == "f", array.dtype.kind == "f"
            if value.size != array.size or len(set(are_floating)) > 1:
                continue
            owner = taken.get(other)
            if owner is not None and not np.array_equal(self.expected[owner], array):
                continue
            if transform := _equal(array, value, self.orders):
                if not transform.plain:
                    self.orders.remember(transform.axes)
                return Leaf(at, other, transform, True)
        return None

    def fitting(self, at: int) -> Leaf | None:
        """The first free array of the candidate's whose shape fits, in the likeliest layout."""
        array, found = self.expected[at], self.actual.items()
        free = [other for other, value in found if value.dtype.kind == array.dtype.kind]
        free = [other for other in free if other not in self.taken]
        for same_axes in (True, False):
            for other in sorted(free, key=lambda place: (place != at, place)):
                value = self.actual[other]
                options = transforms(array.shape, value.shape)
                if options and (_long(array.shape) == _long(value.shape)) == same_axes:
                    return Leaf(at, other, self.orders.preferred(options), False)
        return None


def _arrays(values: Any) -> dict[int, np.ndarray]:
    leaves = enumerate(nest.leaves(values))
    return {at: leaf for at, leaf in leaves if is_array(leaf)}


def _equal(
    reference: np.ndarray,
    candidate: np.ndarray,
    orders: Orders,
) -> Transform | None:
    """The transform under which both hold the same numbers, up to the rounding of a cast.

    Arrays that are nearly the same in the likeliest layout are not taken to lie in another way.
    """
    if not _has_same_sums(reference, candidate):
        return None
    options = list(transforms(reference.shape, candidate.shape))
    if not options and reference.size != candidate.size:
        return None
    if options:
        first = orders.preferred(options)
        distance = relative_difference(first.apply(reference), candidate)
        if distance <= _STILL:
            return first if distance <= NEAR else None
    if reference.shape == candidate.shape:
        options += _flattenings(reference.shape)
    return equal_under(reference, candidate, options)


def _flattenings(shape: Shape) -> tuple[Transform, ...]:
    """Orders of the last axis, where that is a picture which each side flattens in its own order."""
    if len(shape) != 2:
        return ()
    width = shape[1]
    return flattenings(shape, [size for size in range(2, width) if width % size == 0])


def _has_same_sums(reference: np.ndarray, candidate: np.ndarray) -> bool:
    """Whether sums that no order of the elements changes are the same."""
    if reference.size != candidate.size:
        return False
    return np.allclose(
        order_free(reference), order_free(candidate), rtol=1e2 * NEAR, atol=0.0
    )


def _long(shape: Shape) -> list[int]:
    """The sizes of axes that are longer than one."""
    return sorted(size for size in shape if size > 1)
