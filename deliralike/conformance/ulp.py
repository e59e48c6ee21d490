"""The last bits of numbers: errors in them, what of that is allowed, and numbers that have none."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.conformance.findings import is_floating
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import each_once

EPS = float(np.finfo(np.float64).eps)
MARGIN = 32.0  # so many times what an error in the last bit does is still rounding
SLIGHT = 1e-4  # differences that are larger are never taken for magnified rounding


def shaken(value: Any, generator: np.random.Generator, unit: float) -> Any:
    """Return a floating array with each element one relative rounding away.

    Zeros stay zeros, and any other value stays as it is.
    """
    if not is_floating(value):
        return value
    return value * (1.0 + unit * generator.choice([-1.0, 1.0], value.shape))


def shake_parameters(network: AbstractNetwork, seed: int = 0) -> None:
    """Put an error into the last bit (of float64) of every element of the parameters."""
    generator = np.random.default_rng(seed)
    for slot in each_once(network.neutral_slots()).values():
        if slot.is_parameter:
            slot.write(shaken(slot.read(), generator, EPS))


def allowed(moved: float) -> float:
    """Return how far two right networks may differ.

    An error in the last bit moves one of them by `moved`.
    """
    return min(MARGIN * moved, SLIGHT)


def fits(array: np.ndarray, bits: int) -> np.ndarray:
    """Which numbers have no more significant bits than that: float32 has 24."""
    scaled = np.frexp(array)[0] * 2.0**bits
    return scaled == np.round(scaled)
