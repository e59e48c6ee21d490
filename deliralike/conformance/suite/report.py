"""The results of the suite: one for each check, and their matrix of capabilities and levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deliralike.conformance.suite.check import LEVELS

PASSED, FAILED, EXPECTED, UNDECLARED = "passed", "failed", "expected failure", "not declared"
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

    header: Mapping[str, Any]
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed that should pass, and nothing passed that should fail."""
        return not self.failures

    @property
    def failures(self) -> tuple[Result, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.outcome == FAILED)

    def count(self, capability: str | None = None, level: str | None = None) -> dict[str, int]:
        """How many checks had each outcome: of a capability, of a level, of all."""
        counted = Counter(
            result.outcome
            for result in self.results
            if capability in (None, result.capability) and level in (None, result.level)
        )
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    def matrix(self) -> dict[str, dict[str, dict[str, int]]]:
        """The numbers of outcomes by capability and level, without levels that have no check of it."""
        capabilities = dict.fromkeys(result.capability for result in self.results)
        return {
            row: {level: found for level in LEVELS if (found := self.count(row, level))}
            for row in capabilities
        }

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
        about = [f"{name}: {_words(value)}" for name, value in self.header.items()]
        failed = [
            f"FAILED {result.check} ({result.level}): {result.message}" for result in self.failures
        ]
        expected = [
            f"expected failure {result.check} ({result.level}): {result.message}"
            for result in self.results
            if result.outcome == EXPECTED
        ]
        total = ", ".join(f"{number} {outcome}" for outcome, number in self.count().items())
        return "\n".join(
            [
                *about,
                "",
                *self._table(),
                "",
                *expected,
                *failed,
                f"{len(self.results)} checks: {total}",
            ]
        )

    def _table(self) -> list[str]:
        levels = [level for level in LEVELS if self.count(level=level)]
        rows = [
            [name, *(_cell(found.get(level, {})) for level in levels)]
            for name, found in self.matrix().items()
        ]
        cells = [["", *levels], ["", *(LEVELS[level] for level in levels)], *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return [
            *lines,
            "",
            "passed of declared; ! some failed; x expected failures; - not declared",
        ]


def _cell(found: Mapping[str, int]) -> str:
    """Return ``"7 of 9 ! +2-"``: two of nine declared checks failed, and two more are undeclared."""
    if not found:
        return "."
    declared = sum(number for outcome, number in found.items() if outcome != UNDECLARED)
    cell = f"{found.get(PASSED, 0)} of {declared}" if declared else ""
    cell += " !" if found.get(FAILED) else ""
    cell += f" {found[EXPECTED]}x" if found.get(EXPECTED) else ""
    cell += f" {found[UNDECLARED]}-" if found.get(UNDECLARED) else ""
    return cell.strip()


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(each)}" for name, each in value.items()) or "none"
    return (", ".join(map(str, value)) or "none") if isinstance(value, list | tuple) else str(value)
