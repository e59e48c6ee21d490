"""Shapes, padding and taking, written on the primitives."""

import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np

from deliralike.errors import IndexRangeError, SettingError, ShapeError
from deliralike.nn import checks, geometry
from deliralike.nn.primitives import Array, Primitives, at, axis_of, other_name
from deliralike.nn.start import Shape


class Shaping(Primitives):
    """Functions that move elements."""

    def flatten(self, x: Array, start_dim: int = 1, end_dim: int = -1) -> Array:
        """Merge the axes from `start_dim` to `end_dim` (inclusive) into one, in NCHW order."""
        shape = x.shape
        start = axis_of(start_dim, len(shape))
        end = axis_of(end_dim, len(shape)) + 1
        if start >= end:
            raise SettingError(
                f"flatten: start_dim={start_dim} lies behind end_dim={end_dim}"
            )
        merged = math.prod(shape[start:end])
        return self.reshape(x, (*shape[:start], merged, *shape[end:]))

    def expand_dims(self, x: Array, dim: int) -> Array:
        """Insert an axis of length one at `dim` of the result."""
        shape = list(x.shape)
        shape.insert(axis_of(dim, len(shape) + 1), 1)
        return self.reshape(x, shape)

    @other_name
    def unsqueeze(self, x: Array, dim: int) -> Array:
        """Insert an axis of length one at `dim` of the result."""
        return self.expand_dims(x, dim)

    def squeeze(self, x: Array, dim: int | None = None) -> Array:
        """Drop an axis of length one, or all such axes."""
        if dim is None:
            return self.reshape(x, tuple(size for size in x.shape if size != 1))
        length = x.shape[axis_of(dim, x.ndim)]
        if length != 1:
            raise ShapeError(
                f"squeeze: axis {dim} of shape {tuple(x.shape)} has length {length}, wanted 1"
            )
        return self.reshape(x, resized(x.shape, dim))

    def transpose(self, x: Array, dim0: int, dim1: int) -> Array:
        """Swap two axes."""
        dims = list(range(x.ndim))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.permute(x, dims)

    def stack(self, arrays: Sequence[Array], dim: int = 0) -> Array:
        """Join along a new axis."""
        position = axis_of(dim, len(arrays[0].shape) + 1)
        expanded = [self.expand_dims(x, dim) for x in arrays]
        return self.concatenate(expanded, dim=position)

    @other_name
    def cat(self, tensors: Sequence[Array], dim: int = 0) -> Array:
        """Join along an axis."""
        return self.concatenate(tensors, dim)

    @other_name
    def hstack(self, tensors: Sequence[Array]) -> Array:
        """Join along the second axis, arrays with one axis along that one."""
        arrays = [x if x.shape else self.reshape(x, (1,)) for x in tensors]
        return self.concatenate(arrays, 0 if len(arrays[0].shape) == 1 else 1)

    @other_name
    def vstack(self, tensors: Sequence[Array]) -> Array:
        """Join along the first axis; an array with one axis is a row."""
        return self.concatenate([self._row(x) for x in tensors], 0)

    @other_name
    def movedim(
        self, x: Array, source: int | Sequence[int], destination: int | Sequence[int]
    ) -> Array:
        """Move axes to other places; the others keep their order."""
        rank = x.ndim
        sources = [axis_of(d, rank) for d in _several(source)]
        targets = [axis_of(d, rank) for d in _several(destination)]
        order = [d for d in range(rank) if d not in sources]
        for target, moved in sorted(zip(targets, sources, strict=True)):
            order.insert(target, moved)
        return self.permute(x, order)

    @other_name
    def swapaxes(self, x: Array, axis0: int, axis1: int) -> Array:
        """Swap two axes."""
        return self.transpose(x, axis0, axis1)

    @other_name
    def t(self, x: Array) -> Array:
        """Swap the two axes of a matrix."""
        if x.ndim > 2:
            raise checks.shape_error("t", "a matrix", x)
        return self.transpose(x, 0, 1) if x.ndim == 2 else x

    @other_name
    def ravel(self, x: Array) -> Array:
        """All elements in row-major order, along one axis."""
        return self.reshape(x, (-1,))

    @other_name
    def unflatten(self, x: Array, dim: int, sizes: Sequence[int]) -> Array:
        """Spread an axis over several; one of the sizes may be -1."""
        sizes = list(sizes)
        length = x.shape[axis_of(dim, x.ndim)]
        if -1 in sizes:
            known = -math.prod(sizes)
            sizes[sizes.index(-1)] = length // known
        if math.prod(sizes) != length or min(sizes) < 0:
            raise ShapeError(
                f"unflatten: axis {dim} of shape {tuple(x.shape)} does not have {sizes} elements"
            )
        return self.reshape(x, resized(x.shape, dim, *sizes))

    def tile(self, x: Array, dims: Sequence[int]) -> Array:
        """Repeat the whole array along axes; new axes come first."""
        new = len(dims) - x.ndim
        if new > 0:
            x = self.reshape(x, (*[1] * new, *x.shape))
        for dim, count in enumerate(dims, max(0, -new)):
            if count != 1:
                if count:
                    x = self.concatenate([x] * count, dim)
                else:
                    x = at(x, dim, slice(0))
        return x

    def repeat_interleave(
        self, x: Array, repeats: int, dim: int | None = None
    ) -> Array:
        """Repeat each element along an axis, or of the array as one axis.

        `repeats` is a number: with one for each element the shape would depend on values.
        """
        if dim is None:
            x = self.reshape(x, (-1,))
            dim = 0
        index = np.repeat(np.arange(x.shape[dim]), repeats)
        return self.select(x, self.constant(index, like=x), dim)

    def broadcast_tensors(self, *tensors: Array) -> list[Array]:
        """Repeat arrays along axes of length one until all have the same shape."""
        shape = np.broadcast_shapes(*(tuple(x.shape) for x in tensors))
        return [self.broadcast_to(x, shape) for x in tensors]

    def meshgrid(self, *tensors: Array, indexing: str = "ij") -> list[Array]:
        """Grids of coordinates, one for each array with one axis.

        The order of the axes is that of the arrays (``"ij"``), or the first two are swapped
        (``"xy"``).
        """
        checks.one_of(indexing, ("ij", "xy"), "meshgrid: indexing")
        tensors = tuple(x if x.shape else self.reshape(x, (1,)) for x in tensors)
        shape = tuple(x.shape[0] for x in tensors)
        axes = len(shape)
        grids = []
        for axis, x in enumerate(tensors):
            grid = self.broadcast_to(self._along(x, axis, axes), shape)
            if indexing == "xy" and axes > 1:
                grid = self.transpose(grid, 0, 1)
            grids.append(grid)
        return grids

    def flip(self, x: Array, dims: int | Sequence[int]) -> Array:
        """The elements along one or several axes in reverse order."""
        axes = [axis_of(dim, x.ndim) for dim in _several(dims)]
        if len(set(axes)) < len(axes):
            raise SettingError(f"flip: dims={dims!r} has an axis twice")
        for axis in axes:
            x = self.flip_along(x, axis)
        return x

    @other_name
    def fliplr(self, x: Array) -> Array:
        """`flip` of the second axis."""
        return self.flip(x, 1)

    @other_name
    def flipud(self, x: Array) -> Array:
        """`flip` of the first axis."""
        return self.flip(x, 0)

    def rot90(self, x: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
        """Turn the plane of two axes by `k` times 90 degrees, from the first towards the second."""
        first, second = (axis_of(dim, x.ndim) for dim in dims)
        if first == second:
            raise SettingError(f"rot90: dims={dims!r} has an axis twice")
        for _ in range(k % 4):
            x = self.flip_along(self.transpose(x, first, second), first)
        return x

    @other_name
    def unbind(self, x: Array, dim: int = 0) -> list[Array]:
        """The parts of an array along an axis, without that axis."""
        return [at(x, dim, index) for index in range(x.shape[dim])]

    @other_name
    def narrow(self, x: Array, dim: int, start: int, length: int) -> Array:
        """The elements from `start` to before ``start + length`` along an axis."""
        size = x.shape[axis_of(dim, x.ndim)]
        first = start + size if start < 0 else start
        if first < 0 or length < 0 or first + length > size:
            raise IndexRangeError(
                f"narrow: {length} elements from {start} on are not within axis {dim} of shape "
                f"{tuple(x.shape)}"
            )
        return at(x, dim, slice(first, first + length))

    def tensor_split(
        self, x: Array, indices_or_sections: int | Sequence[int], dim: int = 0
    ) -> list[Array]:
        """Split along an axis into so many parts, or in front of the given positions."""
        length = x.shape[dim]
        if isinstance(indices_or_sections, int):
            parts = indices_or_sections
            size, more = divmod(length, parts)
            sizes = [size + (part < more) for part in range(parts)]
            return self.split(x, sizes, dim)
        bounds = [0, *indices_or_sections, length]
        return [at(x, dim, slice(*pair)) for pair in itertools.pairwise(bounds)]

    def column_stack(self, arrays: Sequence[Array]) -> Array:
        """Join along the second axis; vectors are columns."""
        columns = [self.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in arrays]
        return self.concatenate(columns, 1)

    def dstack(self, arrays: Sequence[Array]) -> Array:
        """Join along the third axis; vectors are rows, and matrices get an axis of length one."""
        deep = []
        for x in arrays:
            x = self._row(x)
            if x.ndim == 2:
                x = self.expand_dims(x, 2)
            deep.append(x)
        return self.concatenate(deep, 2)

    def diff(self, x: Array, n: int = 1, dim: int = -1) -> Array:
        """The differences of neighbours along an axis, `n` times."""
        for _ in range(n):
            after = at(x, dim, slice(1, None))
            before = at(x, dim, slice(after.shape[dim]))
            x = after - before
        return x

    def split(self, x: Array, sizes: int | Sequence[int], dim: int = 0) -> list[Array]:
        """Split along an axis into pieces of one size, or of the sizes given.

        Of pieces of one size the last may be smaller.
        """
        length = x.shape[dim]
        if not isinstance(sizes, int | Sequence):
            sizes = operator.index(sizes)  # a traced size is an array in TorchScript
        if isinstance(sizes, int):
            checks.positive(sizes, "sizes", "split")
            sizes = [
                min(sizes, length - start) for start in range(0, length, sizes)
            ] or [0]
        if sum(sizes) != length:
            raise ShapeError(
                f"split: sizes {list(sizes)} add up to {sum(sizes)}, but axis {dim} has {length} "
                "elements"
            )
        pieces = []
        start = 0
        for size in sizes:
            pieces.append(at(x, dim, slice(start, start + size)))
            start += size
        return pieces

    def chunk(self, x: Array, chunks: int, dim: int = 0) -> list[Array]:
        """Split along an axis into at most `chunks` pieces of equal size.

        The last piece may be smaller.
        """
        checks.positive(chunks, "chunks", "chunk")
        size = -(-x.shape[dim] // int(chunks))  # rounded up
        return self.split(x, size or [0] * int(chunks), dim)

    def roll(
        self, x: Array, shifts: int | Sequence[int], dims: int | Sequence[int]
    ) -> Array:
        """Move elements along axes; those that leave at one end come back at the other."""
        for shift, dim in zip(_several(shifts), _several(dims), strict=True):
            length = x.shape[dim]
            if length == 0 or shift % length == 0:
                continue
            moved = shift % length
            front, back = self.split(x, [length - moved, moved], dim)
            x = self.concatenate([back, front], dim=dim)
        return x

    def pad(
        self,
        x: Array,
        pad: Sequence[int | Sequence[int]],
        mode: str = "constant",
        value: float | None = None,
    ) -> Array:
        """Pad (or, with negative numbers, crop) the last axes.

        Args:
            x: Any array.
            pad: Numbers before and after each axis, flat and from the last axis backwards:
                ``(left, right, top, bottom)``. Or pairs ``(before, after)`` for each of the last
                ``len(pad)`` axes, in the order of the axes.
            mode: ``"constant"``, ``"reflect"`` (without the edge), ``"replicate"`` or
                ``"circular"``.
            value: The constant, 0 when not given.

        Example:
            >>> import numpy as np
            >>> from deliralike import backends
            >>> torch = backends.get("torch")
            >>> x = torch.array(np.ones((2, 3)))
            >>> torch.nn.pad(x, (0, 1)).shape, torch.nn.pad(x, [(0, 1)]).shape
            (torch.Size([2, 4]), torch.Size([2, 4]))
        """
        pads = geometry.pad_pairs(tuple(x.shape), pad)
        for size, (before, after) in zip(x.shape, pads, strict=True):
            if size + min(before, 0) + min(after, 0) < 0:
                raise ShapeError(
                    f"pad: {(before, after)!r} crops more than the {size} elements of an axis"
                )
        if mode == "constant":
            return self.pad_constant(x, pads, 0.0 if value is None else value)
        checks.one_of(mode, ("constant", *geometry.PADDING_INDEX), "pad: mode")
        index_of = geometry.PADDING_INDEX[mode]
        for dim, (before, after) in enumerate(pads):
            if before or after:
                index = index_of(x.shape[dim], before, after)
                x = self.select(x, self.constant(index, like=x), dim)
        return x

    def take(self, x: Array, index: Array, dim: int = 0) -> Array:
        """Take the elements at whole-number positions along an axis.

        Shapes:
            ``(..., n, ...)`` and ``index.shape`` give ``(..., *index.shape, ...)``.

        Raises:
            IndexRangeError: A position is negative or not below ``n`` (seen where values are at
                hand on the host; inside a compiled JAX program such an element is NaN).
        """
        checks.whole_numbers(index, "take: index")
        self.checked(index, checks.InRange(x.shape[dim], "take: index"))
        return self.select(x, index, dim)

    def take_along(self, x: Array, index: Array, dim: int) -> Array:
        """Take one element along an axis for each entry of `index` (PyTorch's ``gather``).

        `index` has as many axes as `x`.
        """
        checks.whole_numbers(index, "take_along: index")
        self.checked(index, checks.InRange(x.shape[dim], "take_along: index"))
        return self.select_along(x, index, dim)

    def pixel_shuffle(self, x: Array, upscale_factor: int) -> Array:
        """Channels to space: ``(..., c*r*r, h, w)`` gives ``(..., c, h*r, w*r)``.

        Source: arXiv 1609.05158.
        """
        r = upscale_factor
        *batch, channels, height, width = _picture_sizes("pixel_shuffle", x)
        checks.divides(channels, r * r, "pixel_shuffle: channels", "upscale_factor**2")
        after = channels // (r * r)
        x = self.reshape(x, (math.prod(batch), after, r, r, height, width))
        # (batch, channels, height, r, width, r)
        x = self.permute(x, (0, 1, 4, 2, 5, 3))
        return self.reshape(x, (*batch, after, height * r, width * r))

    def pixel_unshuffle(self, x: Array, downscale_factor: int) -> Array:
        """Space to channels, undoing `pixel_shuffle`.

        ``(..., c, h*r, w*r)`` gives ``(..., c*r*r, h, w)``.
        """
        r = downscale_factor
        *batch, channels, height, width = _picture_sizes("pixel_unshuffle", x)
        checks.divides(height, r, "pixel_unshuffle: height", "downscale_factor")
        checks.divides(width, r, "pixel_unshuffle: width", "downscale_factor")
        rows, columns = height // r, width // r
        x = self.reshape(x, (math.prod(batch), channels, rows, r, columns, r))
        # (batch, channels, r, r, height, width)
        x = self.permute(x, (0, 1, 3, 5, 2, 4))
        return self.reshape(x, (*batch, channels * r * r, rows, columns))

    def channel_shuffle(self, x: Array, groups: int) -> Array:
        """Take channels from each group in turn. Source: arXiv 1707.01083."""
        batch, channels, *size = x.shape
        checks.divides(channels, groups, "channel_shuffle: channels", "groups")
        x = self.reshape(x, (batch, groups, channels // groups, *size))
        return self.reshape(self.transpose(x, 1, 2), (batch, channels, *size))

    def _row(self, x: Array) -> Array:
        """Give an array with one axis another one in front."""
        if x.ndim > 1:
            return x
        return self.reshape(x, (1, -1))

    def _along(self, x: Array, dim: int, axes: int) -> Array:
        """Lay the elements of an array along one of several axes; the others have length one."""
        shape = [1] * axes
        shape[dim] = x.shape[0]
        return self.reshape(x, shape)


def resized(shape: Sequence[int], dim: int, *sizes: int) -> Shape:
    """Return a shape with other sizes in the place of an axis."""
    axis = axis_of(dim, len(shape))
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _picture_sizes(name: str, x: Array) -> Sequence[int]:
    """Return the shape of pictures ``(..., channels, height, width)``."""
    if x.ndim < 3:
        raise checks.shape_error(name, "(..., channels, height, width)", x)
    return x.shape


def _several(dims: int | Sequence[int]) -> Sequence[int]:
    return (dims,) if isinstance(dims, int | np.integer) else dims
