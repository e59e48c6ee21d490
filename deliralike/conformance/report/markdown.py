"""Reports as Markdown: for pull requests, issues and the pages of a project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deliralike.conformance.report import content

if TYPE_CHECKING:
    from deliralike.conformance.proof import Proof, Proofs, Report

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#"})


def page(report: Report) -> str:
    """One proof or several."""
    several = getattr(report, "proofs", None)
    return _proof(report) if several is None else _proofs(report)  # type: ignore[arg-type]


def _proof(proof: Proof, depth: int = 1) -> str:
    title = f"{'#' * depth} {_safe(proof.reference)} and {_safe(proof.candidate)}: {proof.verdict}"
    sections = [
        ("Levels", _table(content.LEVELS, content.levels(proof))),
        ("Other findings", _list(content.others(proof))),
        ("Gradients", _gradients(proof)),
        ("Notes", _list(content.notes(proof))),
        ("Compared", _table(("", ""), content.facts(proof))),
    ]
    heading = "#" * (depth + 1)
    parts = [f"{heading} {name}\n\n{body}" for name, body in sections if body]
    return "\n\n".join([title, f"**{_safe(proof.headline)}**", *parts]) + "\n"


def _proofs(proofs: Proofs) -> str:
    names = content.columns(proofs)
    rows = [
        (title, *(text for _, text in content.cells(proof, names)), proof.verdict)
        for title, proof in content.titled(proofs)
    ]
    parts = [_proof(proof, depth=2).rstrip("\n") for proof in proofs]
    matrix = _table(("", *names, "verdict"), rows)
    return "\n\n".join([f"# {len(proofs)} proofs", f"**{_safe(proofs.headline)}**", matrix, *parts]) + "\n"


def _gradients(proof: Proof) -> str:
    tables = [_table(content.GRADIENTS, content.gradients(level)) for level in proof.levels]
    return "\n\n".join(table for table in tables if table)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing where there are no rows."""
    lines = [f"| {' | '.join(_safe(cell) for cell in row)} |" for row in rows]
    head = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    return "\n".join([*head, *lines]) if lines else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_safe(line)}" for line in lines)


def _safe(text: str) -> str:
    """A text that shows as it is; lines of a native message become one."""
    return " ".join(text.translate(_SPECIAL).split())
