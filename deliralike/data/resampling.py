"""A random part of a picture in another size, by torchvision's formulas, in NumPy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.transforms import on_axes, on_grid, spatial_shape
from deliralike.errors import BatchError, SettingError
from deliralike.nn import geometry

_ATTEMPTS = 10


@dataclass(frozen=True)
class RandomResizedCrop:
    """Cut a window of random size, proportions and place out, and resize it to `size`.

    The window's area is a part of the picture's drawn from `scale`, the logarithm of its width over
    its height is drawn from that of `ratio`; where ten of them do not fit, the largest window in
    the middle whose proportions are allowed is taken. Pictures are interpolated linearly, with a
    wider filter where they shrink (antialiasing); masks take the nearest value.

    Args:
        size: The height and width afterwards, or one number for both.
        scale: The bounds of the window's part of the area.
        ratio: The bounds of its width over its height.

    Shapes:
        ``(..., height, width)`` becomes ``(..., *size)``.

    Raises:
        BatchError: The picture has not two spatial axes.

    Source: torchvision's ``RandomResizedCrop``; Szegedy et al. 2015, arXiv 1409.4842.

    Example:
        >>> RandomResizedCrop(4)(np.zeros((3, 7, 5)), np.random.default_rng(0)).shape
        (3, 4, 4)
    """

    size: int | Sequence[int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        sizes = on_axes(self.size, axes=2)
        if len(sizes) != 2 or min(sizes) < 1:
            raise SettingError(f"size={self.size!r} must be one or two numbers above 0")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise SettingError(f"scale={self.scale!r} must be two rising numbers in (0, 1]")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise SettingError(f"ratio={self.ratio!r} must be two rising numbers above 0")

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the resized window."""
        shape = spatial_shape(sample)
        if len(shape) != 2:
            raise BatchError(f"a resized crop needs a picture of two axes, not of {shape}")
        window = self._window(shape, generator)
        sizes = on_axes(self.size, axes=2)

        def resized(array: np.ndarray) -> np.ndarray:
            part = array[(..., *window)]
            if array.dtype.kind == "f":
                return resized_linearly(part, sizes)
            return _nearest(part, sizes)

        return on_grid(sample, resized)

    def _window(
        self, shape: tuple[int, ...], generator: np.random.Generator
    ) -> tuple[slice, slice]:
        """Return the rows and columns of a random window."""
        height, width = shape
        low, high = map(math.log, self.ratio)
        for _ in range(_ATTEMPTS):
            area = height * width * generator.uniform(*self.scale)
            ratio = math.exp(generator.uniform(low, high))
            columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < columns <= width and 0 < rows <= height:
                top = int(generator.integers(height - rows + 1))
                left = int(generator.integers(width - columns + 1))
                return slice(top, top + rows), slice(left, left + columns)
        return self._middle(height, width)

    def _middle(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the largest window in the middle whose proportions are allowed."""
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        columns = min(width, max(round(height * ratio), 1))
        rows = min(height, max(round(width / ratio), 1))
        top, left = (height - rows) // 2, (width - columns) // 2
        return slice(top, top + rows), slice(left, left + columns)


def resized_linearly(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return an array whose last axes are resized by a triangular filter, as wide as it shrinks.

    It is PyTorch's ``interpolate(mode="bilinear", antialias=True, align_corners=False)``.

    Example:
        >>> resized_linearly(np.array([0.0, 1.0]), [4]).tolist()
        [0.0, 0.25, 0.75, 1.0]
    """
    for place, size in enumerate(sizes):
        axis = array.ndim - len(sizes) + place
        weights = geometry.antialiased_matrix(array.shape[axis], size, False, False, None)
        array = np.moveaxis(np.tensordot(weights, array, (1, axis)), 0, axis)
    return array


def _nearest(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    for place, size in enumerate(sizes):
        axis = array.ndim - len(sizes) + place
        centres = geometry.nearest_exact_index(array.shape[axis], size, None)
        array = np.take(array, centres, axis)
    return array
