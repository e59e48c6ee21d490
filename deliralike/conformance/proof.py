"""What a comparison comes to: proved, diverging or undecided, with everything that was seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deliralike.conformance.proof_data import (
    DIVERGES,
    PROVED,
    UNDECIDED,
    ProofData,
    ProofsData,
    Verdict,
)
from deliralike.conformance.report import content, html, structured, text
from deliralike.errors import ProofFailed, SettingError

if TYPE_CHECKING:
    from rich.console import Group

_EXIT = {PROVED: 0, DIVERGES: 1, UNDECIDED: 2}


class Report(Verdict):
    """A verdict with its report: texts, files, and a check for tests."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; see `deliralike.conformance.report.structured`."""
        return structured.of(self)  # type: ignore[arg-type]

    def __rich__(self) -> Group:
        """The report with colours, for ``rich.print``."""
        return text.of(self)  # type: ignore[arg-type]

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
        """The report, in a notebook."""
        return html.fragment(self)


class Proof(ProofData, Report):
    """A candidate against a reference, level by level.

    Attributes:
        reference, candidate: What they are: ``"ResNet on torch"``.
        levels: In the order of the ladder.
        precision: The flags in force, by side: ``{"reference": {"TF32": "off"}, "candidate":
            {"x64": "on"}}``.
        versions: Of the packages that took part, by name.
        batch: What was fed, by path: ``{"args[0]": "float64 (5, 3, 9, 9)"}``.
        match: How names of one were found in the other; empty where they are the same.
        seconds: How long it took.
        date: The day on which it was made, ``"2026-11-25"``, in coordinated universal time.
    """

    @property
    def headline(self) -> str:
        """The first sentence of the report."""
        return content.headline(self)


class Proofs(ProofsData[Proof], Report):
    """Several proofs of one network, on many backends."""

    @property
    def headline(self) -> str:
        """The first sentence of the report."""
        return content.headline_of_all(self)


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


def _markdown(report: Any) -> str:
    """The text as it stands, for pull requests and issues; of several proofs each one's, too."""
    parts = [
        f"````text\n{one}\n````" for one in (report, *getattr(report, "proofs", ()))
    ]
    return "\n\n".join(["# What was compared", *parts]) + "\n"


_WRITERS: dict[str, Callable[[Any], str]] = {
    ".txt": lambda report: f"{report}\n",
    ".md": _markdown,
    ".json": lambda report: (
        json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        + "\n"
    ),
    ".html": html.page,
}
