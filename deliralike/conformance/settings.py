"""What is to be compared, and about how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deliralike.conformance.levels import (
    checkpoints,
    curve,
    pipelines,
    precision,
    probes,
    replicas,
    semantics,
    stepping,
    structure,
)
from deliralike.conformance.proof_data import LADDER
from deliralike.parallel import ProcessGroup, SingleProcess

LEVELS = LADDER
BESIDE = ("data", "checkpoints")  # beside the ladder, and compared where they are asked for
TITLES = {
    "L0": structure.TITLE,
    "L1": semantics.TITLE,
    "L2": precision.TITLE,
    "L3": "place",
    "L4": stepping.TITLE,
    "L5": curve.TITLE,
    "L6": replicas.TITLE,
    "L7": probes.TITLE,
    "checkpoints": checkpoints.TITLE,
    "data": pipelines.TITLE,
}
QUICK = ("L0", "L1", "L3")
# Passes through a network, or what takes as long.
_PASSES = {"data": 1, "L0": 1, "L1": 4, "L2": 2, "L3": 20, "L4": 4, "L7": 14, "checkpoints": 8}
_THOROUGH_PASSES = {"L7": 60}
_PASSES_OF_A_STEP, _PASSES_OF_REPLICAS = 2, 20

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """What is to be compared, and how; see `compare`."""

    levels: tuple[str, ...] = LEVELS
    weights: str = "judge"
    names: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[int, ...] = ()
    processes: ProcessGroup = field(default_factory=SingleProcess)
    streams: tuple[Iterable[Any], Iterable[Any]] | None = None
    steps: int = 3
    thorough: bool = False
    progress: Progress | None = None

    @property
    def replicates(self) -> bool:
        """Whether there are replicas to compare over."""
        return bool(self.replicas) or self.processes.count > 1

    def passes(self, level: str) -> int:
        """About how many passes through a network a level takes."""
        if level == "L5":
            return _PASSES_OF_A_STEP * self.steps
        if level == "L6":
            return _PASSES_OF_REPLICAS * (len(self.replicas) + (self.processes.count > 1))
        thorough = _THOROUGH_PASSES if self.thorough else {}
        return thorough.get(level, _PASSES[level])

    def wanted(self, *names: str) -> list[str]:
        """Those of some levels that are asked for."""
        wanted = [name for name in names if name in self.levels]
        return [name for name in wanted if name != "L6" or self.replicates]


def in_words(seconds: float) -> str:
    """Return a time about as exactly as an estimate is.

    Example:
        >>> in_words(0.4), in_words(23.0), in_words(80.0), in_words(100.0)
        ('a few seconds', 'about 20 seconds', 'about a minute', 'about 2 minutes')
    """
    if seconds < 5:
        return "a few seconds"
    if seconds < 75:
        return f"about {max(1, round(seconds / 10)) * 10} seconds"
    minutes = round(seconds / 60)
    return "about a minute" if minutes == 1 else f"about {minutes} minutes"
