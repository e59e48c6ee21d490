"""What every report says, as sentences and rows of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import FAILED, LIMIT, NOT_NEEDED, NOT_REACHED, PASSED, Level
from deliralike.conformance.proof_data import (
    DIVERGES,
    LADDER,
    SEMANTICS,
    UNDECIDED,
    ProofData,
    ProofsData,
)

NOT_ASKED = "not asked"
SIGNS = {
    PASSED: "\N{CHECK MARK}",
    FAILED: "\N{BALLOT X}",
    NOT_NEEDED: "\N{EN DASH}",
    NOT_REACHED: "\N{EN DASH}",
    NOT_ASKED: "",
}
# What each level compares, for readers who see a report for the first time.
EXPLAINED = {
    "L0": "Both have the same parameters and buffers, of equal shapes and values.",
    "L1": "Outputs, loss, gradients and running statistics of one batch, in training and evaluation.",
    "L2": "The rounding errors of float32, as a multiple z of what is expected.",
    "L3": "Each layer alone, at the reference's inputs: where a difference begins.",
    "L4": "One update of each optimizer, from equal parameters and gradients.",
    "L5": "The losses of several steps that each side makes by itself.",
    "L6": "The same over several replicas or processes.",
    "L7": "Batches at the edge: extreme numbers, exact ties, ignored labels, a single sample.",
    "data": "The batches of both data pipelines, in their order.",
    "checkpoints": "Weights and optimizer states that one side saves and the other loads.",
}
LEVELS = ("level", "what", "result", "largest difference", "remark")
GRADIENTS = ("parameter", "difference", "norm", "result")
NULL = "null"
DIFFERENCES = ("of", "largest difference")
LAYERS = ("layer", "train", "eval", "alone, at equal inputs")
CURVES = ("step", "reference", "candidate", "difference")


_NAMED = 5  # tensors that a note names


def number(value: float | None, level: str = "") -> str:
    """A difference as a report writes it; one of level L2 is a multiple of the expected error.

    Example:
        >>> number(3.14e-15), number(0.0), number(None), number(float("inf")), number(1.34, "L2")
        ('3.1e-15', 'exact', '', 'not finite', 'z 1.34')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not finite"
    if level == "L2":
        return f"z {value:.3g}"
    return f"{value:.1e}" if value else "exact"


def headline(proof: ProofData) -> str:
    """The first sentence: proved, where it diverges, or what is missing."""
    if proof.diverges:
        return _line(f"DIVERGES at {_accusation(proof)}")
    if not proof.proved:
        return f"NOT PROVED: {proof.reference} and {proof.candidate}. {_missing(proof)} {_ladder(proof)}".rstrip()
    same = "agree as far as they were compared" if proof.not_asked else "are the same network"
    left_out = f" Not asked for: {', '.join(proof.not_asked)}." if proof.not_asked else ""
    return (
        f"{proof.word.upper()}: {proof.reference} and {proof.candidate} {same}: outputs, loss, "
        f"gradients and running statistics agree to {_agreement(proof)} in float64 (limit "
        f"{LIMIT:g}). {_ladder(proof)}{left_out}"
    )


def headline_of_all(proofs: ProofsData[Any]) -> str:
    """The first sentence about several: how many are proved, and which are not."""
    part = " in part" if any(proof.word != proof.verdict for proof in proofs) else ""
    counts = f"{sum(proof.proved for proof in proofs)} of {len(proofs)} proved{part}"
    worse = {
        word: ", ".join(title for title, proof in titled(proofs) if proof.verdict == verdict)
        for word, verdict in (("diverges", DIVERGES), ("undecided", UNDECIDED))
    }
    return (
        "; ".join([counts, *(f"{word}: {names}" for word, names in worse.items() if names)]) + "."
    )


def titled(proofs: ProofsData[Any]) -> list[tuple[str, ProofData]]:
    """Return each proof with its title: its candidate, and its reference where these differ.

    Those that would be called the same are numbered.
    """
    alone = len({proof.reference for proof in proofs}) == 1
    names = [
        proof.candidate if alone else f"{proof.reference}, {proof.candidate}" for proof in proofs
    ]
    numbered = [
        f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]
    return list(zip(numbered, proofs, strict=True))


def facts(proof: ProofData) -> list[tuple[str, str]]:
    """What was compared and how, as names and texts; what is not known is left out."""
    found = {
        "reference": proof.reference,
        "candidate": proof.candidate,
        "batch": _pairs(proof.batch),
        "versions": versions(proof),
        "date": proof.date,
        **{f"precision, {side}": _pairs(flags) for side, flags in proof.precision.items()},
        "names": proof.match,
        "time": f"{proof.seconds:.1f} s" if proof.seconds else "",
    }
    return [(name, text) for name, text in found.items() if text]


def versions(proof: ProofData) -> str:
    """The packages that took part, with their versions."""
    return _pairs(proof.versions)


def levels(proof: ProofData) -> list[tuple[str, str, str, str, str]]:
    """A row for each level; see `LEVELS`. The remark is why one was not compared."""
    return [
        (level.name, level.title, level.status, number(level.worst, level.name), _reason(level))
        for level in proof.levels
    ]


def notes(proof: ProofData) -> list[str]:
    """What a reader should know, each with its level, and the null gradients that no note names."""
    by_level = [
        f"{level.name}: {note}"
        for level in proof.levels
        for note in level.notes[1 if _reason(level) else 0 :]
    ]
    by_level += [
        f"{finding.level}: {finding.where}: {detail}"
        for finding in proof.findings
        for detail in finding.details
    ]
    unnamed = [name for name in proof.null if not any(name in note for note in by_level)]
    null = []
    if unnamed:
        some = ", ".join(unnamed[:_NAMED])
        more = f" and {len(unnamed) - _NAMED} more" if len(unnamed) > _NAMED else ""
        null = [f"Gradients that are zero but for rounding, not compared: {some}{more}."]
    return [_line(note) for note in [*proof.notes, *by_level, *null]]


def others(proof: ProofData) -> list[str]:
    """The findings after that of the headline, as sentences with their level."""
    return [
        _line(f"{finding.level}: {finding}")
        for finding in proof.findings[1 if proof.diverges else 0 :]
    ]


def columns(proofs: Iterable[ProofData]) -> list[str]:
    """The levels that a matrix shows: the whole ladder, and whatever else a proof has."""
    return list(
        dict.fromkeys([*LADDER, *(level.name for proof in proofs for level in proof.levels)])
    )


def cells(proof: ProofData, names: Iterable[str]) -> list[tuple[str, str]]:
    """A row of the matrix: status and text of each level."""
    found = {level.name: level for level in proof.levels}
    return [_cell(found.get(name)) for name in names]


def gradients(level: Level) -> list[tuple[str, str, str, str]]:
    """Return a row for each parameter, the largest difference first and null ones last.

    See `GRADIENTS`.
    """
    rows, null = level.figures.get("gradients", ()), set(level.figures.get("null", ()))
    ordered = sorted(rows, key=lambda row: (row["name"] in null, -_rank(row.get("difference"))))
    return [
        (
            row["name"],
            number(row.get("difference")),
            _norm(row.get("norm")),
            NULL if row["name"] in null else _judged(row),
        )
        for row in ordered
    ]


def layers(proof: ProofData, level: Level) -> list[tuple[tuple[str, str, str, str], float]]:
    """Return a row for each layer in the order of depth, and the largest difference in it.

    See `LAYERS`. Differences of layers alone are taken from the findings of L3 as well.
    """
    accused = {
        finding.place: finding.difference
        for finding in reversed(proof.findings)
        if finding.level == "L3"
    }
    found = []
    for row in level.figures.get("by_layer", ()):
        alone = row.get("forced", accused.get(row.get("block", row["path"])))
        values = (row.get("train"), row.get("eval"), alone)
        name = row["path"] or "the network"
        if _rank(alone) > LIMIT and row.get("kind"):
            name += f" ({row['kind']})"
        train, evaluation, apart = map(number, values)
        found.append(((name, train, evaluation, apart), max(map(_rank, values))))
    return found


def curves(level: Level) -> list[tuple[str, str, str, str]]:
    """A row for each step: the losses of both sides and their difference; see `CURVES`."""
    given = level.figures.get("curves", {})
    pairs = zip(given.get("reference", ()), given.get("candidate", ()), strict=False)
    return [
        (str(step), f"{one:.6g}", f"{two:.6g}", number(relative_difference(one, two)))
        for step, (one, two) in enumerate(pairs, start=1)
    ]


def differences(level: Level) -> list[tuple[str, str]]:
    """A row for each thing that a level tells apart, as a number of replicas; see `DIFFERENCES`."""
    return [
        (name, number(value, level.name))
        for name, value in _flat(level.figures.get("differences", {}))
    ]


def _flat(values: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of mappings in mappings, by all their names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}, ")
        else:
            yield f"{before}{name}", value


def _line(message: str) -> str:
    """A message of several lines as one."""
    return " ".join(message.split())


def sign(level: Level | None) -> tuple[str, str]:
    """Status and sign of a level, which may be missing."""
    if level is None:
        return NOT_ASKED, ""
    return level.status, SIGNS[level.status]


def _cell(level: Level | None) -> tuple[str, str]:
    if level is None:
        return NOT_ASKED, ""
    return (
        level.status,
        f"{SIGNS.get(level.status, '?')} {number(level.worst, level.name)}".rstrip(),
    )


def _accusation(proof: ProofData) -> str:
    if proof.findings:
        return str(proof.findings[0])
    failed = next(level for level in proof.levels if level.status == FAILED)
    return f"{failed.name}, {failed.title}: {number(failed.worst, failed.name) or 'failed'}."


def _agreement(proof: ProofData) -> str:
    worst = proof.level(SEMANTICS).worst  # type: ignore[union-attr]  # it is proved, so the level is there
    return f"{worst:.1e}" if worst else "the last bit"


def _missing(proof: ProofData) -> str:
    level = proof.level(SEMANTICS)
    if level is None or level.status == NOT_REACHED:
        reason = f": {level.notes[0].rstrip('.')}" if level is not None and level.notes else ""
        return f"Their semantics (L1) were not compared{reason}."
    return "Their semantics (L1) passed without a finite difference to show for it."


def _ladder(proof: ProofData) -> str:
    """``"Passed: L0, L1. Not needed: L3. Not reached: L2."``."""
    found = {
        word: [level.name for level in proof.levels if level.status == word]
        for word in (PASSED, NOT_NEEDED, NOT_REACHED)
    }
    return " ".join(
        f"{word.capitalize()}: {', '.join(names)}." for word, names in found.items() if names
    )


def _reason(level: Level) -> str:
    was_left_out = level.status in (NOT_NEEDED, NOT_REACHED)
    return level.notes[0] if was_left_out and level.notes else ""


def _pairs(values: Mapping[str, str]) -> str:
    """``"torch 2.13.0, TF32 off"``; a text that begins with its own name stands alone."""
    return ", ".join(
        value if value.startswith(name) else f"{name} {value}" for name, value in values.items()
    )


def _rank(value: Any) -> float:
    """Differences by size, what is not finite above all."""
    return -1.0 if value is None else math.inf if not math.isfinite(value) else float(value)


def _judged(row: Mapping[str, Any]) -> str:
    return (
        ""
        if row.get("difference") is None
        else PASSED
        if _rank(row["difference"]) <= LIMIT
        else FAILED
    )


def _norm(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
