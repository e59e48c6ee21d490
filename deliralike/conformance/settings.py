"""What is to be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deliralike.conformance.levels import semantics, sizes, stepping, structure
from deliralike.conformance.proof_data import LADDER

LEVELS = LADDER
TITLES = {
    "L0": structure.TITLE,
    "L1": semantics.TITLE,
    "L3": "place",
    "L4": stepping.TITLE,
    "L7": sizes.TITLE,
}
QUICK = ("L0", "L1", "L3")

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """What is to be compared, and how; see `compare`."""

    levels: tuple[str, ...] = LEVELS
    weights: str = "judge"
    names: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None

    def wanted(self, *names: str) -> list[str]:
        """Those of some levels that are asked for."""
        return [name for name in names if name in self.levels]
