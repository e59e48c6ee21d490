"""Level L3: the places that differ, each with its cause."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from deliralike import backends
from deliralike.conformance import explain
from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.explain import by_hand, losses, steps, substitution, types, wiring
from deliralike.conformance.explain.shapes import TENSOR
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    OWN,
    Accused,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.levels import semantics
from deliralike.conformance.locate.between import kind_of
from deliralike.conformance.locate.drops import of_drops
from deliralike.conformance.locate.place import Place
from deliralike.conformance.locate.search import localise
from deliralike.conformance.places import INPUT, OUTPUT, Quantity, Tap
from deliralike.conformance.running import Running

TITLE = "place"
MOST_PLACES = 12  # that are explained; where one convention is wrong throughout, these say so
_NEAR = 0.03  # of a place's difference: what is farther from the candidate is no hint

Attempt = Callable[[], Explanation | None]


def level(running: Running) -> Level:
    """The places in training, and in evaluation where training explains nothing."""
    drops = of_drops(running)
    findings: dict[tuple[str, str, str], Finding] = {}
    for name in (name for name, mode in running.modes.items() if not mode.agrees):
        for finding in _in_mode(running, name):
            key = (finding.place, finding.kind, finding.what)
            if key not in findings or finding.explained > findings[key].explained:
                findings[key] = finding
        if findings and all(finding.explained for finding in findings.values()):
            break
    found = (*findings.values(), *drops)
    status = FAILED if found else NOT_REACHED
    notes = () if found else ("No layer differs when judged alone at the reference's inputs.",)
    worst = max((finding.difference for finding in found), default=None)
    return Level("L3", TITLE, status, worst, found, notes)


def _in_mode(running: Running, mode: str) -> Iterator[Finding]:
    """The first places of one mode; gradients follow what is computed forwards."""
    places = localise(
        running.reference,
        running.candidate,
        running.batch,
        semantics.MODES[mode],
        running.correspondence,
    )
    forwards_first = sorted(places, key=lambda place: bool(place.what.gradient))
    for place in forwards_first[:MOST_PLACES]:
        yield _finding(running, place, mode)


_LIKE_FLOAT32 = (1e-9, 2e-6)  # from one rounding that is averaged to some that add up
_FLOAT32 = (
    "float32 rounds to 6e-8: a constant or a cast in float32 on the way makes differences of this "
    "size."
)


def _finding(running: Running, place: Place, mode: str) -> Finding:
    explanation, accused = _explanation(running, place)
    lacking = [one.accused for one in place.substitutes if one.is_call]
    if accused is not None and (accused.path != place.path or _is_among(accused, lacking)):
        kind, what = accused.kind.removeprefix(OWN), Quantity(OUTPUT)
        if kind == TENSOR:
            network = running.reference.network
            kind = block_kinds(network).get(accused.path) or kind_of(network)
        if accused.path != place.path and explanation is not None and explanation.is_of_input:
            what = Quantity(INPUT, tap=Tap(accused.path))
        place = replace(place, path=accused.path, kind=kind, what=what)
    remarks, details = tuple(_exact_before(running.modes[mode], place)), place.details
    if explanation is None and _LIKE_FLOAT32[0] < place.difference < _LIKE_FLOAT32[1]:
        details = (*details, _FLOAT32)
    return Finding(
        "L3",
        place.path,
        str(place.what),
        place.difference,
        place.kind,
        mode,
        LIMIT,
        explanation,
        remarks,
        details,
        running.effect(),
    )


def _explanation(running: Running, place: Place) -> tuple[Explanation | None, Accused | None]:
    """The first known explanation with whom it accuses, or else the nearest of all.

    What a call does in another way comes before what is done between calls.
    """
    found: list[Explanation] = []
    # Of several calls that have no counterpart, the last one is accused by what it gives.
    lacking = [one for one in place.substitutes if one.is_call]
    is_last = bool(place.accused) and len(lacking) > 1
    if is_last and (substitute := _substitute(running, place)) is not None:
        return substitute
    for accused, attempt in _of_calls(running, place):
        if (explanation := _noted(attempt, found)) is not None:
            return explanation, accused
    if not is_last and (substitute := _substitute(running, place)) is not None:
        return substitute
    for attempt in _between(place):
        if (explanation := _noted(attempt, found)) is not None:
            return explanation, None
    nearest = min(found, key=lambda one: one.match, default=None)
    if nearest is not None and np.isfinite(nearest.match):
        # What is hardly nearer than the reference itself is no hint.
        return (nearest if nearest.match <= _NEAR * place.difference else None), None
    return nearest, None


def _is_among(accused: Accused, others: Sequence[Accused]) -> bool:
    return any(accused is other for other in others)


def _substitute(running: Running, place: Place) -> tuple[Explanation, Accused] | None:
    """The call without a counterpart that explains a place, if there is one."""
    found = substitution.explain(place.substitutes, backends.of(running.reference.network))
    return None if found is None else (found[1], found[0].accused)


def _noted(attempt: Attempt, found: list[Explanation]) -> Explanation | None:
    """A known explanation; one that is not known is noted."""
    explanation = attempt()
    if explanation is None or explanation.known:
        return explanation
    found.append(explanation)
    return None


def _of_calls(running: Running, place: Place) -> Iterator[tuple[Accused | None, Attempt]]:
    """What may explain a place by a call, the surest first."""
    backend = backends.of(running.reference.network)
    if place.loss is not None:
        yield None, partial(losses.explain, place.loss)
    for accused in place.accused:
        sides = accused.reference.values(), accused.candidate.values()
        yield accused, partial(types.explain, *sides)
        yield accused, partial(explain.explain, accused, backend)
    if place.wiring is not None:
        yield None, partial(by_hand.explain, place.wiring, backend)
        yield None, partial(steps.explain, place.wiring)


def _between(place: Place) -> Iterator[Attempt]:
    """What may explain it by what is done between calls."""
    # A single number tells nothing of the formula that it comes from.
    if place.wiring is not None and (place.loss is None or np.size(place.wiring.reference) > 1):
        values = {"": place.wiring.reference}, {"": place.wiring.candidate}
        yield partial(wiring.explain, place.wiring)
        yield partial(types.explain, *values)


def _exact_before(mode: semantics.Mode, place: Place) -> Iterator[str]:
    """Say so if all layers are exact that are called before a place; of a gradient, all layers."""
    before = list(itertools.takewhile(lambda name: name.path != place.path, mode.layers))
    if place.what.gradient or place.path not in {name.path for name in mode.layers}:
        before = list(mode.layers)
    if before and all(mode.layers[name] <= LIMIT for name in before):
        yield "Everything before it is exact."
