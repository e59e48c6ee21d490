"""The only clock: two contestants run in turn, and the ratio is taken pair by pair.

So a machine that becomes slower during the run slows both.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


@dataclass(frozen=True)
class Ratio:
    """How long `ours` takes (or how much it needs), by what it is compared with.

    Attributes:
        name: What is measured.
        ours, theirs: Median seconds, or bytes.
        ratio: Median of the ratios pair by pair; `low` and `high` are its quartiles.
        limit: The largest ratio that is good enough, or None where it is only reported.
        unit: ``"s"`` or ``"bytes"``.
    """

    name: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    limit: float | None = None
    unit: str = "s"

    @property
    def good(self) -> bool:
        """Whether the ratio is within the limit."""
        return self.limit is None or self.ratio <= self.limit


Contestant = Callable[[], object]
Clock = Callable[[], float]


def compare(
    name: str,
    ours: Contestant,
    theirs: Contestant,
    *,
    pairs: int = 20,
    limit: float | None = None,
) -> Ratio:
    """Time two functions in turn."""
    return compare_fresh(
        name, lambda: (ours, theirs), rounds=1, pairs=pairs, limit=limit
    )


def compare_fresh(
    name: str,
    make: Callable[[], tuple[Contestant, Contestant]],
    *,
    rounds: int,
    pairs: int,
    limit: float | None = None,
    clock: Clock = time.perf_counter,
) -> Ratio:
    """Time two functions that are made anew in each round.

    Where its arrays happen to lie in memory makes one network up to a tenth faster than its twin
    for as long as it lives: only several makes of each show the code.

    Args:
        clock: ``time.process_time`` where what else the machine does should not count.
    """
    times = [pair for _ in range(rounds) for pair in _round(*make(), pairs, clock)]
    ratios = [ours / theirs for ours, theirs in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return Ratio(name, medians[0], medians[1], middle, low, high, limit)


def _round(
    ours: Contestant, theirs: Contestant, pairs: int, clock: Clock, warmup: int = 3
) -> list[tuple[float, float]]:
    """Run both in turn, changing who goes first.

    The garbage collector runs between the measurements only.
    """
    for _ in range(warmup):
        ours(), theirs()
    times = []
    for pair in range(pairs):
        if pair % 2 == 0:
            times.append((seconds(ours, clock), seconds(theirs, clock)))
        else:
            times.append((seconds(theirs, clock), seconds(ours, clock))[::-1])
    return times


def seconds(function: Contestant, clock: Clock = time.perf_counter) -> float:
    """How long a call takes; the garbage collector waits."""
    gc.collect()
    gc.disable()
    start = clock()
    function()
    elapsed = clock() - start
    gc.enable()
    return elapsed


def processor_seconds(function: Contestant) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def in_fresh_process(
    module: str, *arguments: object, environment: Mapping[str, str] = ONE_THREAD
) -> Any:
    """Run a module, and return what the last line that it prints says in JSON.

    Args:
        environment: Its further variables; it has one thread if no others are given.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
