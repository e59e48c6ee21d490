"""bfloat16, which NumPy and MPI lack: the upper half of float32, as whole numbers of 16 bits."""

from __future__ import annotations

import numpy as np


def shortened(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest bfloat16, to even ones between two; NaN stays NaN.

    Example:
        >>> widened(shortened(np.array([1.0, 1.0 / 3.0, np.nan], np.float32))).tolist()
        [1.0, 0.333984375, nan]
    """
    bits = values.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def widened(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers that bfloat16 ones are."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
