"""Confidence intervals by bootstrap: statistics of many draws with replacement, keyed by a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from deliralike.errors import BatchError, SettingError, suggestion
from deliralike.nn import start

Statistic = Callable[[np.ndarray], np.ndarray]
Units = Sequence[np.ndarray] | np.ndarray
NORMAL = NormalDist()


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
    method: str = "percentile",
) -> list[tuple[float, float]]:
    """Return the interval of each figure of a statistic.

    Args:
        statistic: A function of row numbers that returns a fixed number of figures.
        units: The rows that are drawn together.
    """
    count = len(units)
    _check(level, resamples, method, count)
    values = statistic(np.concatenate(units))
    draws = _numbers(count, resamples, seed)
    resampled = _statistics(statistic, units, draws).T
    if method == "bca":
        subsets = (np.delete(np.arange(count), i) for i in range(count))
        jackknifed = _statistics(statistic, units, subsets).T
        columns = zip(values, resampled, jackknifed, strict=True)
        tails = [_corrected_tails(level, *column) for column in columns]
    else:
        tails = [_tails(level)] * len(values)
    return list(map(_ends, values, resampled, tails))


def _statistics(
    statistic: Statistic, units: Units, draws: Iterable[np.ndarray]
) -> np.ndarray:
    """Return the figures of each draw: ``(draws, figures)``."""
    rows = []
    for numbers in draws:
        rows.append(statistic(_draw(units, numbers)))
    return np.stack(rows)


METHODS = ("percentile", "bca")


def _check(level: float, resamples: int, method: str, count: int) -> None:
    if not 0 < level < 1:
        raise SettingError(f"level is a confidence between 0 and 1, not {level!r}")
    if resamples < 1:
        raise SettingError(f"resamples must be at least 1, not {resamples!r}")
    if method not in METHODS:
        raise SettingError(
            f"there is no method {method!r} of intervals. {suggestion(method, METHODS)}"
        )
    if count < 2:
        raise BatchError(
            f"an interval by bootstrap needs at least two samples or groups, and there is {count}"
        )


def _numbers(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the units of each draw, made from raw words of Philox, which NumPy never changes."""
    bits = np.random.Philox(key=start.key(seed, "training/bootstrap"))
    for _ in range(resamples):
        yield bits.random_raw(count) % np.uint64(count)


def _draw(units: Units, numbers: np.ndarray) -> np.ndarray:
    if isinstance(units, np.ndarray):
        return units[numbers].ravel()
    return np.concatenate([units[number] for number in numbers])


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _corrected_tails(
    level: float, value: float, resampled: np.ndarray, jackknifed: np.ndarray
) -> tuple[float, float]:
    """Return the tails of BCa: shifted by the bias of the draws, stretched by the skewness.

    The skewness is that of the jackknife.
    """
    resampled = resampled[~np.isnan(resampled)]
    jackknifed = jackknifed[~np.isnan(jackknifed)]
    if not len(resampled):
        return float("nan"), float("nan")
    below = ((resampled < value).mean() + (resampled <= value).mean()) / 2
    if not 0 < below < 1:
        return float("nan"), float("nan")
    deviations = jackknifed.mean() - jackknifed
    spread = 6 * float((deviations**2).sum()) ** 1.5
    bias = NORMAL.inv_cdf(below)
    skewness = float((deviations**3).sum()) / spread if spread else 0.0

    def tail(level: float) -> float:
        shifted = bias + NORMAL.inv_cdf(level)
        return NORMAL.cdf(bias + shifted / (1 - skewness * shifted))

    low, high = _tails(level)
    return tail(low), tail(high)


def _ends(
    value: float, resampled: np.ndarray, tails: tuple[float, float]
) -> tuple[float, float]:
    """Return the ends of an interval; NaN where the figure itself or all draws are."""
    resampled = resampled[~np.isnan(resampled)]
    if np.isnan(value) or not len(resampled) or np.isnan(tails).any():
        return float("nan"), float("nan")
    with np.errstate(invalid="ignore"):  # between two infinite figures
        low, high = np.quantile(resampled, tails)
    return float(low), float(high)
