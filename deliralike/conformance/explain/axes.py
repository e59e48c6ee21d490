"""Axes along which numbers are searched for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Axis:
    """Where a number is searched for: from a number to a place on the axis, and back."""

    place: Callable[[float], float] = float
    number: Callable[[float], float] = float


LINE = Axis()
LOG = Axis(
    lambda value: float(np.log(max(value, 1e-30))),
    lambda place: float(np.exp(np.clip(place, -70.0, 70.0))),
)
# From 0 on, over many decades.
POSITIVE = Axis(lambda value: float(value**0.25), lambda place: float(place**4))
# Between 0 and 1, and near to 1 most of the time.
WEIGHT = Axis(
    lambda value: float(np.log1p(-min(value, 1 - 1e-12))),
    lambda place: 0.0 - float(np.expm1(np.clip(place, -27.0, 0.0))),
)
