"""Reports as one page of HTML, without network or script.

It can be read on light and dark paper, and without colours: whatever a colour says is written, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import compress
from typing import Any

from deliralike.conformance.findings import LIMIT, Level
from deliralike.conformance.proof_data import (
    DIVERGES,
    LEVELS,
    ProofData,
    ProofsData,
    Verdict,
)
from deliralike.conformance.report import content

_OPEN = 12  # rows of a table that are shown at once
_DECADES = 18  # of a bar's length
_SIGNED = {**content.SIGNS, content.NULL: ""}  # cells that are results


class _Cell(str):
    """A cell of a table that is HTML already."""

    __slots__ = ()


def page(report: Verdict) -> str:
    """One proof or several, as a whole page."""
    title = escape(_title(report))
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{title}</title>\n'
        f"<style>{_PAGE_STYLE}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{fragment(report)}\n</body>\n</html>\n'


def _title(report: Verdict) -> str:
    """The verdict, what was compared, the versions and the day."""
    proofs = list(getattr(report, "proofs", [report]))
    parts = [re.split("[:;]", report.headline)[0]]
    if len(proofs) == 1:
        parts[0] += f": {proofs[0].reference} and {proofs[0].candidate}"
    parts += dict.fromkeys(map(_made_with, proofs))
    return ", ".join(filter(None, parts))


def _made_with(proof: ProofData) -> str:
    """The versions and the day of a proof."""
    return ", ".join(filter(None, [content.versions(proof), proof.date]))


def fragment(report: Verdict) -> str:
    """Return the report as one element with a style of its own, for a notebook or another page."""
    several = getattr(report, "proofs", None)
    inside = _proof(report, 1) if several is None else _proofs(report)  # type: ignore[arg-type]
    return f'<div class="proof-report">\n<style>{_STYLE}</style>\n{inside}\n</div>'


def _proofs(proofs: ProofsData[Any]) -> str:
    rows, parts = [], []
    for index, (title, proof) in enumerate(content.titled(proofs)):
        name = _Cell(f'<th><a href="#proof-{index}">{escape(title)}</a></th>')
        cells = [_status(*cell) for cell in content.cells(proof, LEVELS)]
        rows.append([name, *cells, _status(proof.verdict, proof.word)])
        # open where there is something to see to
        unfolded = "" if proof.proved else " open"
        parts.append(
            f'<details id="proof-{index}"{unfolded}><summary>{escape(title)}: '
            f"{escape(proof.word)}</summary>\n{_proof(proof, 2)}\n</details>"
        )
    matrix = _table(["", *LEVELS, "verdict"], rows, ' class="matrix"')
    heading = f"<h1>{len(proofs)} proofs</h1>"
    return "\n".join([heading, _verdict(proofs), matrix, *parts])


def _proof(proof: ProofData, depth: int) -> str:
    parts = [_verdict(proof)]
    if depth == 1:
        parts = [
            f"<h1>{escape(proof.reference)} and {escape(proof.candidate)}</h1>",
            f'<p class="made">{escape(_made_with(proof))}</p>',
            *parts,
        ]
    sections = [
        ("Levels", _levels(proof)),
        ("Other findings", _list(content.others(proof))),
    ]
    for title, form in _FIGURES.items():
        for level in proof.levels:
            name = f"{title} <small>{escape(level.name)}</small>"
            sections.append((name, form(proof, level)))
    sections += [
        ("Notes", _list(content.notes(proof))),
        ("Compared", _pairs(content.facts(proof))),
        ("Names", f"<pre>{escape(proof.match)}</pre>" if proof.match else ""),
    ]
    for title, body in sections:
        if body:
            heading = f"<h{depth + 1}>{title}</h{depth + 1}>"
            parts.append(f"<section>{heading}\n{body}</section>")
    return "\n".join(parts)


def _verdict(report: Verdict) -> str:
    sign = " at " if report.verdict == DIVERGES else ": "
    word, sign, rest = report.headline.partition(sign)
    return f'<p class="verdict {report.verdict}"><strong>{escape(word)}</strong>{escape(sign + rest)}</p>'


# Tables
# -----------------------------------------------------------------------------


def _levels(proof: ProofData) -> str:
    rows = []
    for name, what, status, worst, remark in content.levels(proof):
        lines = [escape(what)]
        for text in (content.EXPLAINED.get(name, ""), remark):
            if text:
                lines.append(f"<small>{escape(text)}</small>")
        rows.append([name, _Cell(f"<td>{'<br>'.join(lines)}</td>"), status, worst])
    return _table(content.LEVELS[:-1], rows)


def _layers(proof: ProofData, level: Level) -> str:
    """A row for each layer, with a bar as long as its largest difference has decades above 1e-18."""
    found = content.layers(proof, level)
    # A column that says nothing of any layer is left out.
    columns = zip(*(cells for cells, _ in found), strict=True)
    shown = list(map(any, columns))
    names = (*compress(content.LAYERS, shown), "largest, in decades")
    rows, opened = [], _OPEN
    for cells, worst in found:
        rows.append([*compress(cells, shown), _bar(worst)])
        if worst > LIMIT:
            opened = len(found)
    return _folding(names, rows, opened)


def _bar(worst: float) -> _Cell:
    share = 0.0
    if worst > 0.0:
        decades = math.log10(min(worst, 1.0))
        share = max(0.0, 1.0 + decades / _DECADES)
    kind = "failed" if worst > LIMIT else "passed"
    return _Cell(
        f'<td class="bar"><span class="{kind}" style="width: {8 * share:.2f}rem"></span></td>'
    )


_FIGURES = {
    "Differences by layer": _layers,
    "Gradients": lambda proof, level: _folding(
        content.GRADIENTS, content.gradients(level)
    ),
    "Largest differences": lambda proof, level: _folding(
        content.DIFFERENCES, content.differences(level)
    ),
}


def _folding(
    names: Sequence[str], rows: Sequence[Sequence[str]], shown: int = _OPEN
) -> str:
    """The table, its end folded away where it is long."""
    table, rest = _table(names, rows[:shown]), rows[shown:]
    if rest:
        summary = f"<summary>{len(rest)} more</summary>"
        table += f"<details>{summary}{_table(names, rest)}</details>"
    return table


def _table(
    names: Sequence[str], rows: Sequence[Sequence[str]], attributes: str = ""
) -> str:
    """A table with its head, each row with its name; what is wider than the paper moves by itself."""
    if not rows:
        return ""
    lines = []
    for name, *cells in rows:
        first = name if isinstance(name, _Cell) else f"<th>{escape(name)}</th>"
        lines.append(f"<tr>{first}{''.join(map(_cell, cells))}</tr>")
    head = f"<thead><tr>{_tagged('th', names)}</tr></thead>"
    table = f"<table{attributes}>{head}<tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(text: str) -> str:
    """A result with its sign, a number, or what is a cell already."""
    if isinstance(text, _Cell):
        return text
    if text in _SIGNED:
        return _status(text, f"{_SIGNED[text]} {text}".strip())
    return f'<td class="number">{escape(text)}</td>'


def _status(status: str, text: str) -> _Cell:
    name = status.replace(" ", "-")
    return _Cell(f'<td class="status {name}">{escape(text)}</td>')


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    terms = [_tagged("dt", [name]) + _tagged("dd", [text]) for name, text in rows]
    return f"<dl>{''.join(terms)}</dl>" if terms else ""


def _list(lines: Iterable[str]) -> str:
    items = _tagged("li", lines)
    return f"<ul>{items}</ul>" if items else ""


def _tagged(tag: str, texts: Iterable[str]) -> str:
    """Each text as an element of its own."""
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


_STYLE = """
.proof-report { --ink: #1c1e21;
  --faint: #5c636e;
  --paper: #ffffff;
  --shade: #f5f6f8;
  --grid: #d9dce1;
  --passed-paper: #dff2e6;
  --passed-ink: #11582f;
  --failed-paper: #fde3d8;
  --failed-ink: #93300a;
  --open-paper: #fdf3cf;
  --open-ink: #6b4e00; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { .proof-report { --ink: #e6e8eb;
  --faint: #a2a9b4;
  --paper: #16181c;
  --shade: #1f2228;
  --grid: #3a3f48;
  --passed-paper: #153a26;
  --passed-ink: #a5e6bf;
  --failed-paper: #4d2113;
  --failed-ink: #ffc3a8;
  --open-paper: #423611;
  --open-ink: #f5dc8a; } }
.proof-report { color: var(--ink); background: var(--paper); max-width: 72rem; margin: 0 auto; padding: 1.5rem;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; box-sizing: border-box; }
.proof-report h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
.proof-report h2, .proof-report h3 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.proof-report .made { color: var(--faint); margin: 0 0 1rem; overflow-wrap: anywhere; }
.proof-report small { color: var(--faint); font-weight: normal; }
.proof-report a { color: inherit; }
.proof-report .verdict { padding: .8rem 1rem; margin: 0; border-left: .35rem solid; border-radius: .25rem;
  overflow-wrap: anywhere; }
.proof-report .wide { overflow-x: auto; }
.proof-report .verdict + .wide { margin-top: 1rem; }
.proof-report table { border-collapse: collapse; color: inherit; font-size: .93rem; margin: 0; }
.proof-report th, .proof-report td { padding: .3rem .9rem .3rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--grid); background: none; color: inherit; max-width: 40rem; }
.proof-report thead th { color: var(--faint); font-weight: normal; white-space: nowrap; }
.proof-report tbody th { font-weight: 600; white-space: nowrap; }
.proof-report .number, .proof-report .status { white-space: nowrap; font-variant-numeric: tabular-nums; }
.proof-report .passed, .proof-report .proved { background: var(--passed-paper); color: var(--passed-ink); }
.proof-report .failed, .proof-report .diverges { background: var(--failed-paper); color: var(--failed-ink); }
.proof-report .undecided { background: var(--open-paper); color: var(--open-ink); }
.proof-report .not-needed, .proof-report .not-reached, .proof-report .not-asked { color: var(--faint); }
.proof-report .matrix td { border: 2px solid var(--paper); }
.proof-report .matrix td.not-needed, .proof-report .matrix td.not-reached, .proof-report .matrix td.not-asked {
  background: var(--shade); }
.proof-report dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
.proof-report dt { color: var(--faint); }
.proof-report dd { margin: 0; overflow-wrap: anywhere; }
.proof-report ul { margin: 0; padding-left: 1.2rem; }
.proof-report li { margin: .25rem 0; overflow-wrap: anywhere; }
.proof-report summary { cursor: pointer; padding: .4rem 0; }
.proof-report > details > summary { font-size: 1.2rem; font-weight: 600; margin-top: 1.5rem; }
.proof-report .bar span { display: inline-block; height: .7rem; border-right: .2rem solid; }
@media (max-width: 40rem) { .proof-report { padding: 1rem .7rem; }
  .proof-report th, .proof-report td { padding: .3rem .4rem; }
  .proof-report thead th { white-space: normal; }
  .proof-report dl { grid-template-columns: 1fr; } }
"""
_PAGE_STYLE = """
body { margin: 0; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { background: #16181c; } }
"""
