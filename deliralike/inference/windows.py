"""The places and weights of windows over a picture, in plain numbers; nothing is computed here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError, suggestion
from deliralike.nn.geometry import for_each

MODES = ("constant", "gaussian")
LEAST_WEIGHT = 1e-3


def window_size(
    roi_size: int | Sequence[int | None], size: Sequence[int]
) -> tuple[int, ...]:
    """Return the window's size; None, 0 and less stand for the picture's own.

    Example:
        >>> window_size((32, None), (100, 60))
        (32, 60)
    """
    window = []
    for wanted, own in zip(
        per_axis("roi_size", roi_size, len(size)), size, strict=True
    ):
        is_given = wanted is not None and wanted > 0
        window.append(wanted if is_given else own)
    return tuple(window)


def places(
    size: Sequence[int], window: Sequence[int], overlap: float | Sequence[float]
) -> list[tuple[int, ...]]:
    """Return the first corner of each window that is needed to cover a picture.

    The last axis changes fastest. Windows at the far ends are moved back into the picture.

    Args:
        size: The picture's size, at least the window's.
        overlap: The fraction of a window that the next one covers again: one number, or one for
            each axis; from 0 up, below 1.

    Example:
        >>> places((7, 4), (4, 4), 0.5)
        [(0, 0), (2, 0), (3, 0)]
    """
    overlaps = per_axis("overlap", overlap, len(size))
    if not all(0 <= each < 1 for each in overlaps):
        raise SettingError(
            f"overlap is a fraction from 0 up and below 1, not {overlap!r}"
        )
    axes = []
    for length, part, shared in zip(size, window, overlaps, strict=True):
        interval = max(1, int(part * (1 - shared)))
        last = length - part
        axes.append([*range(0, last, interval), last])
    return list(itertools.product(*axes))


def weights(
    window: Sequence[int], mode: str, sigma_scale: float | Sequence[float] = 0.125
) -> np.ndarray:
    """Return how much each element of a window counts where windows overlap.

    ``"constant"`` is 1 everywhere. ``"gaussian"`` falls off from the centre, to no less than 0.001.
    As in MONAI the numbers are those of float32, so that outputs in float64 agree; the exponential
    of another library may differ in its last bit.

    Args:
        sigma_scale: The standard deviation, as a fraction of the window's size: one number, or one
            for each axis.

    Shapes:
        ``(*window)``, in float64.

    Example:
        >>> weights((3,), "gaussian", 0.5).round(3).tolist()
        [0.801, 1.0, 0.801]
    """
    if mode not in MODES:
        raise SettingError(f"mode {mode!r} is unknown. {suggestion(mode, MODES)}")
    if mode == "constant":
        return np.ones(tuple(window))
    scales = per_axis("sigma_scale", sigma_scale, len(window))
    if min(scales) <= 0:
        raise SettingError(f"sigma_scale is a fraction above 0, not {sigma_scale!r}")
    product = np.ones((), np.float32)
    for length, scale in zip(window, scales, strict=True):
        distances = np.arange(length, dtype=np.float32) - np.float32((length - 1) / 2)
        exponents = distances**2 / np.float32(-2 * (length * scale) ** 2)
        along_axis = np.exp(exponents.astype(np.float64)).astype(np.float32)
        product = product[..., np.newaxis] * along_axis
    least = max(float(product.min()), LEAST_WEIGHT)
    return np.maximum(product, np.float32(least)).astype(np.float64)


def per_axis(name: str, value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis, from one for all or a sequence.

    Raises:
        SettingError: There are more or fewer values than axes.
    """
    values = for_each(value, axes)
    if len(values) != axes:
        raise SettingError(
            f"{name}={value!r} has {len(values)} values, and the picture has {axes} axes"
        )
    return values
