"""Convolution on the host by shifts of one flat array, which copies less than columns of windows.

The rows of an image lie one after the other with gaps of zeros, so that a step along any axis is a
step along memory: the element of a window at one kernel position, for all windows, is a slice. A
stride takes one such array for each remainder of a position by it. Only the positions along the
last axis become rows of a matrix; those along other axes (here: taps) are shifts of its columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from deliralike.backends.chainer.kernels.geometry import Geometry

# elements that are worked on at once: they fit into the second cache
_PIECE = 1 << 17


class Grid:
    """Where the elements of an input and of the windows lie.

    Attributes:
        size: The windows along each axis, with gaps.
        length: The windows of all samples, with gaps.
        taps: For each remainder along all axes but the last: numbers of kernel positions there and
            their shifts, which are not negative.
    """

    def __init__(self, geometry: Geometry, batch: int) -> None:
        g = geometry
        self.geometry, self.batch = g, batch
        axes = range(len(g.size))
        shifts = [self._shifts(axis) for axis in axes]
        self.size = tuple(self._size(axis, shifts[axis]) for axis in axes)
        self.length = batch * math.prod(self.size)
        steps = [math.prod(self.size[axis + 1 :]) for axis in axes]
        self.row = shifts.pop()  # (shift, remainder) of each position along the last axis
        taps: dict[tuple, list[tuple[int, int]]] = {}
        for number, positions in enumerate(product(*shifts)):
            total = sum(step * shift for step, (shift, _) in zip(steps, positions, strict=False))
            remainders = tuple(remainder for _, remainder in positions)
            taps.setdefault(remainders, []).append((number, total))
        totals = [total for each in taps.values() for _, total in each]
        first = min(totals)
        self.taps = {
            remainders: [(number, total - first) for number, total in each]
            for remainders, each in taps.items()
        }
        self.width = self.length + max(totals) - first  # of the matrix
        in_row = [shift for shift, _ in self.row]
        self.lead = max(0, -first - min(in_row))  # zeros before the first element
        self.starts = [self.lead + first + shift for shift in in_row]
        self.room = max(self.lead + self.length, max(self.starts) + self.width)

    def _shifts(self, axis: int) -> list[tuple[int, int]]:
        """Return the shift and the remainder of each kernel position along an axis."""
        g = self.geometry
        before = g.pads[axis][0]
        positions = [k * g.dilation[axis] - before for k in range(g.kernel[axis])]
        return [divmod(position, g.stride[axis]) for position in positions]

    def _size(self, axis: int, shifts: list[tuple[int, int]]) -> int:
        """Return so many that no window sees the row before or after its own."""
        g = self.geometry
        least = min(shift for shift, _ in shifts)
        most = max(shift for shift, _ in shifts)
        elements = -(-g.size[axis] // g.stride[axis])
        return max(elements - least, g.count[axis] + most, g.count[axis])

    def cost(self, widening: float) -> float:
        """Return how many elements are copied and added, by those of all windows.

        `widening` is the number of output channels by that of input channels.
        """
        g = self.geometry
        count = sum(map(len, self.taps.values()))
        moved = len(self.taps) * len(self.row) + count * widening
        columns = self.batch * math.prod(g.count) * math.prod(g.kernel)
        return self.length * moved / columns

    def of_windows(self, y: Any) -> Any:
        """Return (batch, channels, *count) as (channels, length), with zeros in the gaps."""
        flat = np.zeros((y.shape[1], self.length), y.dtype)
        self.windows(flat)[...] = y
        return flat

    def windows(self, flat: Any) -> Any:
        """Return the view (batch, channels, *count) of (channels, length)."""
        grid = flat.reshape(len(flat), self.batch, *self.size)
        return grid[(..., *map(slice, self.geometry.count))].swapaxes(0, 1)

    def elements(self, flat: Any, remainders: tuple[int, ...]) -> tuple[Any, tuple]:
        """Return the view of (channels, room) that holds elements of an input, and their index."""
        g = self.geometry
        grid = flat[:, self.lead : self.lead + self.length]
        grid = grid.reshape(len(flat), self.batch, *self.size)
        counts = []
        index = []
        for size, stride, remainder in zip(g.size, g.stride, remainders, strict=True):
            counts.append(slice(len(range(remainder, size, stride))))
            index.append(slice(remainder, None, stride))
        return grid[(..., *counts)].swapaxes(0, 1), (..., *index)

    def columns(self, x: Any, lead: tuple[int, ...]) -> Any:
        """Return (channels, row, width) of an input (batch, channels, *size)."""
        flats = {}
        columns = np.empty((x.shape[1], len(self.row), self.width), x.dtype)
        for place, (start, (_, remainder)) in enumerate(zip(self.starts, self.row, strict=True)):
            if remainder not in flats:
                flats[remainder] = np.zeros((x.shape[1], self.room), x.dtype)
                view, index = self.elements(flats[remainder], (*lead, remainder))
                view[...] = x[index]
            columns[:, place] = flats[remainder][:, start : start + self.width]
        return columns

    def add_columns(self, columns: Any, lead: tuple[int, ...], x: Any) -> None:
        """Write the transpose of `columns` into an input."""
        for remainder in sorted({remainder for _, remainder in self.row}):
            flat = np.zeros((x.shape[1], self.room), x.dtype)
            for place, start in enumerate(self.starts):
                if self.row[place][1] == remainder:
                    flat[:, start : start + self.width] += columns[:, place]
            view, index = self.elements(flat, (*lead, remainder))
            x[index] = view


grid_of = lru_cache(maxsize=256)(Grid)


def convolve(x: Any, w: Any, grid: Grid) -> Any:
    """Return the convolution (batch, out, *count)."""
    groups, out = grid.geometry.groups, len(w)
    y = np.zeros((groups, out // groups, grid.length), x.dtype)
    weights = _by_tap(w, groups)
    for lead, taps in grid.taps.items():
        for some, channels in _pieces(grid, x.shape[1]):
            columns = grid.columns(x[:, channels], lead)
            columns = columns.reshape(-1, weights.shape[-1], grid.width)
            if groups > 1:
                products = np.matmul(_stacked(weights, taps, some), columns)
                products = products.reshape(len(products), len(taps), -1, grid.width)
                for place, (_, shift) in enumerate(taps):
                    y[some] += products[:, place, :, shift : shift + grid.length]
            else:
                _add_products(y[0], weights[:, 0], columns[0], taps)
    result = np.empty((out, x.shape[0], *grid.geometry.count), x.dtype).swapaxes(0, 1)
    result[...] = grid.windows(y.reshape(out, -1))
    return result


def transpose(y: Any, w: Any, grid: Grid) -> Any:
    """Return the transpose of the convolution in its input: (batch, in, *size)."""
    g = grid.geometry
    groups, channels = g.groups, w.shape[1] * g.groups
    x = np.zeros((channels, y.shape[0], *g.size), y.dtype).swapaxes(0, 1)
    weights = _by_tap(w, groups)
    flat = grid.of_windows(y).reshape(groups, -1, grid.length)
    for lead, taps in grid.taps.items():
        for some, part in _pieces(grid, channels):
            if groups > 1:
                shifts = _shifts(flat[some], taps, grid)
                columns = np.matmul(_stacked(weights, taps, some).swapaxes(1, 2), shifts)
            else:
                columns = _sum_of_shifts(flat[0], weights[:, 0], taps, grid)
            columns = columns.reshape(-1, len(grid.row), grid.width)
            grid.add_columns(columns, lead, x[:, part])
    return x


def weight_gradient(x: Any, y: Any, grid: Grid) -> Any:
    """Return the transpose of the convolution in its weight: (out, in / groups, *kernel)."""
    g = grid.geometry
    out, channels = y.shape[1], x.shape[1] // g.groups
    count = math.prod(g.kernel[:-1])
    w = np.zeros((count, g.groups, out // g.groups, channels * g.kernel[-1]), x.dtype)
    flat = grid.of_windows(y).reshape(g.groups, -1, grid.length)
    for lead, taps in grid.taps.items():
        numbers = [number for number, _ in taps]
        for some, part in _pieces(grid, x.shape[1]):
            columns = grid.columns(x[:, part], lead)
            columns = columns.reshape(-1, w.shape[-1], grid.width)
            if g.groups > 1:
                products = np.matmul(_shifts(flat[some], taps, grid), columns.swapaxes(1, 2))
                products = products.reshape(len(products), len(taps), -1, w.shape[-1])
                w[numbers, some] = products.swapaxes(0, 1)
            else:
                for start, stop in _positions(grid.length, len(columns[0]) + 2 * out):
                    rows = flat[0, :, start:stop]
                    for number, shift in taps:
                        w[number, 0] += rows @ columns[0, :, start + shift : stop + shift].T
    w = w.reshape(count, out, channels, g.kernel[-1])
    return np.moveaxis(w, 0, 2).reshape(out, channels, *g.kernel)


# Pieces
# ------------------------------------------------------------


def _pieces(grid: Grid, channels: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of groups, as many as fit into the cache, and of their input channels."""
    groups = grid.geometry.groups
    width = channels // groups
    step = groups
    if groups > 1:
        step = max(1, _PIECE // (width * len(grid.row) * grid.width))
    for start in range(0, groups, step):
        stop = min(start + step, groups)
        yield slice(start, stop), slice(start * width, stop * width)


def _positions(length: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of positions of which so many rows fit into the cache."""
    step = max(512, 2 * _PIECE // rows)
    for start in range(0, length, step):
        yield start, min(start + step, length)


def _add_products(y: Any, weights: Any, columns: Any, taps: list[tuple[int, int]]) -> None:
    """Add the products of each tap's weight with its columns."""
    for start, stop in _positions(y.shape[1], len(columns) + 2 * len(y)):
        total = y[:, start:stop]
        for number, shift in taps:
            total += weights[number] @ columns[:, start + shift : stop + shift]


def _sum_of_shifts(y: Any, weights: Any, taps: list[tuple[int, int]], grid: Grid) -> Any:
    """Return the transpose of `_add_products` in the columns."""
    columns = np.zeros((weights.shape[2], grid.width), y.dtype)
    for start, stop in _positions(grid.length, 2 * len(columns) + len(y)):
        rows = y[:, start:stop]
        for number, shift in taps:
            columns[:, start + shift : stop + shift] += weights[number].T @ rows
    return columns


# Shapes
# ------------------------------------------------------------


def _by_tap(w: Any, groups: int) -> Any:
    """Reshape (out, in / groups, *kernel) to (taps, groups, out / groups, in / groups * row)."""
    out, channels, row = len(w), w.shape[1], w.shape[-1]
    w = np.moveaxis(w.reshape(groups, out // groups, channels, -1, row), 3, 0)
    return np.ascontiguousarray(w).reshape(-1, groups, out // groups, channels * row)


def _stacked(weights: Any, taps: list[tuple[int, int]], some: slice) -> Any:
    """Return the weights of some groups as (groups, taps * out / groups, in / groups * row)."""
    chosen = weights[[number for number, _ in taps], some].swapaxes(0, 1)
    return chosen.reshape(len(chosen), -1, weights.shape[-1])


def _shifts(flat: Any, taps: list[tuple[int, int]], grid: Grid) -> Any:
    """Return (groups, taps * out / groups, width): the rows of `flat`, shifted by each tap."""
    shifts = np.zeros((len(flat), len(taps), flat.shape[1], grid.width), flat.dtype)
    for place, (_, shift) in enumerate(taps):
        shifts[:, place, :, shift : shift + grid.length] = flat
    return shifts.reshape(len(flat), -1, grid.width)
