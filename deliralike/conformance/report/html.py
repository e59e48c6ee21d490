"""Reports as one page of HTML, without network or script.

It can be read on light and dark paper, and without colours: whatever a colour says is written, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import shorten

from deliralike.conformance.proof_data import DIVERGES, ProofData, Verdict
from deliralike.conformance.report import content
from deliralike.conformance.report.content import Section


def page(report: Verdict) -> str:
    """One proof or several, as a whole page."""
    title = shorten(report.headline, 80, placeholder=" …")
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{_PAGE_STYLE}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{fragment(report)}\n</body>\n</html>\n'


def fragment(report: Verdict) -> str:
    """Return the report as one element with a style of its own, for a notebook or another page."""
    if isinstance(report, ProofData):
        parts = _proof(report)
    else:
        parts = [_verdict(report), _section(content.matrix(report))]  # type: ignore[arg-type]
        for title, proof in content.titled(report):  # type: ignore[arg-type]
            # open where there is something to see to
            unfolded = "" if proof.proved else " open"
            summary = escape(f"{title}: {proof.word}")
            inside = "\n".join(_proof(proof))
            parts.append(
                f"<details{unfolded}><summary>{summary}</summary>\n{inside}\n</details>"
            )
    inside = "\n".join(parts)
    return f'<div class="proof-report">\n<style>{_STYLE}</style>\n{inside}\n</div>'


def _proof(proof: ProofData) -> list[str]:
    return [_verdict(proof), *map(_section, content.sections(proof, whole=True))]


def _verdict(report: Verdict) -> str:
    sign = " at " if report.verdict == DIVERGES else ": "
    word, sign, rest = report.headline.partition(sign)
    kind = content.KINDS[report.verdict]
    return f'<p class="verdict {kind}"><strong>{escape(word)}</strong>{escape(sign + rest)}</p>'


def _section(section: Section) -> str:
    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    body = "".join(map(_row, section.rows))
    if section.columns:
        head = "".join(f"<th>{escape(name)}</th>" for name in section.columns)
        body = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    if len(section.rows[0]) > 1:
        body = f"<table>{body}</table>"
    return f'<section>{heading}<div class="wide">{body}</div></section>'


def _row(cells: Sequence[str]) -> str:
    """A row of a table, its name first; or a line, which may be a text of several."""
    name, *others = map(escape, cells)
    if not others:
        tag = "pre" if "\n" in name else "p"
        return f"<{tag}>{name}</{tag}>"
    shown = [f"<th>{name}</th>"]
    for text in others:
        shown.append(f'<td class="{content.KINDS.get(text, "")}">{text}</td>')
    return f"<tr>{''.join(shown)}</tr>"


_STYLE = """
.proof-report { --ink: #1c1e21;
  --faint: #5c636e;
  --paper: #ffffff;
  --grid: #d9dce1;
  --good-paper: #dff2e6;
  --good-ink: #11582f;
  --bad-paper: #fde3d8;
  --bad-ink: #93300a;
  --open-paper: #fdf3cf;
  --open-ink: #6b4e00; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { .proof-report { --ink: #e6e8eb;
  --faint: #a2a9b4;
  --paper: #16181c;
  --grid: #3a3f48;
  --good-paper: #153a26;
  --good-ink: #a5e6bf;
  --bad-paper: #4d2113;
  --bad-ink: #ffc3a8;
  --open-paper: #423611;
  --open-ink: #f5dc8a; } }
.proof-report { color: var(--ink); background: var(--paper); max-width: 72rem; margin: 0 auto; padding: 1.5rem;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; box-sizing: border-box; }
.proof-report h2 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; }
.proof-report section { margin-top: 1rem; }
.proof-report .verdict { padding: .8rem 1rem; margin: 0; border-left: .35rem solid; border-radius: .25rem; }
.proof-report .wide { overflow: auto; max-height: 40rem; }
.proof-report p { margin: .25rem 0; overflow-wrap: anywhere; }
.proof-report table { border-collapse: collapse; color: inherit; font-size: .93rem; margin: 0; }
.proof-report th, .proof-report td { padding: .3rem .9rem .3rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--grid); background: none; color: inherit; max-width: 40rem;
  font-variant-numeric: tabular-nums; }
.proof-report thead th { color: var(--faint); font-weight: normal; white-space: nowrap; }
.proof-report tbody th { font-weight: 600; white-space: nowrap; }
.proof-report .good { background: var(--good-paper); color: var(--good-ink); }
.proof-report .bad { background: var(--bad-paper); color: var(--bad-ink); }
.proof-report .open { background: var(--open-paper); color: var(--open-ink); }
.proof-report .faint { color: var(--faint); }
.proof-report summary { cursor: pointer; font-size: 1.2rem; font-weight: 600; margin-top: 1.5rem; }
@media (max-width: 40rem) { .proof-report { padding: 1rem .7rem; }
  .proof-report th, .proof-report td { padding: .3rem .4rem; }
  .proof-report thead th { white-space: normal; } }
"""
_PAGE_STYLE = """
body { margin: 0; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { background: #16181c; } }
"""
