"""Reports as text: in colour on a terminal, plain and aligned everywhere else."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deliralike.conformance.proof_data import ProofData, ProofsData, Verdict
from deliralike.conformance.report import content
from deliralike.conformance.report.content import Section

_WIDEST = 10_000  # so that no row is broken where nobody asked for columns of a width
_STYLES = {
    content.GOOD: "green",
    content.BAD: "bold red",
    content.OPEN: "bold yellow",
    content.FAINT: "dim",
}


def of(report: ProofData | ProofsData[Any]) -> Group:
    """A report. The verdict of one proof is its first line, and its last one.

    That of several has their matrix, and the headline of each that is not proved.
    """
    verdict = _verdict(report)
    if isinstance(report, ProofData):
        return Group(verdict, *_drawn(content.sections(report)), Text(""), verdict)
    failed = []
    for title, proof in content.titled(report):
        if not proof.proved:
            failed.append((f"{title}: {proof.headline}",))
    parts = [content.matrix(report), Section("", failed)]
    return Group(verdict, *_drawn(part for part in parts if part.rows))


def plain(report: Group) -> str:
    """A report as text without colours, its sentences unbroken and its columns aligned."""
    console = Console(
        file=io.StringIO(), width=_WIDEST, color_system=None, highlight=False
    )
    for part in report.renderables:
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in lines)


def _verdict(report: Verdict) -> Text:
    kind = content.KINDS[report.verdict]
    return Text(report.headline, style=f"bold {_STYLES[kind]}")


def _drawn(sections: Iterable[Section]) -> list[RenderableType]:
    """A blank line, the title and the content of each section."""
    parts: list[RenderableType] = []
    for section in sections:
        parts.append(Text(""))
        if section.title:
            parts.append(Text(section.title, style="bold"))
        is_table = len(section.rows[0]) > 1
        parts.append(_table(section) if is_table else _lines(section))
    return parts


def _lines(section: Section) -> Padding:
    """Lines that begin, and go on, a little to the right."""
    text = "\n".join(line for (line,) in section.rows)
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


def _table(section: Section) -> Table:
    has_header = bool(section.columns)
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=has_header,
        header_style="dim",
    )
    for name in section.columns:
        table.add_column(name, overflow="fold", no_wrap=name in content.RESULTS[1:-1])
    for name, *cells in section.rows:
        table.add_row(Text(name, style="" if has_header else "dim"), *map(_cell, cells))
    return table


def _cell(text: str) -> Text:
    return Text(text, style=_STYLES.get(content.KINDS.get(text, ""), ""))
