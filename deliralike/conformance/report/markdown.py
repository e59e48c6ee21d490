"""Reports as Markdown: for pull requests, issues and the pages of a project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deliralike.conformance.findings import Level
from deliralike.conformance.proof_data import ProofData, ProofsData, Verdict
from deliralike.conformance.report import content

_SHOWN = 12  # gradients; all of them are in the other reports
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#"})


def page(report: Verdict) -> str:
    """One proof or several."""
    several = getattr(report, "proofs", None)
    return _proof(report) if several is None else _proofs(report)  # type: ignore[arg-type]


def _proof(proof: ProofData, depth: int = 1) -> str:
    title = f"{'#' * depth} {_safe(proof.reference)} and {_safe(proof.candidate)}: {proof.verdict}"
    sections = [
        ("Levels", _table(content.LEVELS, content.levels(proof))),
        ("Other findings", _list(content.others(proof))),
        *(
            (f"{title}, {level.name}", table)
            for level in proof.levels
            for title, table in _figures(level)
        ),
        ("Notes", _list(content.notes(proof))),
        ("Compared", _table(("", ""), content.facts(proof))),
    ]
    heading = "#" * (depth + 1)
    parts = [f"{heading} {name}\n\n{body}" for name, body in sections if body]
    return "\n\n".join([title, f"**{_safe(proof.headline)}**", *parts]) + "\n"


def _proofs(proofs: ProofsData[Any]) -> str:
    names = content.columns(proofs)
    rows = [
        (title, *(text for _, text in content.cells(proof, names)), proof.verdict)
        for title, proof in content.titled(proofs)
    ]
    parts = [_proof(proof, depth=2).rstrip("\n") for proof in proofs]
    matrix = _table(("", *names, "verdict"), rows)
    return (
        "\n\n".join([f"# {len(proofs)} proofs", f"**{_safe(proofs.headline)}**", matrix, *parts])
        + "\n"
    )


def _figures(level: Level) -> list[tuple[str, str]]:
    """The tables of a level, with their titles; of gradients those that differ most."""
    gradients = content.gradients(level)
    left_out = f"\n\n{len(gradients) - _SHOWN} more differ less." if len(gradients) > _SHOWN else ""
    return [
        ("Gradients", _table(content.GRADIENTS, gradients[:_SHOWN]) + left_out),
        ("Largest differences", _table(content.DIFFERENCES, content.differences(level))),
    ]


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
