"""The results of a proof and the verdict that follows from them, without any report."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from deliralike.conformance.findings import FAILED, PASSED, Finding, Level

LEVELS = ("L0", "L1", "L3", "L4", "L7")
SEMANTICS = "L1"  # the level without which nothing is proved
SIZES = "L7"
PROVED, DIVERGES, UNDECIDED = "proved", "diverges", "undecided"
# Structure first, as all else follows from it; then layers judged alone, which name the place.
_TELLING = ("L0", "L3", "L1", "L4", "L7")


class Verdict(ABC):
    """What one proof and several have in common: a verdict and a headline."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """``"proved"``, ``"diverges"`` or ``"undecided"``."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The first sentence of the report."""

    @property
    def proved(self) -> bool:
        """Whether the networks were shown to be the same."""
        return self.verdict == PROVED

    @property
    def diverges(self) -> bool:
        """Whether they were shown to differ."""
        return self.verdict == DIVERGES


@dataclass(frozen=True)
class ProofData(Verdict):
    """The fields of a `deliralike.conformance.proof.Proof`, and the verdict that follows."""

    reference: str
    candidate: str
    levels: tuple[Level, ...]
    precision: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    batch: Mapping[str, str] = field(default_factory=dict)
    match: str = ""
    seconds: float = 0.0
    date: str = ""

    @property
    def verdict(self) -> str:
        """The verdict: ``"diverges"`` or ``"proved"``, else undecided.

        A failed level diverges; without one, L1 (values) must have passed with a number.

        A level that was not needed or not reached proves nothing and denies nothing.
        """
        if any(level.status == FAILED for level in self.levels):
            return DIVERGES
        semantics = self.level(SEMANTICS)
        if semantics is None or semantics.status != PASSED or semantics.worst is None:
            return UNDECIDED
        return PROVED if math.isfinite(semantics.worst) else UNDECIDED

    @property
    def not_asked(self) -> tuple[str, ...]:
        """The levels of a whole proof that this one was not asked for.

        L3 looks for what differs: without it a proof is whole.
        """
        return tuple(
            name for name in LEVELS if name != "L3" and self.level(name) is None
        )

    @property
    def word(self) -> str:
        """The verdict as a report says it: ``"proved in part"`` where levels were not asked for."""
        return f"{PROVED} in part" if self.proved and self.not_asked else self.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the most telling first: errors, structure, blocks, semantics, then others.

        Those of levels that failed come before those of levels that passed. Weights that differ for
        a reason that is not known come after places whose cause is.
        """
        ordered = sorted(
            self.levels,
            key=lambda level: (level.status != FAILED, _TELLING.index(level.name)),
        )
        found = list(chain.from_iterable(level.findings for level in ordered))
        if any(one.level == "L3" and one.explained for one in found):
            found.sort(key=lambda one: one.level == "L0" and one.is_unknown)
        found.sort(key=lambda one: not (one.level == SEMANTICS and one.is_error))
        return tuple(found)

    @property
    def null(self) -> tuple[str, ...]:
        """The parameters whose gradient is zero but for rounding on both sides, at any level."""
        names: dict[str, None] = {}
        for level in self.levels:
            names |= dict.fromkeys(level.figures.get("null", ()))
        return tuple(names)

    def level(self, name: str) -> Level | None:
        """The level of this name, if the proof has it."""
        return next((level for level in self.levels if level.name == name), None)


P = TypeVar("P", bound=ProofData)


@dataclass(frozen=True)
class ProofsData(Verdict, Generic[P]):
    """The data of several proofs of one network."""

    proofs: tuple[P, ...]

    @property
    def verdict(self) -> str:
        """``"proved"`` when all are, ``"diverges"`` when one does."""
        verdicts = {proof.verdict for proof in self.proofs}
        if DIVERGES in verdicts:
            return DIVERGES
        return PROVED if verdicts == {PROVED} else UNDECIDED

    def __iter__(self) -> Iterator[P]:
        """Each in turn."""
        return iter(self.proofs)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.proofs)

    def __getitem__(self, index: int) -> P:
        """One of them."""
        return self.proofs[index]
