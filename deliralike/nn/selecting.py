"""Gathering, scattering and sorting, and parts of matrices, written on the primitives."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.primitives import Array, axis_of, other_name
from deliralike.nn.reductions import Reductions, ValuesAndIndices
from deliralike.nn.shaping import Shaping, resized


class Selecting(Reductions, Shaping):
    """Functions that select elements by positions or by order."""

    # By positions

    @other_name
    def gather(self, x: Array, dim: int, index: Array) -> Array:
        """Take one element along an axis for each entry of `index`, as `take_along` does."""
        return self.take_along(x, index, dim)

    @other_name
    def index_select(self, x: Array, dim: int, index: Array) -> Array:
        """Take the elements at positions along an axis, as `take` does."""
        if index.ndim > 1:
            raise ShapeError(
                f"index_select: index has shape {tuple(index.shape)}, wanted one axis: nn.take "
                "takes more"
            )
        return self.take(x, index, dim)

    def take_along_dim(self, x: Array, indices: Array, dim: int | None = None) -> Array:
        """`gather` with both shapes broadcast off the axis; without `dim` of all elements."""
        if dim is None:
            return self.take_along(self.ravel(x), self.ravel(indices), 0)
        axis = axis_of(dim, x.ndim)
        off = resized(x.shape, axis, 1), resized(indices.shape, axis, 1)
        shape = np.broadcast_shapes(*off)
        x = self.broadcast_to(x, resized(shape, axis, x.shape[axis]))
        indices = self.broadcast_to(indices, resized(shape, axis, indices.shape[axis]))
        return self.take_along(x, indices, axis)

    def scatter(self, x: Array, dim: int, index: Array, src: Array | float) -> Array:
        """Replace the element at each position along an axis by the entry of `src`, or by a number.

        No position may be given twice where `src` is an array.
        """
        self._check_positions("scatter", x, dim, index)
        zeros = self.zeros(tuple(x.shape), like=x)
        ones = self._ones(index.shape, x)
        is_replaced = self.scatter_add(zeros, dim, index, ones) > 0
        if isinstance(src, int | float | np.number):
            number = self._fitting("scatter", src, x)
            return self.where(is_replaced, number, x)
        src = src[tuple(slice(size) for size in index.shape)]
        return self.where(is_replaced, self.scatter_add(zeros, dim, index, src), x)

    def index_add(
        self, x: Array, dim: int, index: Array, source: Array, *, alpha: float = 1
    ) -> Array:
        """Add the parts of `source` along an axis to those at positions of `x`."""
        positions = self._positions("index_add", x, dim, index, source)
        return self.scatter_add(x, dim, positions, source * alpha)

    def index_copy(self, x: Array, dim: int, index: Array, source: Array) -> Array:
        """Replace the parts at positions along an axis by those of `source`.

        No position may be given twice.
        """
        positions = self._positions("index_copy", x, dim, index, source)
        return self.scatter(x, dim, positions, source)

    def set_at(self, x: Array, index: Any, value: Any) -> Array:
        """Return a copy of `x` whose elements ``x[index]`` are replaced, as ``x.at[index].set``.

        Args:
            index: Whole numbers, slices and ``...``, alone or in a tuple, or an array of truth
                values that fits the shape of `x`.
            value: A number, or an array that fits the shape of ``x[index]``.

        Raises:
            OperationError: `x` has no such elements, or the value does not fit them.
        """
        if hasattr(index, "shape"):
            return self.where(index, self._fitting("set_at", value, x), x)
        places = np.arange(math.prod(x.shape)).reshape(x.shape)[index]
        if hasattr(value, "shape"):
            value = self.cast(self.broadcast_to(value, places.shape), x)
        else:
            value = self.cast(self.zeros(places.shape, like=x) + value, x)
        flat = self.reshape(x, (-1,))
        positions = self.constant(places.reshape(-1), like=x)
        written = self.scatter(flat, 0, positions, self.reshape(value, (-1,)))
        return self.reshape(written, x.shape)

    def index_fill(self, x: Array, dim: int, index: Array, value: float) -> Array:
        """Replace the parts at positions along an axis by a number."""
        self._check_positions("index_fill", x, dim, index)
        places = self.constant(np.arange(x.shape[dim]), like=index)
        is_equal = self.expand_dims(places, 1) == self.expand_dims(index, 0)
        is_named = self.any(is_equal, 1)
        mask = self._along(is_named, dim, x.ndim)
        return self.where(mask, self._fitting("index_fill", value, x), x)

    # By order

    def sort(
        self, x: Array, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> ValuesAndIndices:
        """The elements along an axis in order, and their positions.

        Equal elements keep their order, whatever `stable` says.
        """
        indices = self.argsort(x, dim, descending)
        return ValuesAndIndices(self.select_along(x, indices, dim), indices)

    def argsort(
        self, x: Array, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> Array:
        """The positions that sort an axis; equal elements keep their order, NaN is the largest."""
        if not descending:
            return self.argsort_along(x, dim)
        places = self.argsort_along(self.flip_along(x, dim), dim)
        return x.shape[dim] - 1 - self.flip_along(places, dim)

    def topk(
        self, x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> ValuesAndIndices:
        """The `k` largest or smallest elements along an axis in order, and their positions."""
        order = self.argsort(x, dim, descending=largest)
        indices = self.narrow(order, dim, 0, k)
        return ValuesAndIndices(self.select_along(x, indices, dim), indices)

    def kthvalue(
        self, x: Array, k: int, dim: int = -1, keepdim: bool = False
    ) -> ValuesAndIndices:
        """The k-th smallest element along an axis, and its position; `k` counts from 1."""
        checks.positive(k, "k", "kthvalue")
        indices = self.narrow(self.argsort(x, dim), dim, k - 1, 1)
        return self._selected(x, indices, dim, keepdim)

    def median(self, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        """The median over an axis with its position, or that over all elements alone.

        Of an even number of elements it is the lower one of the two in the middle; it is NaN where
        an element is. Over all elements equal ones share the gradient.
        """
        if dim is None:
            flat = self.ravel(x)
            value, index = self.median(self.stop_gradient(flat), 0)
            if not checks.is_floating(x):
                return value
            places = self.constant(np.arange(flat.shape[0]), like=x)
            is_median = (flat == value) | (places == index)
            return value + self._shared_gradient(flat, is_median, (0,))
        order = self.argsort(x, dim)
        middle = self.narrow(order, dim, (x.shape[dim] - 1) // 2, 1)
        last = self.narrow(order, dim, x.shape[dim] - 1, 1)  # NaN, if there is one
        highest = self.select_along(x, last, dim)
        indices = self.where(highest == highest, middle, last)
        return self._selected(x, indices, dim, keepdim)

    def cummax(self, x: Array, dim: int) -> ValuesAndIndices:
        """The largest element up to each one along an axis, and the last position that has it."""
        largest = self.stop_gradient(x)
        numbers = self.constant(np.arange(x.shape[dim]), like=x)
        places = self.broadcast_to(self._along(numbers, dim, x.ndim), x.shape)
        lowest = -np.inf if checks.is_floating(x) else np.iinfo(checks.type_name(x)).min
        shift = 1
        while shift < x.shape[dim]:
            before = self._shifted(largest, dim, shift, lowest)
            places_before = self._shifted(places, dim, shift, 0)
            is_later = self.logical_or(largest >= before, largest != largest)
            places = self.where(is_later, places, places_before)
            largest = self.where(is_later, largest, before)
            shift *= 2
        return ValuesAndIndices(self.select_along(x, places, dim), places)

    def cummin(self, x: Array, dim: int) -> ValuesAndIndices:
        """The smallest element up to each one along an axis, and the last position that has it."""
        found = self.cummax(self._upside_down(x), dim)
        return ValuesAndIndices(self._upside_down(found.values), found.indices)

    def quantile(
        self,
        x: Array,
        q: float | Sequence[float],
        dim: int | None = None,
        keepdim: bool = False,
    ) -> Array:
        """Quantiles over an axis or over all, with linear interpolation between two elements.

        Args:
            x: Floating numbers.
            q: A number from 0 to 1; or several, which are the first axis of the result.
            dim, keepdim: As in `sum`.
        """
        if not isinstance(q, int | float):
            return self.stack([self.quantile(x, each, dim, keepdim) for each in q], 0)
        if dim is None:
            shape = [1] * x.ndim if keepdim else []
            return self.reshape(self.quantile(self.ravel(x), q, 0), shape)
        if not 0 <= q <= 1:
            raise SettingError(f"quantile: q={q!r}; wanted a number from 0 to 1")
        ordered = self.sort(x, dim).values
        position = q * (x.shape[dim] - 1)
        low = int(position)
        part = self.narrow(ordered, dim, low, 1)
        if position > low:
            above = self.narrow(ordered, dim, low + 1, 1)
            part = part + (above - part) * (position - low)
        highest = self.narrow(ordered, dim, x.shape[dim] - 1, 1)
        part = self.where(highest == highest, part, highest)  # NaN, if there is one
        if keepdim:
            return part
        return self.squeeze(part, dim)

    def searchsorted(
        self, sorted_sequence: Array, x: Array, *, right: bool = False
    ) -> Array:
        """The position at which each value goes into a sorted sequence.

        It goes before equal elements, or behind them with `right`.

        Shapes:
            ``(n,)`` and any shape, or ``(..., n)`` and ``(..., m)``, give the shape of `x`.
        """
        sequence = sorted_sequence
        if sequence.ndim > 1:
            sequence = self.expand_dims(sequence, -2)
        values = self.expand_dims(x, -1)
        is_behind = sequence > values if right else sequence >= values
        return self.count_nonzero(~is_behind, -1)  # NaN goes behind all

    def bucketize(self, x: Array, boundaries: Array, *, right: bool = False) -> Array:
        """The number of the interval between boundaries in which each value lies."""
        return self.searchsorted(boundaries, x, right=right)

    # Parts of matrices

    def tril(self, x: Array, diagonal: int = 0) -> Array:
        """Zeros above a diagonal of the last two axes."""
        *_, rows, columns = x.shape
        return self._at_places(x, np.tri(rows, columns, diagonal, dtype=bool))

    def triu(self, x: Array, diagonal: int = 0) -> Array:
        """Zeros below a diagonal of the last two axes."""
        *_, rows, columns = x.shape
        return self._at_places(x, ~np.tri(rows, columns, diagonal - 1, dtype=bool))

    def _at_places(self, x: Array, places: np.ndarray) -> Array:
        """The elements at places of the last axes, zeros elsewhere."""
        zeros = self.zeros(tuple(x.shape), like=x)
        return self.where(self.constant(places, like=x), x, zeros)

    def diagonal(
        self, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
    ) -> Array:
        """A diagonal of two axes, as the last axis."""
        x = self.movedim(x, (dim1, dim2), (-2, -1))
        *batch, rows, columns = x.shape
        first_row = max(-offset, 0)
        first_column = max(offset, 0)
        length = max(0, min(rows - first_row, columns - first_column))
        steps = np.arange(length)
        positions = (first_row + steps) * columns + first_column + steps
        flat = self.reshape(x, (*batch, rows * columns))
        return self.select(flat, self.constant(positions, like=x), -1)

    def diag_embed(self, x: Array, offset: int = 0) -> Array:
        """Matrices with the elements of the last axis on a diagonal, and zeros elsewhere."""
        *batch, length = x.shape
        rows = max(-offset, 0)
        columns = max(offset, 0)
        before = self.zeros((*batch, 1, 1), like=x)
        above = self.expand_dims(x, -1)
        spread = self.where(
            self.constant(np.eye(length, dtype=bool), like=x), above, before
        )
        pads = [(0, 0)] * len(batch) + [(rows, columns), (columns, rows)]
        return self.pad_constant(spread, tuple(pads), 0)

    def diag(self, x: Array, diagonal: int = 0) -> Array:
        """The diagonal of a matrix, or the matrix with a diagonal."""
        if x.ndim == 1:
            return self.diag_embed(x, diagonal)
        if x.ndim != 2:
            raise checks.shape_error("diag", "one axis or two", x)
        return self.diagonal(x, diagonal)

    def trace(self, x: Array) -> Array:
        """The sum of a matrix's diagonal."""
        if x.ndim != 2:
            raise checks.shape_error("trace", "a matrix", x)
        return self.sum(self.diagonal(x))

    def _positions(
        self, name: str, x: Array, dim: int, index: Array, source: Array
    ) -> Array:
        """Return checked positions along an axis, the same at each place of a source's others."""
        self._check_positions(name, x, dim, index)
        along = self._along(index, dim, x.ndim)
        return self.broadcast_to(along, source.shape)

    def _check_positions(self, name: str, x: Array, dim: int, index: Array) -> None:
        what = f"{name}: index"
        checks.whole_numbers(index, what)
        length = x.shape[axis_of(dim, x.ndim)]
        self.checked(index, checks.InRange(length, what))
