"""Reports as one page of HTML, without network or script.

It can be read on light and dark paper, and without colours: whatever a colour says is written, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
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
    parts += dict.fromkeys(_made_with(proof) for proof in proofs)
    return ", ".join(filter(None, parts))


def _made_with(proof: ProofData) -> str:
    """The versions and the day of a proof."""
    return ", ".join(filter(None, [content.versions(proof), proof.date]))


def fragment(report: Verdict) -> str:
    """Return the report as one element with a style of its own, for a notebook or another page."""
    several = getattr(report, "proofs", None)
    inside = _proof(report, "proof", 1) if several is None else _proofs(report)  # type: ignore[arg-type]
    return f'<div class="proof-report">\n<style>{_STYLE}</style>\n{inside}\n</div>'


def _proofs(proofs: ProofsData[Any]) -> str:
    rows, parts = [], []
    for index, (title, proof) in enumerate(content.titled(proofs)):
        anchor = f"proof-{index}"
        rows.append(_matrix_row(title, proof, anchor))
        parts.append(_folded(title, proof, anchor))
    matrix = _filled(' class="matrix"', ["", *LEVELS, "verdict"], rows)
    return "\n".join(
        [f"<h1>{len(proofs)} proofs</h1>", _verdict(proofs), matrix, *parts]
    )


def _matrix_row(title: str, proof: ProofData, anchor: str) -> str:
    cells = "".join(
        _cell(status, text) for status, text in content.cells(proof, LEVELS)
    )
    row_title = f'<th><a href="#{anchor}">{escape(title)}</a></th>'
    return f"<tr>{row_title}{cells}{_cell(proof.verdict, proof.word)}</tr>"


def _folded(title: str, proof: ProofData, anchor: str) -> str:
    """One proof of several: open where there is something to see to."""
    unfolded = "" if proof.proved else " open"
    summary = f"<summary>{escape(title)}: {escape(proof.word)}</summary>"
    return f'<details id="{anchor}"{unfolded}>{summary}\n{_proof(proof, anchor, 2)}\n</details>'


def _proof(proof: ProofData, anchor: str, depth: int) -> str:
    heading = ""
    if depth == 1:
        heading = (
            f"<h1>{escape(proof.reference)} and {escape(proof.candidate)}</h1>\n"
            f'<p class="made">{escape(_made_with(proof))}</p>'
        )
    sections = [
        ("Levels", _levels(proof)),
        ("Other findings", _list(content.others(proof))),
        *_figures(proof),
        ("Notes", _list(content.notes(proof))),
        ("Compared", _pairs(content.facts(proof))),
        ("Names", f"<pre>{escape(proof.match)}</pre>" if proof.match else ""),
    ]
    parts = [heading, _verdict(proof)]
    for title, body in sections:
        if body:
            parts.append(
                f"<section><h{depth + 1}>{title}</h{depth + 1}>\n{body}</section>"
            )
    return "\n".join(parts)


def _verdict(report: Verdict) -> str:
    word, colon, rest = report.headline.partition(
        ": " if report.verdict != DIVERGES else " at "
    )
    return f'<p class="verdict {report.verdict}"><strong>{escape(word)}</strong>{escape(colon + rest)}</p>'


def _levels(proof: ProofData) -> str:
    rows = []
    for name, what, status, worst, remark in content.levels(proof):
        lines = [escape(what)]
        for text in (content.EXPLAINED.get(name, ""), remark):
            if text:
                lines.append(f"<small>{escape(text)}</small>")
        rows.append(
            f"<tr><th>{escape(name)}</th><td>{'<br>'.join(lines)}</td>{_result(status)}"
            f"{_number(worst)}</tr>"
        )
    return _table(content.LEVELS[:-1], rows)


def _figures(proof: ProofData) -> list[tuple[str, str]]:
    """The tables of each level, with their titles."""
    forms: dict[str, Callable[[Level], str]] = {
        "Differences by layer": lambda level: _layers(content.layers(proof, level)),
        "Gradients": _gradients,
        "Largest differences": lambda level: _of_numbers(
            content.DIFFERENCES, content.differences(level)
        ),
    }
    found = []
    for title, form in forms.items():
        for level in proof.levels:
            body = form(level)
            if body:
                found.append((f"{title} <small>{escape(level.name)}</small>", body))
    return found


def _layers(rows: Sequence[tuple[Sequence[str], float]]) -> str:
    """A row for each layer, with a bar as long as its largest difference has decades above 1e-18."""
    lines, opened = [], _OPEN
    # A column that says nothing of any layer is left out.
    columns = list(zip(*(cells for cells, _ in rows), strict=True))
    shown = [any(column) for column in columns]
    for cells, worst in rows:
        if worst > LIMIT:
            opened = len(rows)
        lines.append(f"<tr>{_cells(list(compress(cells, shown)))}{_bar(worst)}</tr>")
    return _folding(
        (*compress(content.LAYERS, shown), "largest, in decades"), lines, opened
    )


def _bar(worst: float) -> str:
    power = (
        math.log10(worst)
        if 0.0 < worst < math.inf
        else math.copysign(_DECADES, worst - 1)
    )
    share = min(1.0, max(0.0, 1.0 + power / _DECADES))
    kind = "failed" if worst > LIMIT else "passed"
    return f'<td class="bar"><span class="{kind}" style="width: {8 * share:.2f}rem"></span></td>'


def _gradients(level: Level) -> str:
    rows = [
        f"<tr>{_cells(cells)}{_result(result)}</tr>"
        for *cells, result in content.gradients(level)
    ]
    return _folding(content.GRADIENTS, rows)


def _of_numbers(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _folding(names, [f"<tr>{_cells(row)}</tr>" for row in rows])


def _cells(row: Sequence[str]) -> str:
    """The name of a row, and its numbers."""
    name, *numbers = row
    return f"<th>{escape(name)}</th>{''.join(map(_number, numbers))}"


def _folding(names: Sequence[str], rows: Sequence[str], shown: int = _OPEN) -> str:
    """The table, its end folded away where it is long."""
    rest = _table(names, rows[shown:])
    more = (
        f"<details><summary>{len(rows) - shown} more</summary>{rest}</details>"
        if rest
        else ""
    )
    return _table(names, rows[:shown]) + more


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    terms = [_tagged("dt", [name]) + _tagged("dd", [text]) for name, text in rows]
    return f"<dl>{''.join(terms)}</dl>" if terms else ""


def _list(lines: Iterable[str]) -> str:
    items = _tagged("li", lines)
    return f"<ul>{items}</ul>" if items else ""


def _tagged(tag: str, texts: Iterable[str]) -> str:
    """Each text as an element of its own."""
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _table(names: Sequence[str], rows: Sequence[str]) -> str:
    return _filled("", names, rows) if rows else ""


def _filled(attributes: str, names: Sequence[str], rows: Sequence[str]) -> str:
    """A table with its head; what is wider than the paper moves by itself, not the page."""
    head = f"<thead><tr>{_tagged('th', names)}</tr></thead>"
    table = f"<table{attributes}>{head}<tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(status: str, text: str) -> str:
    return f'<td class="status {status.replace(" ", "-")}">{escape(text)}</td>'


def _result(status: str) -> str:
    return _cell(status, f"{content.SIGNS.get(status, '')} {status}".strip())


def _number(text: str) -> str:
    return f'<td class="number">{escape(text)}</td>'


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
