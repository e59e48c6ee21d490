"""Level L3: the places that differ, each with its cause."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from deliralike import backends
from deliralike.conformance import explain
from deliralike.conformance.explain import losses, substitution, types, wiring
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    Accused,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.levels import semantics
from deliralike.conformance.locate.drops import of_drops
from deliralike.conformance.locate.place import Place
from deliralike.conformance.locate.search import localise
from deliralike.conformance.places import OUTPUT, Quantity
from deliralike.conformance.running import Running

TITLE = "place"
MOST_PLACES = 12  # that are explained; where one convention is wrong throughout, these say so
_NEAR = 0.03  # of a place's difference: what is farther from the candidate is no hint

Attempt = tuple[Accused | None, Callable[[], Explanation | None]]


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
    """The first places of one mode."""
    places = localise(
        running.reference,
        running.candidate,
        running.batch,
        semantics.MODES[mode],
        running.correspondence,
        running.settings.seed,
    )
    for place in places[:MOST_PLACES]:
        yield _finding(running, place, mode)


def _finding(running: Running, place: Place, mode: str) -> Finding:
    backend = backends.of(running.reference.network)
    explanation, accused = _explanation(running, place)
    is_last = place.accused and len(place.substitutes) > 1  # of several that are not called
    if place.substitutes and (is_last or explanation is None or not explanation.known):
        found = substitution.explain(place.substitutes, backend)
        if found is not None:
            one, explanation = found
            accused = one.accused
            place = replace(place, path=accused.path, kind=accused.kind, what=Quantity(OUTPUT))
    if accused is not None and accused.path != place.path:  # a layer that is not called
        place = replace(place, path=accused.path, kind=accused.kind, what=Quantity(OUTPUT))
    remarks = tuple(_exact_before(running.modes[mode], place))
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
        place.details,
        running.effect(),
    )


def _explanation(running: Running, place: Place) -> tuple[Explanation | None, Accused | None]:
    """The first known explanation with whom it accuses, or else the nearest of all."""
    found: list[Explanation] = []
    for accused, attempt in _attempts(running, place):
        explanation = attempt()
        if explanation is not None and explanation.known:
            return explanation, accused
        if explanation is not None:
            found.append(explanation)
    nearest = min(found, key=lambda one: one.match, default=None)
    if nearest is not None and np.isfinite(nearest.match):
        # What is hardly nearer than the reference itself is no hint.
        return (nearest if nearest.match <= _NEAR * place.difference else None), None
    return nearest, None


def _attempts(running: Running, place: Place) -> Iterator[Attempt]:
    """The ways to explain a place, the surest first."""
    backend = backends.of(running.reference.network)
    if place.loss is not None:
        yield None, partial(losses.explain, place.loss)
    for accused in place.accused:
        sides = accused.reference.values(), accused.candidate.values()
        yield accused, partial(types.explain, *sides)
        yield accused, partial(explain.explain, accused, backend)
    if place.wiring is not None:
        values = {"": place.wiring.reference}, {"": place.wiring.candidate}
        yield None, partial(wiring.explain, place.wiring)
        yield None, partial(types.explain, *values)


def _exact_before(mode: semantics.Mode, place: Place) -> Iterator[str]:
    """Say so if all layers are exact that are called before a place; of a gradient, all layers."""
    before = list(itertools.takewhile(lambda name: name.path != place.path, mode.layers))
    if place.what.gradient or place.path not in {name.path for name in mode.layers}:
        before = list(mode.layers)
    if before and all(mode.layers[name] <= LIMIT for name in before):
        yield "Everything before it is exact."
