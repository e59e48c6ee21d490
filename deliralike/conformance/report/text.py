"""Reports as text: in colour on a terminal, plain and aligned everywhere else."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deliralike.conformance.findings import FAILED, NOT_NEEDED, NOT_REACHED, PASSED
from deliralike.conformance.proof_data import (
    DIVERGES,
    LEVELS,
    PROVED,
    SEMANTICS,
    UNDECIDED,
    ProofData,
    ProofsData,
)
from deliralike.conformance.report import content

_WIDEST = 10_000  # so that no row is broken where nobody asked for columns of a width
_SHOWN = 20  # findings after the first; all of them are in the other reports
_STYLES = {
    PASSED: "green",
    FAILED: "bold red",
    NOT_NEEDED: "dim",
    NOT_REACHED: "dim",
    content.NOT_ASKED: "dim",
    PROVED: "bold green",
    DIVERGES: "bold red",
    UNDECIDED: "bold yellow",
}


def of_proof(proof: ProofData) -> Group:
    """The report of one proof; its verdict is the first line, and the last one."""
    others = content.others(proof)
    findings = others[:_SHOWN]
    if len(others) > _SHOWN:
        findings.append(f"and {len(others) - _SHOWN} more")
    verdict = Text(proof.headline, style=_STYLES[proof.verdict])
    return Group(
        verdict,
        *_section("", _pairs(content.facts(proof))),
        *_section("", _levels(proof) if proof.levels else None),
        *_section("Other findings", _lines(findings)),
        *_section("Notes", _lines(content.notes(proof))),
        *_section("Names", Text(proof.match) if proof.match else None),
        *_section("", verdict),
    )


def of_proofs(proofs: ProofsData[Any]) -> Group:
    """The report of several: their matrix, and the headline of each that is not proved."""
    table, failed = _table(["", *LEVELS, "agree to", "verdict"]), []
    for title, proof in content.titled(proofs):
        cells = [Text(title)]
        for name in LEVELS:
            status, sign = content.sign(proof.level(name))
            cells.append(Text(sign, style=_STYLES[status]))
        semantics = proof.level(SEMANTICS)
        cells.append(Text(content.number(semantics.worst if semantics else None)))
        table.add_row(*cells, Text(proof.word, style=_STYLES[proof.verdict]))
        if not proof.proved:
            failed.append(f"{title}: {proof.headline}")
    return Group(
        Text(proofs.headline, style=_STYLES[proofs.verdict]),
        *_section("", table if len(proofs) else None),
        *_section("", _lines(failed)),
    )


def plain(report: Group) -> str:
    """A report as text without colours, its sentences unbroken and its columns aligned."""
    console = Console(
        file=io.StringIO(), width=_WIDEST, color_system=None, highlight=False
    )
    for part in report.renderables:
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in lines)


def _section(title: str, content: RenderableType | None) -> list[RenderableType]:
    """A blank line, the title and the content; nothing where there is none."""
    if content is None:
        return []
    if title:
        return [Text(""), Text(title, style="bold"), content]
    return [Text(""), content]


def _levels(proof: ProofData) -> Table:
    table = _table(content.LEVELS)
    for name, title, status, *rest in content.levels(proof):
        said = Text(status, style=_STYLES[status])
        table.add_row(Text(name), Text(title), said, *map(Text, rest))
    return table


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = _table(None)
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def _lines(lines: Sequence[str]) -> Padding | None:
    """Lines that begin, and go on, a little to the right."""
    if lines:
        return Padding(Text("\n".join(lines)), (0, 0, 0, 2), expand=False)
    return None


def _table(names: Sequence[str] | None) -> Table:
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=names is not None,
        header_style="dim",
    )
    for name in names or ():
        table.add_column(name, overflow="fold", no_wrap=name in content.LEVELS[1:-1])
    return table
