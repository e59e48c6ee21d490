"""Sampling at positions of a grid, as in spatial transformers, written on the primitives."""

import itertools
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from deliralike.nn import checks
from deliralike.nn.primitives import Array
from deliralike.nn.selecting import Selecting


class Sampling(Selecting):
    """Grids of positions, and the values there. Source: Jaderberg et al. 2015, arXiv 1506.02025."""

    def affine_grid(
        self, theta: Array, size: Sequence[int], align_corners: bool | None = None
    ) -> Array:
        """Positions of the elements of a picture after an affine map.

        Args:
            theta: ``(batch, n, n + 1)`` for n spatial axes; rows in the order x, y, z.
            size: ``(batch, channels, *sizes)`` of the picture.
            align_corners: Whether -1 and 1 are the centres of the outermost elements, not their
                edges.

        Shapes:
            ``(batch, *sizes, n)``, for `grid_sample`.
        """
        axes = []
        for length in size[2:]:
            places = np.linspace(-1.0, 1.0, length) if length > 1 else np.zeros(1)
            axes.append(places if align_corners else places * (length - 1) / length)
        coordinates = np.meshgrid(*axes, indexing="ij")[::-1]
        flat = np.stack([*coordinates, np.ones_like(coordinates[0])], -1).reshape(
            -1, len(axes) + 1
        )
        grid = self.matmul(self.constant(flat, like=theta), self.transpose(theta, 1, 2))
        return self.reshape(grid, (size[0], *size[2:], len(axes)))

    def grid_sample(
        self,
        x: Array,
        grid: Array,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool | None = None,
    ) -> Array:
        """The values of pictures at positions of a grid.

        Args:
            x: ``(batch, channels, *sizes)`` with 2 or 3 spatial axes.
            grid: ``(batch, *new_sizes, n)``: positions from -1 to 1, in the order x, y, z.
            mode: ``"bilinear"`` (trilinear with 3 axes) or ``"nearest"``.
            padding_mode: What is beyond the edge: ``"zeros"``, ``"border"`` (the last element) or
                ``"reflection"``.
            align_corners: As in `affine_grid`.

        Shapes:
            ``(batch, channels, *new_sizes)``
        """
        checks.one_of(mode, ("bilinear", "nearest"), "grid_sample: mode")
        paddings = ("zeros", "border", "reflection")
        checks.one_of(padding_mode, paddings, "grid_sample: padding_mode")
        sizes = x.shape[2:]
        places = []
        for axis, length in enumerate(sizes):
            place = grid[..., len(sizes) - 1 - axis]  # the last axis comes first
            place = _unnormalised(place, length, bool(align_corners))
            places.append(
                self._inside(place, length, padding_mode, bool(align_corners))
            )
        if mode == "nearest":
            nearest = [self.round(self.stop_gradient(place)) for place in places]
            return self._picked(x, nearest)
        low = [self.floor(self.stop_gradient(place)) for place in places]
        terms = []
        for corner in itertools.product((0.0, 1.0), repeat=len(sizes)):
            shares = []
            positions = []
            for place, below, step in zip(places, low, corner, strict=True):
                shares.append(place - below if step else below + 1.0 - place)
                positions.append(below + step)
            weight = self.expand_dims(reduce(operator.mul, shares), 1)
            terms.append(self._picked(x, positions) * weight)
        return reduce(operator.add, terms)

    def _inside(
        self, place: Array, length: int, padding_mode: str, align_corners: bool
    ) -> Array:
        """Positions moved to where there are elements, if the padding says so."""
        if padding_mode == "zeros":
            return place
        if padding_mode == "reflection":
            low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
            span = high - low
            if span == 0.0:
                place = place * 0.0
            else:
                distance = self.abs(place - low)
                turns = self.floor(distance * (1.0 / span))
                rest = distance - turns * span
                is_even = self.floor(turns * 0.5) * 2.0 == turns
                place = self.where(is_even, rest + low, high - rest)
        return self.where(
            place <= 0.0, 0.0, self.where(place >= length - 1.0, length - 1.0, place)
        )

    def _picked(self, x: Array, places: Sequence[Array]) -> Array:
        """The elements at whole-number positions, zero beyond the edge: (batch, channels, ...)."""
        sizes = x.shape[2:]
        inside = []
        index: Any = 0
        for place, length in zip(places, sizes, strict=True):
            is_inside = (place >= 0.0) & (place <= length - 1.0)
            inside.append(is_inside)
            whole = self.cast(self.where(is_inside, place, 0.0), "int64")
            index = index * length + whole
        valid = reduce(operator.and_, inside)
        new_sizes = tuple(index.shape[1:])
        flat = self.flatten(x, 2)
        columns = self.expand_dims(self.flatten(index), 1)
        columns = self.broadcast_to(columns, (*x.shape[:2], columns.shape[-1]))
        picked = self.reshape(
            self.select_along(flat, columns, 2), (*x.shape[:2], *new_sizes)
        )
        return self.where(self.expand_dims(valid, 1), picked, 0.0)


def _unnormalised(place: Array, length: int, align_corners: bool) -> Array:
    """Positions among elements from those between -1 and 1."""
    if align_corners:
        return (place + 1.0) * (0.5 * (length - 1))
    return ((place + 1.0) * length - 1.0) * 0.5
