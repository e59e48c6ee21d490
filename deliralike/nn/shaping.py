"""Shapes, padding and gathering, written on the primitives."""

import math
from collections.abc import Sequence

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks, geometry
from deliralike.nn.primitives import Array, Primitives


class Shaping(Primitives):
    """Functions that move elements."""

    def flatten(self, x: Array, start_dim: int = 1, end_dim: int = -1) -> Array:
        """Merge the axes from `start_dim` to `end_dim` (inclusive) into one, in NCHW order."""
        start = start_dim % len(x.shape)
        end = end_dim % len(x.shape) + 1
        merged = math.prod(x.shape[start:end])
        return self.reshape(x, (*x.shape[:start], merged, *x.shape[end:]))

    def expand_dims(self, x: Array, dim: int) -> Array:
        """Insert an axis of length one at `dim` of the result."""
        position = dim % (len(x.shape) + 1)
        return self.reshape(x, (*x.shape[:position], 1, *x.shape[position:]))

    def squeeze(self, x: Array, dim: int) -> Array:
        """Drop an axis of length one."""
        position = dim % len(x.shape)
        if x.shape[position] != 1:
            raise ShapeError(
                f"squeeze: axis {dim} of shape {tuple(x.shape)} has length {x.shape[position]}, "
                "wanted 1"
            )
        return self.reshape(x, (*x.shape[:position], *x.shape[position + 1 :]))

    def transpose(self, x: Array, dim0: int, dim1: int) -> Array:
        """Swap two axes."""
        dims = list(range(len(x.shape)))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.permute(x, dims)

    def stack(self, arrays: Sequence[Array], dim: int = 0) -> Array:
        """Join along a new axis."""
        position = dim % (len(arrays[0].shape) + 1)
        expanded = [self.expand_dims(x, dim) for x in arrays]
        return self.concatenate(expanded, dim=position)

    def split(self, x: Array, sizes: int | Sequence[int], dim: int = 0) -> list[Array]:
        """Split along an axis into pieces of one size, or of the sizes given.

        Of pieces of one size the last may be smaller.
        """
        length = x.shape[dim]
        if isinstance(sizes, int):
            checks.positive(sizes, "sizes", "split")
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        if sum(sizes) != length:
            raise ShapeError(
                f"split: sizes {list(sizes)} add up to {sum(sizes)}, but axis {dim} has {length} "
                "elements"
            )
        before = (slice(None),) * (dim % len(x.shape))
        pieces = []
        start = 0
        for size in sizes:
            pieces.append(x[(*before, slice(start, start + size))])
            start += size
        return pieces

    def chunk(self, x: Array, chunks: int, dim: int = 0) -> list[Array]:
        """Split along an axis into at most `chunks` pieces of equal size.

        The last piece may be smaller.
        """
        checks.positive(chunks, "chunks", "chunk")
        size = -(-x.shape[dim] // int(chunks))  # rounded up
        return self.split(x, size, dim)

    def roll(self, x: Array, shifts: int | Sequence[int], dims: int | Sequence[int]) -> Array:
        """Move elements along axes; those that leave at one end come back at the other."""
        if isinstance(shifts, int):
            shifts = (shifts,)
        if isinstance(dims, int):
            dims = (dims,)
        for shift, dim in zip(shifts, dims, strict=True):
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
        padding: Sequence[int | Sequence[int]],
        mode: str = "constant",
        value: float = 0.0,
    ) -> Array:
        """Pad (or, with negative numbers, crop) the last axes.

        Args:
            x: Any array.
            padding: ``(before, after)`` for each of the last ``len(padding)`` axes, in the order of
                the axes. (PyTorch lists them flat and from the last axis backwards.)
            mode: ``"constant"``, ``"reflect"`` (without the edge) or ``"replicate"``.
            value: The constant.

        Example:
            >>> import numpy as np
            >>> from deliralike import backends
            >>> torch = backends.get("torch")
            >>> torch.nn.pad(torch.array(np.ones((2, 3))), [(0, 1)]).shape
            torch.Size([2, 4])
        """
        pads = geometry.pad_pairs(tuple(x.shape), padding)
        if mode == "constant":
            return self.pad_constant(x, pads, value)
        if mode not in ("reflect", "replicate"):
            raise SettingError(f"pad: mode={mode!r}; wanted 'constant', 'reflect' or 'replicate'")
        index_of = geometry.reflect_index if mode == "reflect" else geometry.replicate_index
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
        """Channels to space: ``(batch, c*r*r, h, w)`` gives ``(batch, c, h*r, w*r)``.

        Source: arXiv 1609.05158.
        """
        r = upscale_factor
        batch, channels, height, width = x.shape
        checks.divides(channels, r * r, "pixel_shuffle: channels", "upscale_factor**2")
        channels_after = channels // (r * r)
        x = self.reshape(x, (batch, channels_after, r, r, height, width))
        x = self.permute(x, (0, 1, 4, 2, 5, 3))  # (batch, channels, height, r, width, r)
        return self.reshape(x, (batch, -1, height * r, width * r))
