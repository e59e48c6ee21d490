"""What a comparison comes to: proved, diverging or undecided, with everything that was seen."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deliralike.conformance.findings import FAILED, NOT_REACHED, PASSED, Finding, Level
from deliralike.conformance.report import content, html, markdown, structured, text
from deliralike.errors import ProofFailed, SettingError

if TYPE_CHECKING:
    from rich.console import Group

_EXIT = {content.PROVED: 0, content.DIVERGES: 1, content.UNDECIDED: 2}
# Structure and data first, as all else follows from them; then layers judged alone, which name the
# place.
_TELLING = ("L0", "data", "L3", "L1", "L4", "L5", "L6", "L7", "L2")


class Report(ABC):
    """What one proof and several have in common: a verdict, files, and a check for tests."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """``"proved"``, ``"diverges"`` or ``"undecided"``."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The first sentence of the report."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; see `deliralike.conformance.report.structured`."""

    @abstractmethod
    def __rich__(self) -> Group:
        """The report with colours, for ``rich.print``."""

    @property
    def proved(self) -> bool:
        """Whether the networks were shown to be the same."""
        return self.verdict == content.PROVED

    @property
    def diverges(self) -> bool:
        """Whether they were shown to differ."""
        return self.verdict == content.DIVERGES

    @property
    def exit_code(self) -> int:
        """For a shell: 0 proved, 1 diverges, 2 undecided."""
        return _EXIT[self.verdict]

    def check(self) -> None:
        """Nothing if proved; for tests.

        Raises:
            ProofFailed: The networks differ, or it was not decided; the message is the report.
        """
        if not self.proved:
            raise ProofFailed(str(self))

    def save(self, path: str | Path) -> Path:
        """Write the report; the ending chooses the form: ``.txt``, ``.md``, ``.json``, ``.html``.

        Equal proofs give equal files.

        Raises:
            SettingError: Another ending.
        """
        path = check_ending(path)
        path.write_text(_WRITERS[path.suffix](self), encoding="utf-8", newline="\n")
        return path

    def __str__(self) -> str:
        """The report as text, in aligned columns and without colours."""
        return text.plain(self.__rich__())

    def _repr_html_(self) -> str:
        """The report with its pictures, in a notebook."""
        return html.fragment(self)


@dataclass(frozen=True)
class Proof(Report):
    """A candidate against a reference, level by level.

    Attributes:
        reference, candidate: What they are: ``"ResNet on torch"``.
        levels: In the order of the ladder.
        precision: The flags in force, by side: ``{"reference": {"TF32": "off"}, "candidate":
            {"x64": "on"}}``.
        versions: Of the packages that took part, by name.
        batch: What was fed, by path: ``{"args[0]": "float64 (5, 3, 9, 9)"}``.
        match: How names of one were found in the other; empty where they are the same.
        notes: What a reader should know of the whole.
        seconds: How long it took.

    Raises:
        SettingError: Two levels of one name, or a status that is none.
    """

    reference: str
    candidate: str
    levels: tuple[Level, ...]
    precision: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    batch: Mapping[str, str] = field(default_factory=dict)
    match: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if len(set(names)) < len(names):
            raise SettingError(f"a proof has each level once, not {', '.join(names)}.")
        for level in self.levels:
            if level.status not in (PASSED, FAILED, NOT_REACHED):
                known = f"{PASSED!r}, {FAILED!r}, {NOT_REACHED!r}"
                raise SettingError(
                    f"level {level.name} has the status {level.status!r}; wanted one of {known}."
                )

    @property
    def verdict(self) -> str:
        """The verdict: ``"diverges"`` or ``"proved"``, else undecided.

        A failed level diverges; without one, L1 (values) must have passed with a number.

        A level that was not reached proves nothing and denies nothing.
        """
        if any(level.status == FAILED for level in self.levels):
            return content.DIVERGES
        semantics = self.level(content.SEMANTICS)
        if semantics is None or semantics.status != PASSED or semantics.worst is None:
            return content.UNDECIDED
        return content.PROVED if math.isfinite(semantics.worst) else content.UNDECIDED

    @property
    def reached(self) -> str:
        """The last level of the ladder that passed before any failed; empty where none did."""
        reached = ""
        for level in filter(None, map(self.level, content.LADDER)):
            if level.status == FAILED:
                break
            reached = level.name if level.status == PASSED else reached
        return reached

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the most telling first: structure, blocks, semantics, then others.

        Those of levels that failed come before those of levels that passed.
        """
        ordered = sorted(
            self.levels, key=lambda level: (level.status != FAILED, _telling(level.name))
        )
        return tuple(finding for level in ordered for finding in level.findings)

    @property
    def null(self) -> tuple[str, ...]:
        """The parameters whose gradient is zero but for rounding on both sides, at any level."""
        return tuple(
            dict.fromkeys(name for level in self.levels for name in level.figures.get("null", ()))
        )

    @property
    def headline(self) -> str:
        """The first sentence of the report."""
        return content.headline(self)

    def level(self, name: str) -> Level | None:
        """The level of this name, if the proof has it."""
        return next((level for level in self.levels if level.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; see `deliralike.conformance.report.structured`."""
        return structured.of_proof(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Proof:
        """The proof that `to_dict` was called on.

        Raises:
            SettingError: It is no proof, or one of another version.
        """
        return structured.proof(cls, values)

    def __str__(self) -> str:
        """The report as text, in aligned columns and without colours."""
        return super().__str__()

    def __rich__(self) -> Group:
        """The report with colours, for ``rich.print``."""
        return text.of_proof(self)


@dataclass(frozen=True)
class Proofs(Report):
    """Several proofs of one network: on many backends, or over one, two and three replicas."""

    proofs: tuple[Proof, ...]

    @property
    def verdict(self) -> str:
        """``"proved"`` when all are, ``"diverges"`` when one does."""
        verdicts = {proof.verdict for proof in self.proofs}
        if content.DIVERGES in verdicts:
            return content.DIVERGES
        return content.PROVED if verdicts == {content.PROVED} else content.UNDECIDED

    @property
    def headline(self) -> str:
        """The first sentence of the report."""
        return content.headline_of_all(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; see `deliralike.conformance.report.structured`."""
        return structured.of_proofs(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Proofs:
        """The proofs that `to_dict` was called on.

        Raises:
            SettingError: They are none, or of another version.
        """
        return cls(tuple(Proof.from_dict(proof) for proof in structured.proofs_of(values)))

    def __iter__(self) -> Iterator[Proof]:
        """Each in turn."""
        return iter(self.proofs)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.proofs)

    def __getitem__(self, index: int) -> Proof:
        """One of them."""
        return self.proofs[index]

    def __str__(self) -> str:
        """The report as text, in aligned columns and without colours."""
        return super().__str__()

    def __rich__(self) -> Group:
        """The report with colours, for ``rich.print``."""
        return text.of_proofs(self)


def load(path: str | Path) -> Proof | Proofs:
    """What was saved as JSON.

    Raises:
        SettingError: The file holds neither, or another version.
    """
    values = structured.read(Path(path))
    return Proofs.from_dict(values) if structured.is_several(values) else Proof.from_dict(values)


def check_ending(path: str | Path) -> Path:
    """The path, if a report can be written there.

    Raises:
        SettingError: Another ending.
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise SettingError(
            f"a report cannot be written to {str(path)!r}: wanted one of {', '.join(_WRITERS)}."
        )
    return path


def _telling(name: str) -> int:
    return _TELLING.index(name) if name in _TELLING else len(_TELLING)


_WRITERS: dict[str, Callable[[Any], str]] = {
    ".txt": lambda report: f"{report}\n",
    ".md": markdown.page,
    ".json": lambda report: (
        json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    ),
    ".html": html.page,
}
