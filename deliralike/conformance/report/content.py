"""What every report says, as sentences and rows of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_NEEDED,
    NOT_REACHED,
    PASSED,
    Level,
)
from deliralike.conformance.proof_data import (
    DIVERGES,
    LEVELS,
    PROVED,
    SEMANTICS,
    SIZES,
    UNDECIDED,
    ProofData,
    ProofsData,
)
from deliralike.errors import listed

_SIGNS = {
    PASSED: "\N{CHECK MARK}",
    FAILED: "\N{BALLOT X}",
    NOT_NEEDED: "\N{EN DASH}",
    NOT_REACHED: "\N{EN DASH}",
}
# How a result is shown, by the word or sign that stands in a cell.
GOOD, BAD, OPEN, FAINT = "good", "bad", "open", "faint"
KINDS = {
    PASSED: GOOD,
    _SIGNS[PASSED]: GOOD,
    PROVED: GOOD,
    f"{PROVED} in part": GOOD,
    FAILED: BAD,
    _SIGNS[FAILED]: BAD,
    DIVERGES: BAD,
    UNDECIDED: OPEN,
    NOT_NEEDED: FAINT,
    NOT_REACHED: FAINT,
    _SIGNS[NOT_REACHED]: FAINT,
}
# What each level compares, for readers who see a report for the first time.
EXPLAINED = {
    "L0": "Both have the same parameters and buffers, of equal shapes and values.",
    "L1": "Outputs, loss, gradients and running statistics of one batch, in training and evaluation.",
    "L3": "Each layer alone, at the reference's inputs: where a difference begins.",
    "L4": "One update of each optimizer, from equal parameters and gradients.",
    "L7": "A single sample and another size of input, in evaluation.",
}
RESULTS = ("level", "what", "result", "difference", "remark")
_LAYERS = ("layer", "train", "eval", "alone, at equal inputs", "result")

_LONG = 60  # characters of a remark that are not said twice
_NAMED = 5  # tensors that a note names
_SHOWN = 20  # findings after the first of a report that is not whole


@dataclass(frozen=True)
class Section:
    """A part of a report: a table, names with their texts, or lines.

    Attributes:
        title: The heading; empty where there is none.
        rows: The cells of a table; a name and its text; or a line alone.
        columns: The names of a table's columns; none for names with texts, and for lines.
    """

    title: str
    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()


def sections(proof: ProofData, whole: bool = False) -> list[Section]:
    """The parts of a report in their order, without empty ones.

    Args:
        whole: Whether all findings and the figures of each level are among them.
    """
    findings = _others(proof)
    if len(findings) > _SHOWN and not whole:
        findings = [*findings[:_SHOWN], f"and {len(findings) - _SHOWN} more"]
    parts = [
        Section("", _facts(proof)),
        Section("", _levels(proof), RESULTS),
        Section("Other findings", _lines(findings)),
    ]
    if whole:
        for level in proof.levels:
            title = f"Differences by layer, {level.name}"
            parts.append(Section(title, _layers(proof, level), _LAYERS))
        parts.append(Section("What the levels compare", list(EXPLAINED.items())))
    parts.append(Section("Notes", _lines(_notes(proof))))
    parts.append(Section("Names", _lines(filter(None, [proof.match]))))
    return [part for part in parts if part.rows]


def matrix(proofs: ProofsData[Any]) -> Section:
    """A row for each proof, with a sign for each level, how far both agree, and the verdict."""
    rows = []
    for title, proof in titled(proofs):
        found = {level.name: level for level in proof.levels}
        signs = [_SIGNS[found[name].status] if name in found else "" for name in LEVELS]
        semantics = proof.level(SEMANTICS)
        worst = number(semantics.worst if semantics else None)
        rows.append((title, *signs, worst, proof.word))
    return Section("", rows, ("", *LEVELS, "agree to", "verdict"))


def _lines(texts: Iterable[str]) -> list[tuple[str]]:
    return [(text,) for text in texts]


def number(value: float | None) -> str:
    """A difference as a report writes it.

    Example:
        >>> number(3.14e-15), number(0.0), number(None), number(float("inf"))
        ('3.1e-15', 'exact', '', 'not finite')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not finite"
    return f"{value:.1e}" if value else "exact"


def headline(proof: ProofData) -> str:
    """The first sentence: proved, where it diverges, or what is missing."""
    if proof.diverges:
        return _line(f"DIVERGES at {_accusation(proof)}")
    if not proof.proved:
        return f"NOT PROVED: {proof.reference} and {proof.candidate}. {_missing(proof)} {_ladder(proof)}".rstrip()
    same = _same(proof)
    left_out = ""
    if proof.not_asked:
        same = "agree as far as they were compared"
        left_out = f" Not asked for: {', '.join(proof.not_asked)}."
    return (
        f"{proof.word.upper()}: {proof.reference} and {proof.candidate} {same}: outputs, loss, "
        f"gradients and running statistics agree to {_agreement(proof)} in float64 "
        f"({_limit(proof)}). {_ladder(proof)}{left_out}"
    )


def headline_of_all(proofs: ProofsData[Any]) -> str:
    """The first sentence about several: how many are proved, and which are not."""
    counts = f"{sum(proof.proved for proof in proofs)} of {len(proofs)} proved"
    if any(proof.word != proof.verdict for proof in proofs):
        counts += " in part"
    parts = [counts]
    for word, verdict in (("diverges", DIVERGES), ("undecided", UNDECIDED)):
        names = [title for title, proof in titled(proofs) if proof.verdict == verdict]
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    return f"{'; '.join(parts)}."


def titled(proofs: ProofsData[Any]) -> list[tuple[str, ProofData]]:
    """Each proof with its title: its candidate, and its reference where these differ."""
    several = len({proof.reference for proof in proofs}) > 1
    found = []
    for proof in proofs:
        title = f"{proof.reference}, {proof.candidate}" if several else proof.candidate
        found.append((title, proof))
    return found


def _facts(proof: ProofData) -> list[tuple[str, str]]:
    """What was compared and how, as names and texts; what is not known is left out."""
    found = {
        "reference": proof.reference,
        "candidate": proof.candidate,
        "batch": _pairs(proof.batch),
        "versions": _pairs(proof.versions),
        "date": proof.date,
        **{
            f"precision, {side}": _pairs(flags)
            for side, flags in proof.precision.items()
        },
        "time": f"{proof.seconds:.1f} s" if proof.seconds else "",
    }
    return [(name, text) for name, text in found.items() if text]


def _levels(proof: ProofData) -> list[tuple[str, str, str, str, str]]:
    """A row for each level; see `RESULTS`. The remark is why one was not compared, or what it says."""
    rows, sentence = [], headline(proof)
    for level in proof.levels:
        remark = _reason(level)
        if len(remark) > _LONG and remark.rstrip(".") in sentence:
            remark = "As the first sentence says."
        name, title = level.name, level.title
        rows.append((name, title, level.status, number(level.worst), remark))
    return rows


def _notes(proof: ProofData) -> list[str]:
    """What a reader should know, each with its level, and the null gradients that no note names."""
    by_level = []
    for level in proof.levels:
        notes = level.notes[1:] if _reason(level) else level.notes
        by_level += [f"{level.name}: {note}" for note in notes]
    for finding in proof.findings:
        where = f"{finding.level}: {finding.where}"
        by_level += [f"{where}: {detail}" for detail in finding.details]
    null = []
    text = "\n".join(by_level)
    unnamed = [name for name in proof.null if name not in text]
    if unnamed:
        some = listed(unnamed, _NAMED)
        null = [f"Gradients that are zero but for rounding, not compared: {some}."]
    return [_line(note) for note in [*by_level, *null]]


def _others(proof: ProofData) -> list[str]:
    """The findings after that of the headline, as sentences with their level."""
    findings = proof.findings[1:] if proof.diverges else proof.findings
    return [_line(f"{finding.level}: {finding}") for finding in findings]


def _layers(proof: ProofData, level: Level) -> list[tuple[str, ...]]:
    """Return a row for each layer in the order of depth.

    Differences of layers alone are taken from the findings of L3 as well.
    """
    accused: dict[str, float] = {}
    for finding in proof.findings:
        if finding.level == "L3":
            accused.setdefault(finding.place, finding.difference)
    rows = []
    for row in level.figures.get("by_layer", ()):
        alone = row.get("forced", accused.get(row.get("block", row["path"])))
        values = (row.get("train"), row.get("eval"), alone)
        name = row["path"] or "the network"
        if _rank(alone) > LIMIT and row.get("kind"):
            name += f" ({row['kind']})"
        rows.append((name, *map(number, values), _judged(max(values, key=_rank))))
    return rows


def _line(message: str) -> str:
    """A message of several lines as one."""
    return " ".join(message.split())


def _accusation(proof: ProofData) -> str:
    if proof.findings:
        return str(proof.findings[0])
    failed = next(level for level in proof.levels if level.status == FAILED)
    return f"{failed.name}, {failed.title}: {number(failed.worst) or 'failed'}."


def _limit(proof: ProofData) -> str:
    """What was allowed, and where that is more, why."""
    level = proof.level(SEMANTICS)
    worst = 0.0 if level is None else level.worst or 0.0
    limit = f"limit {LIMIT:g}"
    if worst > LIMIT:
        limit += "; errors in the last bit of the reference's parameters do as much"
    return limit


def _agreement(proof: ProofData) -> str:
    level: Any = proof.level(SEMANTICS)  # it is proved, so the level is there
    if level.worst:
        return f"{level.worst:.1e}"
    # a gradient may be off by its own rounding, which is no part of the worst difference
    gradients = [row["difference"] for row in level.figures.get("gradients", ())]
    return "rounding" if any(gradients) else "the last bit"


def _same(proof: ProofData) -> str:
    """What is proved, and for which sizes."""
    sizes = proof.level(SIZES)
    if sizes is None or sizes.status != PASSED or sizes.figures.get("fixed"):
        return "are the same network for inputs of this size"
    return "are the same network"


def _missing(proof: ProofData) -> str:
    level = proof.level(SEMANTICS)
    if level is None or (level.status == NOT_REACHED and not level.notes):
        return "Their semantics (L1) were not compared."
    if level.status == NOT_REACHED:
        return f"Their semantics (L1) were not compared: {level.notes[0].rstrip('.')}."
    return "Their semantics (L1) passed without a finite difference to show for it."


def _ladder(proof: ProofData) -> str:
    """``"Passed: L0, L1. Not needed: L3. Not reached: L2."``."""
    sentences = []
    for word in (PASSED, NOT_NEEDED, NOT_REACHED):
        names = [level.name for level in proof.levels if level.status == word]
        if names:
            sentences.append(f"{word.capitalize()}: {', '.join(names)}.")
    return " ".join(sentences)


def _reason(level: Level) -> str:
    is_said = level.status in (NOT_NEEDED, NOT_REACHED)
    return level.notes[0] if is_said and level.notes else ""


def _pairs(values: Mapping[str, str]) -> str:
    """``"torch 2.13.0, TF32 off"``; a text that begins with its own name stands alone."""
    texts = []
    for name, value in values.items():
        texts.append(value if value.startswith(name) else f"{name} {value}")
    return ", ".join(texts)


def _rank(value: Any) -> float:
    """Differences by size, what is not finite above all."""
    if value is None:
        return -1.0
    return float(value) if math.isfinite(value) else math.inf


def _judged(difference: float | None) -> str:
    if difference is None:
        return ""
    return PASSED if _rank(difference) <= LIMIT else FAILED
