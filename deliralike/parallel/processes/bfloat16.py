"""bfloat16, which NumPy and MPI lack: the upper half of float32, as whole numbers of 16 bits."""

from __future__ import annotations

import numpy as np

_NAN = np.uint16(0x7FC0)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return the bits of float32 numbers rounded to bfloat16; NaN stays NaN.

    Numbers are rounded to the nearest, and halfway between two to the even one.

    Example:
        >>> from_bfloat16(to_bfloat16(np.array([1.0, 1.0 / 3.0, np.nan], np.float32))).tolist()
        [1.0, 0.333984375, nan]
    """
    bits = values.view(np.uint32)
    last_kept_bit = (bits >> 16) & 1
    rounded = (bits + (last_kept_bit + 0x7FFF)) >> 16
    return np.where(np.isnan(values), _NAN, rounded.astype(np.uint16))


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 numbers of the bits of bfloat16 ones."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
