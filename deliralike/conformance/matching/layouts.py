"""Layouts of arrays: how one side's axes are split, permuted and merged to the other side's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import relative_difference
from deliralike.errors import DeliralikeError, ShapeError

Shape = tuple[int, ...]
NEAR = 1e-6  # relative: equal up to the rounding of a cast to float32
_CLOSE = (
    1e-2  # relative: activations that are the same up to a small mistake; others are about 1 apart
)
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
        return np.ascontiguousarray(array.reshape(self.split).transpose(self.axes)).reshape(
            self.end
        )

    def invert(self, array: np.ndarray) -> np.ndarray:
        """From the candidate's layout to the reference's."""
        moved = array.reshape([self.split[axis] for axis in self.axes])
        return np.ascontiguousarray(moved.transpose(np.argsort(self.axes))).reshape(self.start)

    @property
    def plain(self) -> bool:
        """Whether the elements keep their order."""
        return self.axes == tuple(range(len(self.axes)))

    @property
    def turned(self) -> bool:
        """Whether axes are exchanged as frameworks do.

        That is ``(out, in)`` as ``(in, out)``, or ``(out, in, *size)`` as ``(*size, in, out)``, or
        back.
        """
        count = len(self.axes)
        if min(len(self.start), len(self.end)) == 2:
            return any(
                self.axes == (*range(first, count), *range(first)) for first in range(1, count)
            )
        inner = tuple(range(2, count))
        return count > 2 and self.axes in (
            (*inner, 1, 0),
            (count - 1, count - 2, *range(count - 2)),
        )

    def __str__(self) -> str:
        """In words; empty where nothing changes."""
        if self.plain:
            return "" if self.start == self.end else f"reshaped to {self.end}"
        parted = "" if self.split == self.start else f"as {self.split}, "
        return f"{parted}axes {self.axes}"


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
    if math.prod(start) != math.prod(end) or max(len(start), len(end)) > _MOST_AXES:
        return (plain(start),) if start == end else ()
    found = _parting(start, end) if len(end) > len(start) else _merging(start, end)
    return tuple(
        sorted(
            dict.fromkeys(found), key=lambda transform: (not transform.plain, not transform.turned)
        )
    )


def flattenings(shape: Shape, channels: Sequence[int]) -> tuple[Transform, ...]:
    """Return how a matrix's columns change from channels first to channels last.

    Its columns are the pixels of several channels.

    Args:
        shape: ``(out, channels * pixels)``.
        channels: The numbers of channels to try.
    """
    if len(shape) != 2:
        return ()
    fitting = [c for c in dict.fromkeys(channels) if c > 1 and shape[1] % c == 0 and shape[1] > c]
    parted = [((shape[0], c, shape[1] // c), (shape[0], shape[1] // c, c)) for c in fitting]
    return tuple(Transform(shape, split, (0, 2, 1), shape) for both in parted for split in both)


def _parting(start: Shape, end: Shape) -> Iterator[Transform]:
    """Yield transforms that split the reference's axes.

    The reference's shape holds products of the candidate's axes in some order.
    """
    for order in permutations(range(len(end))):
        split = tuple(end[axis] for axis in order)
        if _merges_to(split, start):
            yield Transform(start, split, tuple(int(axis) for axis in np.argsort(order)), end)


def _merging(start: Shape, end: Shape) -> Iterator[Transform]:
    for order in permutations(range(len(start))):
        if _merges_to(tuple(start[axis] for axis in order), end):
            yield Transform(start, start, order, end)


def _merges_to(many: Shape, few: Shape) -> bool:
    """Whether neighbouring axes of the first multiply to the axes of the second."""
    if len(many) == len(few):
        return many == few
    boundaries = {math.prod(many[:length]) for length in range(len(many) + 1)}
    return all(math.prod(few[:length]) in boundaries for length in range(len(few) + 1))


# Activations, inputs and outputs
# -----------------------------------------------------------------------------


def align(
    reference: np.ndarray, candidate: np.ndarray, preferred: Sequence[tuple[int, ...]] = ()
) -> tuple[int, ...] | None:
    """The order of the candidate's axes that gives the reference's layout.

    Shapes decide where only one order fits; then values, where those of one order are near the
    reference's and those of the others are not; then the first of the `preferred` that fits; then
    the axes as they are.

    Returns:
        The axes for `np.transpose` of the candidate; None where no order fits.

    Example:
        >>> align(np.ones((2, 3, 5, 7)), np.ones((2, 5, 7, 3)))
        (0, 3, 1, 2)
    """
    fitting = _orders(np.shape(reference), np.shape(candidate))
    if len(fitting) <= 1:
        return next(iter(fitting), None)
    return _by_values(reference, candidate, fitting) or next(
        (axes for axes in preferred if axes in fitting), fitting[0]
    )


def _orders(reference: Shape, candidate: Shape) -> list[tuple[int, ...]]:
    """Return the orders of the candidate's axes that give the reference's shape, least moved first."""
    if sorted(reference) != sorted(candidate) or len(reference) > _MOST_AXES:
        return [tuple(range(len(reference)))] if reference == candidate else []
    orders = permutations(range(len(candidate)))
    fitting = [axes for axes in orders if tuple(candidate[axis] for axis in axes) == reference]
    usual = [
        tuple(range(len(candidate))),
        channels_first(len(candidate)),
        (1, 0, *range(2, len(candidate))),
    ]
    return sorted(fitting, key=lambda axes: usual.index(axes) if axes in usual else len(usual))


def _by_values(
    reference: np.ndarray, candidate: np.ndarray, fitting: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The order whose values are near; None where several are, or none."""
    distances = [relative_difference(reference, np.transpose(candidate, axes)) for axes in fitting]
    nearest, following = sorted(distances)[:2]
    decides = nearest <= _CLOSE and following > 10 * max(nearest, NEAR)
    return fitting[distances.index(nearest)] if decides else None


def channels_first(axes: int) -> tuple[int, ...]:
    """The order that takes an array with its channels last to one that has them first.

    Example:
        >>> channels_first(4)
        (0, 3, 1, 2)
    """
    return tuple(range(axes)) if axes < 3 else (0, axes - 1, *range(1, axes - 1))


@dataclass
class Layouts:
    """The layouts that a candidate has used so far, by number of axes; these are preferred.

    Attributes:
        seen: Orders of the candidate's axes that give the reference's layout, the last seen first.
    """

    seen: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)

    def remember(self, axes: tuple[int, ...]) -> None:
        """Prefer this order from now on."""
        known = self.seen.setdefault(len(axes), [])
        self.seen[len(axes)] = [axes, *(other for other in known if other != axes)]

    def align(self, reference: np.ndarray, candidate: np.ndarray) -> tuple[int, ...] | None:
        """Call the function `align`, and remember the result if shapes or values decided it."""
        axes = align(reference, candidate, self.seen.get(np.ndim(candidate), ()))
        fitting = _orders(np.shape(reference), np.shape(candidate))
        decided = (
            len(fitting) == 1 or _by_values(reference, candidate, fitting) if fitting else False
        )
        if axes is not None and decided:
            self.remember(axes)
        return axes

    def to_reference(self, candidate: Any, reference: Any) -> Any:
        """The candidate's nest in the reference's layout.

        Args:
            reference: A nest like it that says which shapes (and about which values) are wanted.

        Raises:
            ShapeError: No order of the axes of an array gives the reference's shape.
        """
        return self._mapped(
            candidate, reference, lambda array, axes: np.transpose(array, axes), "reference"
        )

    def to_candidate(self, reference: Any, candidate: Any) -> Any:
        """Return the reference's nest in the layout of the nest `candidate`."""

        def back(like: np.ndarray, array: np.ndarray) -> np.ndarray:
            axes = self.align(array, like)
            if axes is None:
                raise _no_order(array, like, "candidate")
            return np.ascontiguousarray(np.transpose(array, np.argsort(axes)))

        return nest.map(
            lambda array, like: back(like, array) if _is_array(array) else array,
            reference,
            candidate,
        )

    def _mapped(self, values: Any, likes: Any, move: Callable[..., Any], side: str) -> Any:
        def leaf(array: Any, like: Any) -> Any:
            if not (_is_array(array) and _is_array(like)):
                return array
            axes = self.align(like, array)
            if axes is None:
                raise _no_order(array, like, side)
            return np.ascontiguousarray(move(array, axes))

        return nest.map(leaf, values, likes)

    def input_for(
        self, candidate: Any, batch: tuple[Any, ...], must_run: bool = True
    ) -> tuple[Any, ...]:
        """Return the inputs in the first layout in which the candidate runs.

        Tried are the inputs as they are, with channels last, and with time first.

        Args:
            candidate: An `AbstractNetwork`.
            batch: Its positional inputs in the reference's layout; nests of NumPy arrays.
            must_run: If not, where it runs in none, that in which most of its blocks do.

        Raises:
            ShapeError: It runs in none, and must; the message says what was tried, and the last
                line of each error.
        """
        preferred = {axes: None for seen in self.seen.values() for axes in seen}
        tried: list[str] = []
        nearest, most = batch, 0
        for name, turn in _turns(tuple(preferred)):
            inputs = nest.map(
                lambda leaf, turn=turn: turn(leaf) if _is_array(leaf) else leaf, batch
            )
            if tried and _same_shapes(inputs, batch):
                continue
            error, blocks = _failure(candidate, inputs)
            if error is None:
                return self._remembered(batch, inputs)
            nearest, most = (inputs, blocks) if blocks > most else (nearest, most)
            tried.append(f"{name} {[np.shape(leaf) for leaf in nest.leaves(inputs)]}: {error}")
        if not must_run:
            return self._remembered(batch, nearest)
        raise ShapeError(
            f"{type(getattr(candidate, 'native', candidate)).__name__} runs in no layout of the "
            f"inputs. Tried {'; '.join(tried)}. Give it a forward method that takes the "
            "reference's layout, or other inputs"
        )

    def _remembered(self, batch: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs; how they lie is preferred from now on."""
        for old, new in zip(nest.leaves(batch), nest.leaves(inputs), strict=True):
            if _is_array(old) and old.shape != new.shape:
                self.remember(_order_between(old, new))
        return inputs


def _turns(
    preferred: tuple[tuple[int, ...], ...],
) -> list[tuple[str, Callable[[np.ndarray], np.ndarray]]]:
    """Names of layouts, and what takes an array of the reference there."""

    def seen(array: np.ndarray) -> np.ndarray:
        axes = next(
            (axes for axes in preferred if len(axes) == array.ndim), tuple(range(array.ndim))
        )
        return np.ascontiguousarray(np.transpose(array, np.argsort(axes)))

    def last(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim > 2 else array

    def exchanged(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.swapaxes(array, 0, 1)) if array.ndim > 1 else array

    usual = [
        ("as it is", lambda array: array),
        ("channels last", last),
        ("first two axes exchanged", exchanged),
    ]
    return [("as seen before", seen), *usual] if preferred else usual


def _failure(candidate: Any, inputs: tuple[Any, ...]) -> tuple[str | None, int]:
    """Return the last line of a network's error on inputs in evaluation mode; None where it runs.

    Beside it the number of blocks that had run by then.
    """
    done: list[str] = []

    def around(path: str, block: Any, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        output = call(*args, **kwargs)
        done.append(path)
        return output

    backend = candidate.backend
    try:
        with (
            candidate.training_mode(False),
            backend.evaluating(),
            backend.called_through(candidate, around),
        ):
            candidate(*backend.prepare(inputs, candidate))
    except DeliralikeError as error:
        return str(error), len(done)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}", len(done)
    return None, len(done)


def _order_between(reference: np.ndarray, candidate: np.ndarray) -> tuple[int, ...]:
    """Return the order of the candidate's axes that gives the reference back.

    The candidate is one of the usual turns of the reference.
    """
    numbers = np.arange(reference.ndim)
    for order in _orders(reference.shape, candidate.shape):
        if np.array_equal(np.transpose(candidate, order), reference):
            return order
    return tuple(int(number) for number in numbers)


def _same_shapes(first: Any, second: Any) -> bool:
    return [np.shape(leaf) for leaf in nest.leaves(first)] == [
        np.shape(leaf) for leaf in nest.leaves(second)
    ]


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _no_order(array: np.ndarray, like: np.ndarray, side: str) -> ShapeError:
    return ShapeError(
        f"an array of shape {array.shape} cannot be laid out as the {side}'s {like.shape}: no "
        "order of its axes fits"
    )


def equal_under(
    reference: np.ndarray, candidate: np.ndarray, options: Sequence[Transform]
) -> Transform | None:
    """The first transform under which both hold the same values, up to the rounding of a cast."""
    return next(
        (t for t in options if relative_difference(t.apply(reference), candidate) <= NEAR), None
    )
