"""Confidence intervals by bootstrap: statistics of many draws with replacement, keyed by a seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deliralike.errors import BatchError, SettingError
from deliralike.random import philox


def intervals(
    statistic: Callable[[np.ndarray], np.ndarray],
    count: int,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[tuple[float, float]]:
    """Return the interval of each figure of a statistic.

    The ends are percentiles of the figures of the draws; NaN where the figure itself or all draws
    are. Draws are made of raw words of Philox, which NumPy never changes.

    Args:
        statistic: A function of row numbers that returns a fixed number of figures.
        count: The number of rows.
    """
    if not 0 < level < 1:
        raise SettingError(f"level is a confidence between 0 and 1, not {level!r}")
    if resamples < 1:
        raise SettingError(f"resamples must be at least 1, not {resamples!r}")
    if count < 2:
        raise BatchError(
            f"an interval by bootstrap needs at least two samples, and there is {count}"
        )
    values = statistic(np.arange(count))
    bits = philox(seed, "training/bootstrap", 0)
    draws = []
    for _ in range(resamples):
        draws.append(statistic(bits.random_raw(count) % np.uint64(count)))
    tails = (1 - level) / 2, (1 + level) / 2
    ends = []
    for value, figures in zip(values, np.stack(draws, axis=1), strict=True):
        ends.append(_ends(value, figures[~np.isnan(figures)], tails))
    return ends


def _ends(
    value: float, figures: np.ndarray, tails: tuple[float, float]
) -> tuple[float, float]:
    if np.isnan(value) or not len(figures):
        return float("nan"), float("nan")
    with np.errstate(invalid="ignore"):  # between two infinite figures
        low, high = np.quantile(figures, tails)
    return float(low), float(high)
