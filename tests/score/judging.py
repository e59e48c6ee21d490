"""What a comparison says in its headline, and whether that is right.

Judged is the first finding alone: the one that the headline quotes. What follows it may be as right
as it likes, and counts for nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.score.case import Mistake, Right

PROVED, DIVERGES, UNDECIDED, RAISED = "proved", "diverges", "undecided", "raised"
EQUAL, BROKEN = "changes nothing", "does not run"  # of mutants, which are left out
NETWORK, INPUT = "the network", "the input of "
STRUCTURE = "L0"
FAILED = "failed"  # of a level


@dataclass(frozen=True)
class Said:
    """The first finding of a comparison.

    Attributes:
        verdict: ``"proved"``, ``"diverges"``, ``"undecided"`` or ``"raised"``.
        headline: The first sentence of the report; of an error its class and message.
        places: What the finding may be said to be about: its place, and the input of a layer that
            it names.
        cause: The printed cause, without how well it matches; of a finding about names and shapes
            what it says, since there it is seen and not inferred.
        claims: Whether the cause is printed as one that matches.
        effect: Whether outputs in evaluation are said to change; None where nothing is said.
        seconds: How long it took.
        failed: The levels that failed.
        notes: What the levels say beside, such as what could not be tried.
    """

    verdict: str
    headline: str = ""
    places: tuple[str, ...] = ()
    cause: str = ""
    claims: bool = False
    effect: bool | None = None
    seconds: float = 0.0
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """What is right about it; everything is False that does not apply to the case."""

    detected: bool = False
    placed: bool = False
    explained: bool = False
    effect_right: bool = False
    claimed: bool = False
    false_exact: bool = False
    proved: bool = False
    accused: bool = False
    undecided: bool = False
    raised: bool = False


def said(proof: Any) -> Said:
    """The first finding of a proof."""
    if proof.verdict != DIVERGES or not proof.findings:
        return Said(proof.verdict, proof.headline)
    finding = proof.findings[0]
    known = finding.explanation is not None and finding.explanation.known
    cause = _cause(finding)
    return Said(
        proof.verdict,
        proof.headline,
        tuple(_places(finding)),
        cause,
        known,
        _effect((*finding.remarks, finding.effect)),
        failed=tuple(level.name for level in proof.levels if level.status == FAILED),
        notes=tuple(note for level in proof.levels for note in level.notes),
    )


def judge(case: Mistake | Right, found: Said) -> Judged:
    """What is right about what was said of a case."""
    if found.verdict in (RAISED, EQUAL, BROKEN):
        return Judged(raised=found.verdict == RAISED)
    if isinstance(case, Mistake):
        return _judged_mistake(case, found)
    return _judged_right(found)


def _judged_mistake(case: Mistake, found: Said) -> Judged:
    detected = found.verdict == DIVERGES
    placed = detected and _is_placed(case.places, found.places)
    is_cause = detected and names_cause(case.cause, found.cause)
    effect_right = (
        detected and case.effect is not None and bool(found.effect) == case.effect
    )
    right = placed and is_cause
    return Judged(
        detected=detected,
        placed=placed,
        explained=right,
        effect_right=effect_right,
        claimed=found.claims,
        false_exact=found.claims and not right,
        undecided=found.verdict == UNDECIDED,
    )


def _judged_right(found: Said) -> Judged:
    return Judged(
        proved=found.verdict == PROVED,
        accused=found.verdict == DIVERGES,
        claimed=found.claims,
        false_exact=found.claims,
        undecided=found.verdict == UNDECIDED,
    )


def names_cause(wanted: tuple[str, ...], cause: str) -> bool:
    """Whether every one of the regular expressions is found in a printed cause."""
    return all(re.search(each, cause, re.IGNORECASE) for each in wanted)


def _is_placed(wanted: tuple[str, ...], found: tuple[str, ...]) -> bool:
    """Whether a place is one of those that a case names.

    Between two layers the network itself is everywhere: where both the case and the finding name
    the input of a layer, it is that input that has to be right.
    """
    names = {place or NETWORK for place in wanted}
    places = {place or NETWORK for place in found}
    if any(map(_is_input, names)) and any(map(_is_input, places)):
        places.discard(NETWORK)
    return bool(names & places)


def _is_input(place: str) -> bool:
    return place.startswith(INPUT)


def _places(finding: Any) -> list[str]:
    named = re.findall(INPUT + r"([\w.]+)", str(finding.what))
    owners = [finding.place.rpartition(".")[0]] if finding.level == STRUCTURE else []
    return [str(finding.place), *owners, *(f"{INPUT}{name}" for name in named)]


def _cause(finding: Any) -> str:
    if finding.explanation is not None and finding.explanation.known:
        return re.sub(r" \([^()]*\)\.?$", "", str(finding.explanation))
    if finding.explanation is None and finding.level == STRUCTURE:
        return f"{finding.place}: {finding.what}"
    return ""


def _effect(remarks: tuple[str, ...]) -> bool | None:
    for remark in remarks:
        if "evaluation outputs" in remark:
            return not remark.startswith("No effect")
    return None
