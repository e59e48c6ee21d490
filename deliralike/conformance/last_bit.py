"""The last bits of numbers: errors in them, what of that is allowed, and numbers that have none."""

from __future__ import annotations

from typing import Any

import numpy as np

MARGIN = 32.0  # so many times what an error in the last bit does is still rounding
SLIGHT = 1e-4  # differences that are larger are never taken for magnified rounding


def shaken(value: Any, generator: np.random.Generator, unit: float) -> Any:
    """A floating array, each element one rounding (relative) away; zeros stay zeros, and all else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return value * (1.0 + unit * generator.choice([-1.0, 1.0], value.shape))


def fits(array: np.ndarray, bits: int) -> np.ndarray:
    """Which numbers have no more significant bits than that: float32 has 24."""
    scaled = np.frexp(array)[0] * 2.0**bits
    return scaled == np.round(scaled)
