"""Attention within windows of images and volumes, which may be shifted against their borders."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_FORBIDDEN = 100.0  # what is taken from the scores of tokens that are neighbours only after rolling


def within_windows(
    nn: Any,
    x: Any,
    window: Sequence[int],
    shift: Sequence[int],
    attend: Callable[[Any, Any], Any],
    stride: int = 1,
) -> Any:
    """Attend within windows; those that are not full end in zeros.

    Args:
        nn: The vocabulary.
        x: ``(batch, *size, channels)``.
        window: The size of the windows.
        shift: By how much they are shifted along each axis.
        attend: A function of the windows ``(batch, windows, tokens, channels)``, which gives the
            same shape, and of a mask that is added to the scores, ``(windows, 1, tokens, tokens)``;
            None without a shift.
        stride: How many times smaller `attend` makes each side of a window, not shifted then; the
            channels may be others.

    Returns:
        ``(batch, *size / stride, channels)``, rounded down.
    """
    batch, *size, _ = x.shape
    axes = tuple(range(1, len(size) + 1))
    whole = [-(-n // side) * side for n, side in zip(size, window, strict=True)]
    if whole != size:
        extra = [(0, full - n) for full, n in zip(whole, size, strict=True)]
        x = nn.pad(x, [*extra, (0, 0)])
    mask = None
    if any(shift):
        x = nn.roll(x, [-step for step in shift], axes)
        mask = _mask(nn, x, whole, window, shift)
    y = attend(cut_windows(nn, x, window), mask)
    if stride != 1:
        window = [side // stride for side in window]
        whole = [length // stride for length in whole]
        size = [length // stride for length in size]
    y = _joined(nn, y, (batch, *whole, y.shape[-1]), window)
    if any(shift):
        y = nn.roll(y, list(shift), axes)
    if whole != size:
        y = y[(slice(None), *(slice(0, n) for n in size))]
    return y


def relative_positions(window: Sequence[int]) -> np.ndarray:
    """Return the row of a table of biases for each pair of tokens in a window."""
    places = np.indices(tuple(window)).reshape(len(window), -1)
    offsets = places[:, :, None] - places[:, None, :]
    rows = np.zeros(offsets.shape[1:], np.int64)
    for side, offset in zip(window, offsets, strict=True):
        rows = rows * (2 * side - 1) + offset + side - 1
    return rows


def cut_windows(nn: Any, x: Any, window: Sequence[int]) -> Any:
    """Cut ``(batch, *size, channels)`` into windows: ``(batch, windows, tokens, channels)``."""
    batch, *size, channels = x.shape
    n = len(size)
    split = [batch]
    for length, side in zip(size, window, strict=True):
        split += [length // side, side]
    x = nn.reshape(x, (*split, channels))
    grid = range(1, 2 * n, 2)
    within = range(2, 2 * n + 1, 2)
    x = nn.permute(x, (0, *grid, *within, 2 * n + 1))
    tokens = math.prod(window)
    return nn.reshape(x, (batch, math.prod(size) // tokens, tokens, channels))


def _joined(nn: Any, x: Any, shape: Sequence[int], window: Sequence[int]) -> Any:
    """Put together what `_cut` cut."""
    batch, *size, channels = shape
    n = len(size)
    grid = [length // side for length, side in zip(size, window, strict=True)]
    x = nn.reshape(x, (batch, *grid, *window, channels))
    axes = [0]
    for i in range(n):
        axes += [1 + i, 1 + n + i]
    x = nn.permute(x, (*axes, 2 * n + 1))
    return nn.reshape(x, tuple(shape))


def _mask(
    nn: Any, x: Any, size: Sequence[int], window: Sequence[int], shift: Sequence[int]
) -> Any:
    """Return what is added to the scores of tokens which are neighbours only after rolling.

    It is ``(windows, 1, tokens, tokens)``.
    """
    n = len(size)
    regions = None
    for axis, (length, side, step) in enumerate(zip(size, window, shift, strict=True)):
        numbers = np.zeros(length)
        if step:
            numbers[length - side :] = 1.0
            numbers[length - step :] = 2.0
        shape = [1] * (n + 2)
        shape[1 + axis] = length
        along = nn.reshape(nn.constant(numbers * 3.0**axis, like=x), tuple(shape))
        regions = along if regions is None else regions + along
    regions = nn.broadcast_to(regions, (1, *size, 1))
    regions = cut_windows(nn, regions, window)[0]  # (windows, tokens, 1)
    apart = nn.clamp(nn.abs(regions - nn.permute(regions, (0, 2, 1))), 0.0, 1.0)
    return nn.expand_dims(apart, 1) * -_FORBIDDEN
