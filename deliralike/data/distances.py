"""Maps of signed distances to the boundaries of regions: the targets of `boundary_loss`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.data.packages import needed
from deliralike.data.transforms import labels_of
from deliralike.errors import BatchError, SettingError


def signed_distances(
    labels: np.ndarray, classes: int, spacing: Sequence[float] | None = None
) -> np.ndarray:
    """Return the signed distance of each pixel to the boundary of each class's region.

    Outside the region the value is the distance to the nearest pixel of the region; inside, it is
    one less than the distance to the nearest pixel outside, negated, so that the region's outermost
    pixels have 0. A class without a boundary (absent, or everywhere) has zeros. Source: Kervadec et
    al. 2019, arXiv 1812.07032, and the authors' code. The function needs SciPy.

    Args:
        labels: Whole numbers, one sample.
        classes: The number of classes.
        spacing: The size of a pixel along each axis; 1 when not given. (The one that is taken off
            inside stays 1, as in the authors' code.)

    Shapes:
        ``(*size)`` gives ``(classes, *size)`` in float32.

    Raises:
        BatchError: The labels are no whole numbers.
        DataUnavailable: SciPy is not installed.

    Example:
        >>> signed_distances(np.array([0, 1, 1, 1, 0, 0]), 2)[1].tolist()
        [1.0, 0.0, -1.0, 0.0, 1.0, 2.0]
    """
    if labels.dtype.kind not in "iub":
        raise BatchError(
            f"signed_distances: the labels are of {labels.dtype}, wanted whole numbers"
        )
    images = needed(
        "scipy.ndimage", package="scipy", extra="data", purpose="a map of distances"
    )
    distance = images.distance_transform_edt
    maps = np.zeros((classes, *labels.shape), np.float32)
    for number in range(classes):
        inside = labels == number
        if inside.any() and not inside.all():
            outward = distance(~inside, sampling=spacing)
            inward = distance(inside, sampling=spacing)
            maps[number] = np.where(inside, 1.0 - inward, outward)
    return maps


@dataclass(frozen=True)
class SignedDistances:
    """A transform that gives a sample its maps of `signed_distances`: one array more.

    The labels are the sample's array of whole numbers with the picture's spatial shape.

    Args:
        classes: The number of classes.
        spacing: The size of a pixel along each axis; 1 when not given.
        name: The key of the maps in samples that are dicts; in tuples they come last.

    Raises:
        BatchError: The sample has no such array, or several.

    Example:
        >>> sample = np.zeros((1, 2, 3)), np.array([[0, 1, 1], [0, 1, 1]])
        >>> SignedDistances(2)(sample)[2].shape
        (2, 2, 3)
    """

    classes: int
    spacing: Sequence[float] | None = None
    name: str = "distances"

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise SettingError(f"classes must be at least 1, not {self.classes!r}")

    def __call__(self, sample: Any) -> Any:
        """Return the sample with its maps."""
        maps = signed_distances(labels_of(sample), self.classes, self.spacing)
        if isinstance(sample, Mapping):
            return {**sample, self.name: maps}
        return (*sample, maps)
