"""Maps of signed distances to the boundaries of regions: the targets of `boundary_loss`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deliralike.data.packages import needed
from deliralike.errors import BatchError


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
