"""The results of the suite: one for each check, and their matrix of capabilities and levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deliralike.conformance.kinds import Named
from deliralike.conformance.suite.check import LEVELS
from deliralike.tables import text_table

PASSED, FAILED, EXPECTED, UNDECLARED = (
    "passed",
    "failed",
    "expected failure",
    "not declared",
)
OUTCOMES = (PASSED, FAILED, EXPECTED, UNDECLARED)


@dataclass(frozen=True)
class Result:
    """What one check found.

    Attributes:
        check: Its name, ``"functions/exp"``.
        capability, level: Its place in the matrix.
        outcome: One of `OUTCOMES`.
        message: What differs, or why it was not run; empty where it passed.
        seconds: How long it took.
    """

    check: str
    capability: str
    level: str
    outcome: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """What the suite found about one backend.

    Attributes:
        header: What was tested: the backend, its version, devices, settings of precision …
        results: One for each check, in the order in which they ran.
    """

    header: Named
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed that should pass, and nothing passed that should fail."""
        return not self.failures

    @property
    def failures(self) -> tuple[Result, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.outcome == FAILED)

    def count(
        self, capability: str | None = None, level: str | None = None
    ) -> dict[str, int]:
        """How many checks had each outcome: of a capability, of a level, of all."""
        counted = Counter(
            result.outcome
            for result in self.results
            if capability in (None, result.capability) and level in (None, result.level)
        )
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    def matrix(self) -> dict[str, dict[str, dict[str, int]]]:
        """The numbers of outcomes by capability and level, without levels that have no check of it."""
        found: dict[str, dict[str, dict[str, int]]] = {}
        for capability in dict.fromkeys(result.capability for result in self.results):
            counts = {level: self.count(capability, level) for level in LEVELS}
            found[capability] = {
                level: count for level, count in counts.items() if count
            }
        return found

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "header": dict(self.header),
            "passed": self.passed,
            "counts": self.count(),
            "levels": LEVELS,
            "matrix": self.matrix(),
            "results": [asdict(result) for result in self.results],
        }

    def __str__(self) -> str:
        """The header, the matrix, and what failed, as plain text."""
        lines = [f"{name}: {_words(value)}" for name, value in self.header.items()]
        legend = (
            "passed of declared; ! some failed; x expected failures; - not declared"
        )
        lines += ["", self._table(), "", legend, ""]
        for outcome, word in ((EXPECTED, EXPECTED), (FAILED, "FAILED")):
            for result in self.results:
                if result.outcome == outcome:
                    lines.append(
                        f"{word} {result.check} ({result.level}): {result.message}"
                    )
        total = ", ".join(
            f"{number} {outcome}" for outcome, number in self.count().items()
        )
        return "\n".join([*lines, f"{len(self.results)} checks: {total}"])

    def _table(self) -> str:
        levels = [level for level in LEVELS if self.count(level=level)]
        rows = [["", *(LEVELS[level] for level in levels)]]
        for name, found in self.matrix().items():
            rows.append([name, *(_cell(found.get(level, {})) for level in levels)])
        return text_table(["", *levels], rows)


def _cell(found: Mapping[str, int]) -> str:
    """Return ``"7 of 9 ! 2-"``: two of nine declared checks failed, and two more are undeclared."""
    declared = sum(found.values()) - found.get(UNDECLARED, 0)
    parts = {
        f"{found.get(PASSED, 0)} of {declared}": declared,
        "!": FAILED in found,
        f"{found.get(EXPECTED)}x": EXPECTED in found,
        f"{found.get(UNDECLARED)}-": UNDECLARED in found,
    }
    return " ".join(text for text, holds in parts.items() if holds) or "."


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{name} {_words(each)}" for name, each in value.items())
            or "none"
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
