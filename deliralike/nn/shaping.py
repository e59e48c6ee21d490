"""Shapes, padding and gathering, written on the primitives."""

import math
from collections.abc import Sequence
from itertools import accumulate

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks, geometry
from deliralike.nn.primitives import Array, Primitives


class Shaping(Primitives):
    """Functions that move elements about."""

    def flatten(self, x: Array, start_dim: int = 1, end_dim: int = -1) -> Array:
        """Merge the axes from `start_dim` to `end_dim` (inclusive) into one, in NCHW order."""
        start, end = start_dim % len(x.shape), end_dim % len(x.shape)
        return self.reshape(
            x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
        )

    def expand_dims(self, x: Array, dim: int) -> Array:
        """A new axis of length one at `dim` of the result."""
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
        return self.concatenate(
            [self.expand_dims(x, dim) for x in arrays], dim=dim % (len(arrays[0].shape) + 1)
        )

    def split(self, x: Array, sizes: int | Sequence[int], dim: int = 0) -> list[Array]:
        """Pieces along an axis: of one size each (the last may be smaller), or of the sizes given."""
        length = x.shape[dim]
        if isinstance(sizes, int):
            checks.positive(sizes, "sizes", "split")
            sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
        if sum(sizes) != length:
            raise ShapeError(
                f"split: sizes {list(sizes)} add up to {sum(sizes)}, but axis {dim} has {length} "
                "elements"
            )
        ends = accumulate(sizes)
        before = (slice(None),) * (dim % len(x.shape))
        return [x[(*before, slice(end - size, end))] for end, size in zip(ends, sizes, strict=True)]

    def chunk(self, x: Array, chunks: int, dim: int = 0) -> list[Array]:
        """At most `chunks` pieces of equal size along an axis; the last may be smaller."""
        return self.split(x, -(-x.shape[dim] // checks.positive(chunks, "chunks", "chunk")), dim)

    def roll(self, x: Array, shifts: int | Sequence[int], dims: int | Sequence[int]) -> Array:
        """Move elements along axes; what leaves at one end comes back at the other."""
        shifts, dims = (
            (number,) if isinstance(number, int) else number for number in (shifts, dims)
        )
        for shift, dim in zip(shifts, dims, strict=True):
            length = x.shape[dim]
            if cut := -shift % length if length else 0:
                front, back = self.split(x, [cut, length - cut], dim)
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
                x = self.select(
                    x, self.constant(index_of(x.shape[dim], before, after), like=x), dim
                )
        return x

    def take(self, x: Array, index: Array, dim: int = 0) -> Array:
        """The elements at whole-number positions along an axis.

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
        """One element along an axis for each entry of `index`, which has as many axes as `x` (PyTorch's gather)."""
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
        x = self.reshape(x, (batch, channels // (r * r), r, r, height, width))
        return self.reshape(self.permute(x, (0, 1, 4, 2, 5, 3)), (batch, -1, height * r, width * r))
