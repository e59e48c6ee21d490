"""The only clock: two contestants in turn, and the ratio pair by pair, so that a drifting machine cancels out."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How long `ours` takes, by what it is compared with.

    Attributes:
        name: What is measured.
        ours, theirs: Median seconds.
        ratio: Median of the ratios pair by pair; `low` and `high` are its quartiles.
        limit: The largest ratio that is good enough, or None where it is only reported.
    """

    name: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    limit: float | None = None

    @property
    def good(self) -> bool:
        """Whether the ratio is within the limit."""
        return self.limit is None or self.ratio <= self.limit


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int = 20, warmup: int = 3,
            limit: float | None = None) -> Ratio:  # fmt: skip
    """Run both in turn, changing who goes first; the garbage collector waits outside of what is timed."""
    for _ in range(warmup):
        ours(), theirs()
    times: list[tuple[float, float]] = []
    for pair in range(pairs):
        first, second = (ours, theirs) if pair % 2 == 0 else (theirs, ours)
        one, two = _seconds(first), _seconds(second)
        times.append((one, two) if pair % 2 == 0 else (two, one))
    ratios = [a / b for a, b in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return Ratio(name, medians[0], medians[1], middle, low, high, limit)


def _seconds(function: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    function()
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed
