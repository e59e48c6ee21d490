"""Confidence intervals by bootstrap: statistics of many draws with replacement, keyed by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from deliralike.errors import BatchError, SettingError
from deliralike.nn import start

Statistic = Callable[[np.ndarray], np.ndarray]
Units = Sequence[np.ndarray] | np.ndarray


def units(samples: int, groups: Sequence[Any] | np.ndarray | None) -> Units:
    """Return the units that are drawn: the rows of each sample, or of each group.

    Groups have the order of their first samples. Units of one row each are an array
    ``(samples, 1)``, which is faster to draw from.

    Example:
        >>> [rows.tolist() for rows in units(4, ["b", "a", "b", "b"])]
        [[0, 2, 3], [1]]
    """
    if groups is None:
        return np.arange(samples)[:, np.newaxis]
    if len(groups) != samples:
        raise BatchError(
            f"groups names a group for each sample: it has {len(groups)}, and {samples} samples "
            "were seen"
        )
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(np.asarray(groups).tolist()):
        members.setdefault(group, []).append(row)
    return [np.array(rows) for rows in members.values()]


def intervals(
    statistic: Statistic,
    units: Units,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> list[tuple[float, float]]:
    """Return the interval of each figure of a statistic.

    The ends are percentiles of the figures of the draws; NaN where the figure itself or all draws
    are.

    Args:
        statistic: A function of row numbers that returns a fixed number of figures.
        units: The rows that are drawn together.
    """
    count = len(units)
    if not 0 < level < 1:
        raise SettingError(f"level is a confidence between 0 and 1, not {level!r}")
    if resamples < 1:
        raise SettingError(f"resamples must be at least 1, not {resamples!r}")
    if count < 2:
        raise BatchError(
            f"an interval by bootstrap needs at least two samples or groups, and there is {count}"
        )
    values = statistic(np.concatenate(units))
    draws = []
    for numbers in _numbers(count, resamples, seed):
        draws.append(statistic(_draw(units, numbers)))
    tails = (1 - level) / 2, (1 + level) / 2
    ends = []
    for value, figures in zip(values, np.stack(draws, axis=1), strict=True):
        ends.append(_ends(value, figures[~np.isnan(figures)], tails))
    return ends


def _numbers(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the units of each draw, made from raw words of Philox, which NumPy never changes."""
    bits = np.random.Philox(key=start.key(seed, "training/bootstrap"))
    for _ in range(resamples):
        yield bits.random_raw(count) % np.uint64(count)


def _draw(units: Units, numbers: np.ndarray) -> np.ndarray:
    if isinstance(units, np.ndarray):
        return units[numbers].ravel()
    return np.concatenate([units[number] for number in numbers])


def _ends(
    value: float, figures: np.ndarray, tails: tuple[float, float]
) -> tuple[float, float]:
    if np.isnan(value) or not len(figures):
        return float("nan"), float("nan")
    with np.errstate(invalid="ignore"):  # between two infinite figures
        low, high = np.quantile(figures, tails)
    return float(low), float(high)
