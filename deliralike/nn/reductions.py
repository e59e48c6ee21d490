"""Reductions over some axes or all, and running sums, written on the primitives."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from deliralike.errors import SettingError
from deliralike.nn.arguments import in_float32
from deliralike.nn.checks import is_floating
from deliralike.nn.elementwise import Elementwise
from deliralike.nn.primitives import Array, Dims, at, axis_of, other_name
from deliralike.nn.start import Shape


class ValuesAndIndices(NamedTuple):
    """Values, and their positions along the axis that was searched or sorted."""

    values: Array
    indices: Array


class Reductions(Elementwise):
    """Functions over axes. `dim` is an axis, several where it says so, or None for all."""

    # Extremes

    @other_name
    def max(
        self, x: Array, dim: int | Array | None = None, keepdim: bool = False
    ) -> Array:
        """The maxima over an axis with their positions, or the maximum over all, or of two arrays.

        Over one axis the result has `values` and `indices`, and the first of equal maxima takes the
        gradient; over all of them equal ones share it, as in `maximum`. `amax` gives the values
        over axes alone.

        Args:
            x: Any array.
            dim: The axis; or another array, which is broadcast.
            keepdim: Whether the axis stays, with length one.
        """
        if dim is None:
            return self.amax(x)
        if not isinstance(dim, int | np.integer):
            return self.maximum(x, dim)
        indices = self.argmax(self.stop_gradient(x), int(dim), keepdim=True)
        return self._selected(x, indices, int(dim), keepdim)

    @other_name
    def min(
        self, x: Array, dim: int | Array | None = None, keepdim: bool = False
    ) -> Array:
        """The minima over an axis with their positions, or the minimum; see `max`."""
        if dim is None:
            return self.amin(x)
        if not isinstance(dim, int | np.integer):
            return self.minimum(x, dim)
        indices = self.argmin(self.stop_gradient(x), int(dim), keepdim=True)
        return self._selected(x, indices, int(dim), keepdim)

    def _selected(
        self, x: Array, indices: Array, dim: int, keepdim: bool
    ) -> ValuesAndIndices:
        """The elements at positions of an axis, of which there is one for each row."""
        shape = _reduced(x.shape, dim, keepdim)
        values = self.reshape(self.select_along(x, indices, dim), shape)
        return ValuesAndIndices(values, self.reshape(indices, shape))

    def argmax(self, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        """The index of the first maximum along an axis, or of all elements in row-major order."""
        if dim is None:
            index = self.argmax_along(self.reshape(x, (-1,)), 0)
            return self.reshape(index, [1] * x.ndim) if keepdim else index
        index = self.argmax_along(x, dim)
        if keepdim:
            return self.reshape(index, _reduced(x.shape, dim, keepdim=True))
        return index

    def argmin(self, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        """The index of the first minimum; see `argmax`."""
        return self.argmax(self._upside_down(x), dim, keepdim)

    def amax(self, x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
        """The maximum over some axes, or all; equal maxima share the gradient."""
        dims = _axes(x.shape, dim)
        shape = _reduced(x.shape, dims, keepdim)
        if not is_floating(x):
            return self.reshape(self._largest(x, dims), shape)
        largest, is_first = self._largest_and_first(self.stop_gradient(x), dims)
        # A compiler that computes `x` twice may round it in two ways: then nothing is equal.
        is_largest = (x == largest) | is_first
        shared = self._shared_gradient(x, is_largest, dims, keepdim)
        return self.reshape(largest, shape) + shared

    @in_float32
    def _shared_gradient(
        self, x: Array, is_chosen: Array, dims: Sequence[int], keepdim: bool = False
    ) -> Array:
        """Zeros in the place of axes, whose gradient the chosen elements share."""
        share = 1.0 / self.sum(self.cast(is_chosen, x), dims, keepdim)
        is_finite = is_chosen & (self.abs(x) < math.inf)
        zeros = self.where(is_finite, x - self.stop_gradient(x), 0.0)
        return self.sum(zeros, dims, keepdim) * share

    def _largest(self, x: Array, dims: Sequence[int]) -> Array:
        """The maximum over some axes, which stay with length one."""
        for dim in dims:
            x = self.max_along(x, dim, keepdim=True)
        return x

    def _largest_and_first(self, x: Array, dims: Sequence[int]) -> tuple[Array, Array]:
        """The maximum over some axes, which stay with length one, and where the first one is."""
        is_first = x != x
        for dim in dims:
            sizes = [1] * x.ndim
            sizes[dim] = x.shape[dim]
            places = self.constant(np.arange(x.shape[dim]).reshape(sizes), like=x)
            found = places == self.argmax(x, dim, keepdim=True)
            is_first = found if dim == dims[0] else found & is_first
            x = self.max_along(x, dim, keepdim=True)
        return x, is_first

    def amin(self, x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
        """The minimum over some axes, or all; equal minima share the gradient."""
        return self._upside_down(self.amax(self._upside_down(x), dim, keepdim))

    def aminmax(
        self, x: Array, *, dim: int | None = None, keepdim: bool = False
    ) -> tuple[Array, Array]:
        """The minimum and the maximum over an axis, or over all."""
        return self.amin(x, dim, keepdim), self.amax(x, dim, keepdim)

    # Moments

    @in_float32
    def var(
        self,
        x: Array,
        dim: Dims = None,
        keepdim: bool = False,
        correction: int = 1,
    ) -> Array:
        """Return the variance over some axes, computed in two passes.

        It is unbiased; ``correction=0`` makes it the mean of the squared deviations.
        """
        dims = _axes(x.shape, dim)
        centred = x - self.mean(x, dims, keepdim=True)
        count = math.prod(x.shape[d] for d in dims)
        squares = self.sum(centred * centred, dims, keepdim)
        return squares * (
            1.0 / (count - correction) if count > correction else math.inf
        )

    @in_float32
    def std(
        self, x: Array, dim: Dims = None, keepdim: bool = False, correction: int = 1
    ) -> Array:
        """The root of `var`; its derivative is 0 where all elements are equal."""
        return self._root(self.var(x, dim, keepdim, correction))

    def var_mean(
        self, x: Array, dim: Dims = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Array, Array]:
        """The variance and the mean."""
        dims = _axes(x.shape, dim)
        return self.var(x, dims, keepdim, correction), self.mean(x, dims, keepdim)

    def std_mean(
        self, x: Array, dim: Dims = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Array, Array]:
        """The standard deviation and the mean."""
        dims = _axes(x.shape, dim)
        return self.std(x, dims, keepdim, correction), self.mean(x, dims, keepdim)

    # Sums and products

    def prod(self, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        """The product over an axis, or over all; with its gradient also where elements are 0."""
        shape = _reduced(x.shape, dim, keepdim)
        x = self._widened(x)
        if dim is None:
            x = self.reshape(x, (-1,))
            dim = 0
        if x.shape[dim] == 0:
            return self._ones(shape, x)
        while x.shape[dim] > 1:
            half = x.shape[dim] // 2
            rest = at(x, dim, slice(2 * half, None))
            x = at(x, dim, slice(half)) * at(x, dim, slice(half, 2 * half))
            if rest.shape[dim]:
                x = self.concatenate([x, rest], dim)
        return self.reshape(x, shape)

    def cumsum(self, x: Array, dim: int) -> Array:
        """The sums of the elements up to each one along an axis."""
        return self._accumulate(operator.add, self._widened(x), dim, 0.0)

    def cumprod(self, x: Array, dim: int) -> Array:
        """The products of the elements up to each one along an axis."""
        return self._accumulate(operator.mul, self._widened(x), dim, 1.0)

    def logcumsumexp(self, x: Array, dim: int) -> Array:
        """``log(cumsum(exp(x)))`` along an axis, without overflow."""
        return self._accumulate(self.logaddexp, x, dim, -math.inf)

    def nansum(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """The sum of the elements that are numbers."""
        numbers = self.where(x == x, x, 0.0) if is_floating(x) else x
        return self.sum(numbers, dim, keepdim)

    @in_float32
    def nanmean(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """The mean of the elements that are numbers; NaN where there are none."""
        counts = self.sum(self.cast(x == x, x), dim, keepdim)
        return self.nansum(x, dim, keepdim) / counts

    @in_float32
    def logsumexp(
        self, x: Array, dim: int | Sequence[int], keepdim: bool = False
    ) -> Array:
        """``log(sum(exp(x)))`` over some axes, without overflow."""
        dims = _axes(x.shape, dim)
        shape = _reduced(x.shape, dims, keepdim)
        if 0 in x.shape:
            return self.zeros(shape, like=x) - math.inf
        largest = self._largest(self.stop_gradient(x), dims)
        largest = self.where(self.abs(largest) < math.inf, largest, 0.0)
        total = self.log(self.sum(self.exp(x - largest), dims, keepdim))
        return total + self.reshape(largest, shape)

    # Norms and distances

    @in_float32
    def norm(
        self,
        x: Array,
        p: float | str | None = "fro",
        dim: Dims = None,
        keepdim: bool = False,
    ) -> Array:
        """The p-norm of the elements over some axes, or all; its derivative at 0 is 0.

        Args:
            x: Any array.
            p: The exponent, also 0 (how many are not 0), ``inf`` or ``-inf``; ``"fro"`` is 2.
            dim, keepdim: As in `sum`.
        """
        if isinstance(p, str) and p != "fro":
            raise SettingError(f"norm: p={p!r}; wanted a number or 'fro'")
        if p in (None, "fro", 2):
            return self._root(self.sum(x * x, dim, keepdim))
        size = self.abs(x)
        if p == math.inf:
            return self.amax(size, dim, keepdim)
        if p == -math.inf:
            return self.amin(size, dim, keepdim)
        if p == 0:
            return self.sum(self.cast(x != 0, x), dim, keepdim)
        exponent = float(p)
        if exponent < 0:
            is_zero = size == 0
            powers = self.where(is_zero, 1.0, size) ** exponent
            powers = self.where(is_zero, math.inf, powers)
            return self.sum(powers, dim, keepdim) ** (1.0 / exponent)
        return self._power(
            self.sum(self._power(size, exponent), dim, keepdim), 1.0 / exponent
        )

    def dist(self, x: Array, other: Array, p: float = 2) -> Array:
        """The p-norm of the difference of two arrays."""
        return self.norm(x - other, p)

    @in_float32
    def cosine_similarity(
        self, x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8
    ) -> Array:
        """The cosine of the angle between vectors along an axis; norms count as `eps` at least."""
        shape = np.broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
        x1 = self.broadcast_to(x1, shape)
        x2 = self.broadcast_to(x2, shape)
        norm1 = self._raised(self.norm(x1, 2, dim, keepdim=True), eps)
        norm2 = self._raised(self.norm(x2, 2, dim, keepdim=True), eps)
        return self.sum((x1 / norm1) * (x2 / norm2), dim)

    def _raised(self, x: Array, least: float) -> Array:
        """The elements, `least` at least, with the derivative that they had."""
        return x + self.stop_gradient(self.where(x < least, least - x, 0.0))

    def pairwise_distance(
        self,
        x1: Array,
        x2: Array,
        p: float = 2.0,
        eps: float = 1e-6,
        keepdim: bool = False,
    ) -> Array:
        """The p-norm of ``x1 - x2 + eps`` over the last axis."""
        return self.norm(x1 - x2 + eps, p, -1, keepdim)

    def cdist(self, x1: Array, x2: Array, p: float = 2.0) -> Array:
        """The distances of all pairs of rows.

        Shapes:
            ``(..., n, width)`` and ``(..., m, width)`` give ``(..., n, m)``.
        """
        return self.norm(x1[..., None, :] - x2[..., None, :, :], p, -1)

    def pdist(self, x: Array, p: float = 2.0) -> Array:
        """The distances of all pairs of different rows: those above the diagonal of `cdist`."""
        first, second = np.triu_indices(x.shape[0], 1)
        rows = self.select(x, self.constant(first, like=x), 0)
        others = self.select(x, self.constant(second, like=x), 0)
        return self.norm(rows - others, p, 1)

    # Truth values

    def any(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """Whether an element is true, or not zero."""
        return self.count_nonzero(x, dim, keepdim) > 0

    def all(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """Whether all elements are true, or not zero."""
        return self.count_nonzero(~self.cast(x, "bool"), dim, keepdim) == 0

    def count_nonzero(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """How many elements are true, or not zero."""
        return self.sum(self.cast(self.cast(x, "bool"), "int64"), dim, keepdim)

    def _upside_down(self, x: Array) -> Array:
        """The elements in the opposite order; of the result it gives `x` again."""
        return -x if is_floating(x) else ~x  # as -0 is the smallest of uint8, too

    def _widened(self, x: Array) -> Array:
        """Whole numbers as int64, which holds the products and sums of shorter types."""
        return x if is_floating(x) else self.cast(x, "int64")

    def _accumulate(
        self,
        combine: Callable[[Array, Array], Array],
        x: Array,
        dim: int,
        neutral: float,
    ) -> Array:
        """Combine the elements up to each one along an axis, in log2 of its length steps.

        Args:
            combine: An associative function of the earlier and the later elements.
            x: Any array.
            dim: The axis.
            neutral: The number that, combined with any other, gives the other.
        """
        shift = 1
        while shift < x.shape[dim]:
            x = combine(self._shifted(x, dim, shift, neutral), x)
            shift *= 2
        return x

    def _shifted(self, x: Array, dim: int, shift: int, value: float) -> Array:
        """The elements moved towards the end of an axis, with a constant before them."""
        pads = [(0, 0)] * x.ndim
        shift = min(shift, x.shape[dim])
        pads[dim] = (shift, -shift)
        return self.pad_constant(x, tuple(pads), value)


def _axes(shape: Sequence[int], dim: Dims) -> Shape:
    """Return the axes without negative numbers; all for None or an empty sequence."""
    if isinstance(dim, int | np.integer):
        return (axis_of(dim, len(shape)),)
    return tuple(axis_of(d, len(shape)) for d in dim or range(len(shape)))


def _reduced(shape: Sequence[int], dim: Dims, keepdim: bool) -> Shape:
    """Return the shape after a reduction."""
    dims = _axes(shape, dim)
    sizes = []
    for axis, size in enumerate(shape):
        if axis not in dims:
            sizes.append(size)
        elif keepdim:
            sizes.append(1)
    return tuple(sizes)
