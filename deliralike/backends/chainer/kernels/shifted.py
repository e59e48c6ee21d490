"""Convolution on the host by shifts of products, which copies less than columns of windows.

Only the kernel's positions along the last axis become rows of a matrix, each a copy of the input.
One product with the weights of all positions along other axes (here: taps) gives what each element
adds to the windows; for each tap they lie side by side as the elements do. A stride takes one
such product for each remainder of a position by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from deliralike.backends.chainer.kernels.geometry import Geometry

# elements that are worked on at once: they fit into the second cache
_PIECE = 1 << 19


class Tap(NamedTuple):
    """A position of the kernel along all axes but the last.

    The window ``i`` of an axis holds the element ``i + shift``; elements are counted with the
    stride.
    """

    number: int
    shifts: tuple[int, ...]


class Phase(NamedTuple):
    """The taps with the same remainders by the stride, and the elements that they see."""

    strided: tuple[slice, ...]
    size: tuple[int, ...]
    taps: list[Tap]


class Piece(NamedTuple):
    """What is worked on at once: some groups, and elements along all axes.

    The first axis is that of samples; along the last one, which `spans` lacks, it is everything.
    """

    groups: slice
    spans: tuple[range, ...]


class Plan:
    """Which elements of an input meet which windows.

    Inputs are ``(groups, in / groups, batch, *size)``, outputs ``(groups, out / groups, batch,
    *count)``.

    Attributes:
        row: For each kernel position along the last axis: windows, and the elements that they hold.
        phases: The other positions, by their remainders.
    """

    def __init__(self, geometry: Geometry, batch: int) -> None:
        self.geometry, self.batch = geometry, batch
        *outer, last = [self._positions(axis) for axis in range(len(geometry.size))]
        self.row = [self._last(*position) for position in last]
        phases: dict[tuple, Phase] = {}
        for number, positions in enumerate(product(*outer)):
            remainders = tuple(remainder for _, remainder in positions)
            if remainders not in phases:
                phases[remainders] = self._phase(remainders)
            shifts = tuple(shift for shift, _ in positions)
            phases[remainders].taps.append(Tap(number, shifts))
        self.phases = list(phases.values())

    def _positions(self, axis: int) -> list[tuple[int, int]]:
        """Return the shift and the remainder of each kernel position along an axis."""
        g = self.geometry
        before = g.pads[axis][0]
        positions = [k * g.dilation[axis] - before for k in range(g.kernel[axis])]
        return [divmod(position, g.stride[axis]) for position in positions]

    def _last(self, shift: int, remainder: int) -> tuple[slice, slice]:
        g = self.geometry
        stride = g.stride[-1]
        elements = len(range(remainder, g.size[-1], stride))
        low, high = _within(range(elements), shift, g.count[-1])
        start = (low + shift) * stride + remainder
        return slice(low, high), slice(start, start + (high - low) * stride, stride)

    def _phase(self, remainders: tuple[int, ...]) -> Phase:
        axes = list(zip(remainders, self.geometry.stride, strict=False))
        strided = tuple(slice(remainder, None, stride) for remainder, stride in axes)
        sizes = zip(axes, self.geometry.size, strict=False)
        size = tuple(
            len(range(remainder, n, stride)) for (remainder, stride), n in sizes
        )
        return Phase(strided, size, [])

    def cost(self, widening: float) -> float:
        """Return how many elements are copied and added, by those of all windows.

        `widening` is the number of output channels by that of input channels.
        """
        kernel = self.geometry.kernel
        moved = len(self.phases) * kernel[-1] + math.prod(kernel[:-1]) * widening
        return moved / math.prod(kernel)

    def pieces(self, phase: Phase, width: int, out: int) -> Iterator[Piece]:
        """Yield pieces of so many groups or elements as fit into the cache.

        Args:
            phase: Of which elements.
            width: Input channels of a group.
            out: Output channels of a group.
        """
        room = _PIECE // (width * len(self.row) + out * len(phase.taps))
        count = self.geometry.count[-1]
        spans: list[list[range]] = []
        for n in (*reversed(phase.size), self.batch, self.geometry.groups):
            spans.insert(0, _cut(n, room // max(1, count)))
            count *= n
        for groups, *others in product(*spans):
            yield Piece(slice(groups.start, groups.stop), tuple(others))

    def columns(self, x: Any, phase: Phase, piece: Piece) -> Any:
        """Return (groups, row * in / groups, elements) of an input."""
        x = self._elements(x, phase, piece)
        columns = np.empty(self._shape(x, len(self.row), piece), x.dtype)
        for place, (windows, elements) in enumerate(self.row):
            part = columns[:, place]
            part[..., : windows.start] = 0
            part[..., windows] = x[..., elements]
            part[..., windows.stop :] = 0
        return _as_matrices(columns)

    def add_columns(self, columns: Any, phase: Phase, piece: Piece, x: Any) -> None:
        """Add the transpose of `columns` to an input."""
        x = self._elements(x, phase, piece)
        columns = columns.reshape(self._shape(x, len(self.row), piece))
        for place, (windows, elements) in enumerate(self.row):
            part = x[..., elements]
            part += columns[:, place, ..., windows]

    def add_products(self, products: Any, phase: Phase, piece: Piece, y: Any) -> None:
        """Add the products of each tap, (groups, taps * out / groups, elements), to an output."""
        y = y[piece.groups]
        products = products.reshape(self._shape(y, len(phase.taps), piece))
        for place, tap in enumerate(phase.taps):
            windows, elements = self._meetings(tap, piece)
            part = y[windows]
            part += products[:, place][elements]

    def shifts(self, y: Any, phase: Phase, piece: Piece) -> Any:
        """Return the transpose of `add_products`."""
        y = y[piece.groups]
        shifts = np.zeros(self._shape(y, len(phase.taps), piece), y.dtype)
        for place, tap in enumerate(phase.taps):
            windows, elements = self._meetings(tap, piece)
            shifts[:, place][elements] = y[windows]
        return _as_matrices(shifts)

    def _shape(self, x: Any, places: int, piece: Piece) -> tuple[int, ...]:
        """Return (groups, places, channels, *elements) for an array of a piece's groups."""
        return (
            len(x),
            places,
            x.shape[1],
            *map(len, piece.spans),
            self.geometry.count[-1],
        )

    def _elements(self, x: Any, phase: Phase, piece: Piece) -> Any:
        """Return the view of an input that holds a piece's elements."""
        everything = slice(None)
        x = x[(piece.groups, everything, everything, *phase.strided)]
        spans = (slice(span.start, span.stop) for span in piece.spans)
        return x[(everything, everything, *spans)]

    def _meetings(self, tap: Tap, piece: Piece) -> tuple[tuple, tuple]:
        """Return the indices of the windows and of a piece's elements that a tap joins."""
        counts = (self.batch, *self.geometry.count[:-1])
        axes = map(_meeting, piece.spans, (0, *tap.shifts), counts)
        windows, elements = zip(*axes, strict=True)
        return (..., *windows, slice(None)), (..., *elements, slice(None))


plan_of = lru_cache(maxsize=256)(Plan)


def convolve(x: Any, w: Any, plan: Plan) -> Any:
    """Return the convolution (batch, out, *count)."""
    g = plan.geometry
    x = _by_group(x, g.groups)
    y = np.zeros((g.groups, len(w) // g.groups, plan.batch, *g.count), x.dtype)
    for phase, weights in zip(plan.phases, _stacked(w, plan), strict=True):
        for piece in plan.pieces(phase, x.shape[1], y.shape[1]):
            products = np.matmul(weights[piece.groups], plan.columns(x, phase, piece))
            plan.add_products(products, phase, piece, y)
    return _from_groups(y)


def gradients(x: Any, w: Any, y: Any, plan: Plan) -> tuple[Any, Any]:
    """Return the transposes of the convolution in its input and in its weight.

    Both need the same shifts of `y`.

    Args:
        x: The input; None where the transpose in the weight is not wanted.
        w: The weight; None where the transpose in the input is not wanted.
        y: An array like the output.
        plan: Of the convolution.

    Returns:
        ``(batch, in, *size)`` and ``(out, in / groups, *kernel)``, or None in their places.
    """
    g = plan.geometry
    y = _by_group(y, g.groups)
    gx = totals = None
    if x is not None:
        x = _by_group(x, g.groups)
        totals = _totals(x, y, plan)
    if w is not None:
        gx = np.zeros((g.groups, w.shape[1], plan.batch, *g.size), y.dtype)
        w = _stacked(w, plan)
    channels = (x if gx is None else gx).shape[1]
    for number, phase in enumerate(plan.phases):
        for piece in plan.pieces(phase, channels, y.shape[1]):
            shifts = plan.shifts(y, phase, piece)
            if gx is not None:
                columns = np.matmul(w[number][piece.groups].swapaxes(1, 2), shifts)
                plan.add_columns(columns, phase, piece, gx)
            if totals is not None:
                columns = plan.columns(x, phase, piece)
                totals[number][piece.groups] += np.matmul(
                    shifts, columns.swapaxes(1, 2)
                )
    of_input = None if gx is None else _from_groups(gx)
    return of_input, None if totals is None else _unstacked(totals, plan)


# Shapes
# ------------------------------------------------------------


def _by_group(x: Any, groups: int) -> Any:
    """Return (batch, channels, ...) as a view (groups, channels / groups, batch, ...)."""
    x = x.swapaxes(0, 1)
    return x.reshape(groups, len(x) // groups, *x.shape[1:])


def _from_groups(x: Any) -> Any:
    """Return (groups, channels / groups, batch, ...) as a view (batch, channels, ...)."""
    return x.reshape(len(x) * x.shape[1], *x.shape[2:]).swapaxes(0, 1)


def _as_matrices(x: Any) -> Any:
    """Return (groups, places, channels, ...) as (groups, places * channels, elements)."""
    return x.reshape(len(x), x.shape[1] * x.shape[2], math.prod(x.shape[3:]))


def _stacked(w: Any, plan: Plan) -> list[Any]:
    """Return each phase's weights as (groups, taps * out / groups, row * in / groups)."""
    g = plan.geometry
    w = w.reshape(g.groups, len(w) // g.groups, w.shape[1], -1, g.kernel[-1])
    by_tap = np.ascontiguousarray(w.transpose(0, 3, 1, 4, 2))
    columns = g.kernel[-1] * w.shape[2]
    stacked = []
    for phase in plan.phases:
        numbers = [tap.number for tap in phase.taps]
        stacked.append(by_tap[:, numbers].reshape(g.groups, -1, columns))
    return stacked


def _totals(x: Any, y: Any, plan: Plan) -> list[Any]:
    """Return zeros for each phase, as large as its weights; `x` and `y` are by group."""
    row = len(plan.row) * x.shape[1]
    shapes = [(len(y), len(phase.taps) * y.shape[1], row) for phase in plan.phases]
    return [np.zeros(shape, y.dtype) for shape in shapes]


def _unstacked(stacked: list[Any], plan: Plan) -> Any:
    """Return the weights of which `_stacked` makes a list."""
    g = plan.geometry
    row = g.kernel[-1]
    width = stacked[0].shape[2] // row
    parts = []
    for phase, part in zip(plan.phases, stacked, strict=True):
        parts.append(part.reshape(g.groups, len(phase.taps), -1, row, width))
    by_tap = np.concatenate(parts, 1)
    numbers = [tap.number for phase in plan.phases for tap in phase.taps]
    by_tap = by_tap[:, np.argsort(numbers)]
    return by_tap.transpose(0, 2, 4, 1, 3).reshape(-1, width, *g.kernel)


# Ranges
# ------------------------------------------------------------


def _cut(length: int, step: int) -> list[range]:
    """Cut a length into ranges, none longer than a step, or than 1."""
    step = max(1, step)
    return [range(start, min(start + step, length)) for start in range(0, length, step)]


def _within(span: range, shift: int, count: int) -> tuple[int, int]:
    """Return the first and the end of `count` windows, each with an element `shift` further.

    The element has to lie within a span.
    """
    low = max(0, span.start - shift)
    return low, max(low, min(count, span.stop - shift))


@lru_cache(maxsize=4096)
def _meeting(span: range, shift: int, count: int) -> tuple[slice, slice]:
    """Return the windows along one axis with an element `shift` further within a span.

    Return also these elements, counted from the first of the span.
    """
    low, high = _within(span, shift, count)
    first = span.start - shift  # the window of the span's first element
    return slice(low, high), slice(low - first, high - first)
