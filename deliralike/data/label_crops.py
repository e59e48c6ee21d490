"""Crops whose centres are drawn from the labels: as much foreground as is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data import transforms
from deliralike.errors import BatchError, SettingError


@dataclass(frozen=True)
class CropByPosNegLabel:
    """Cut a window out around a voxel that is drawn from the foreground or from the background.

    The centre is a voxel of the foreground with the probability ``pos / (pos + neg)``, each with
    the same chance; where its window would leave the picture it is moved back into it. A sample
    with only one kind of voxels takes the centre from these. The rule is that of MONAI's
    ``RandCropByPosNegLabel``. For several windows of a sample in an epoch see `RepeatedSampler`.

    The labels are the sample's one array of whole numbers or truth values on the picture's grid;
    everything above or below 0 is foreground. All arrays on the grid are cut.

    Args:
        spatial_size: The window's size, or one number for all axes.
        pos: The weight of the foreground.
        neg: The weight of the background.
        image_threshold: The background is taken only where a channel of the picture is above it;
            everywhere when None.

    Shapes:
        ``(..., *size)`` becomes ``(..., *spatial_size)``.

    Raises:
        BatchError: The picture is smaller than the window, or the sample has no labels, or several.
        SettingError: A setting makes no sense.

    Example:
        >>> labels = np.zeros((9, 9), int)
        >>> labels[2, 6] = 1
        >>> sample = np.zeros((1, 9, 9)), labels
        >>> crop = CropByPosNegLabel(3, pos=1, neg=0)
        >>> crop(sample, np.random.default_rng(0))[1].tolist()
        [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    """

    spatial_size: int | Sequence[int]
    pos: float = 1.0
    neg: float = 1.0
    image_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.pos < 0 or self.neg < 0 or self.pos + self.neg == 0:
            raise SettingError(
                "pos and neg are weights from 0 up, one of them above, not "
                f"pos={self.pos!r} and neg={self.neg!r}"
            )
        if np.min(self.spatial_size) < 1:
            raise SettingError(
                f"spatial_size is a size above 0, not {self.spatial_size!r}"
            )

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the window."""
        shape = transforms.spatial_shape(sample)
        window = transforms.window_in(shape, self.spatial_size)
        is_foreground = (transforms.labels_of(sample) != 0).reshape(-1)
        is_positive = generator.random() < self.pos / (self.pos + self.neg)
        places = self._places(is_foreground, is_positive, sample)
        drawn = places[int(generator.integers(len(places)))]
        center = np.unravel_index(drawn, shape)
        cut: list[Any] = [...]
        for place, part, length in zip(center, window, shape, strict=True):
            begin = min(max(int(place) - part // 2, 0), length - part)
            cut.append(slice(begin, begin + part))
        return transforms.on_grid(sample, lambda array: array[tuple(cut)])

    def _places(
        self, is_foreground: np.ndarray, is_positive: bool, sample: Any
    ) -> np.ndarray:
        """Return the flat places of the wanted kind; of the other one where there is none."""
        is_background = ~is_foreground
        if self.image_threshold is not None:
            picture = transforms.picture_of(sample)
            is_background &= (picture > self.image_threshold).any(axis=0).reshape(-1)
        wanted, other = is_foreground, is_background
        if not is_positive:
            wanted, other = other, wanted
        chosen = wanted if wanted.any() else other
        if not chosen.any():
            raise BatchError(
                "there is no voxel to draw a centre from: no label is above 0, and no background "
                f"is above image_threshold={self.image_threshold!r}"
            )
        return np.flatnonzero(chosen)
