"""Level L3: the places that differ, each with its cause."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import backends
from deliralike.conformance.explain import glue, losses, search, substitution
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_NEEDED,
    NOT_REACHED,
    OWN,
    Explanation,
    FailingBlock,
    Finding,
    Level,
    like_float32,
)
from deliralike.conformance.levels import semantics
from deliralike.conformance.locate.drops import of_drops
from deliralike.conformance.locate.place import Place
from deliralike.conformance.locate.search import localise
from deliralike.conformance.places import OUTPUT, TENSOR, Quantity, Tap
from deliralike.conformance.running import NO_EFFECT, Running

TITLE = "place"
MOST_PLACES = (
    12  # that are explained; where one convention is wrong throughout, these say so
)

Explained = tuple[Explanation | None, FailingBlock | None]  # and whom it accuses
Attempt = Callable[[], Explained]


def level(running: Running) -> Level:
    """The places in training, and in evaluation where training explains nothing.

    Where the candidate raises an error, that is the finding, and beside it stand only places whose
    cause is known: what a layer does alone may be what another one does not take.
    """
    drops = [] if running.raises else list(of_drops(running))
    running.masks.off = running.raises  # its calls of dropout have no counterparts
    findings: dict[tuple[str, str, str], Finding] = {}
    for name in (name for name, mode in running.modes.items() if not mode.agrees):
        for finding in _in_mode(running, name):
            if running.raises and not finding.explained:
                continue
            key = (finding.place, finding.kind, finding.what)
            if key not in findings or finding.explained > findings[key].explained:
                findings[key] = finding
        is_explained = all(finding.explained for finding in findings.values())
        if findings and (is_explained or running.follows_no_mode):
            break
    found = sorted([*findings.values(), *drops], key=_rank)
    if sum(one.effect.startswith("Effect") for one in found) > 1:
        for at, one in enumerate(found):  # what each does by itself is not known
            found[at] = replace(
                one, effect=one.effect.replace("Effect", "Effect of all")
            )
    status = FAILED if found else NOT_REACHED
    notes = tuple(running.attempt.notes)
    if running.raises and not found:
        status = NOT_NEEDED
        notes = (
            "The candidate raises an error, and no layer has a known cause of it.",
            *notes,
        )
    elif not found:
        notes = (
            "No layer differs when judged alone at the reference's inputs.",
            *notes,
        )
    worst = max((finding.difference for finding in found), default=None)
    return Level("L3", TITLE, status, worst, tuple(found), notes)


def _rank(finding: Finding) -> tuple[bool, bool]:
    """What changes evaluation comes first, and of that what is explained; then the search's order."""
    return finding.effect == NO_EFFECT, not finding.explained


def _in_mode(running: Running, mode: str) -> Iterator[Finding]:
    """The first places of one mode; gradients follow what is computed forwards."""
    nowhere: list[Place] = []
    places = running.attempt(
        f"The search for the place, {mode}",
        lambda: localise(
            running.reference,
            running.candidate,
            running.batch,
            semantics.MODES[mode],
            running.correspondence,
        ),
        nowhere,
    )
    forwards_first = sorted(places, key=lambda place: bool(place.what.gradient))
    for place in forwards_first[:MOST_PLACES]:
        yield _finding(running, place, mode)


def _finding(running: Running, place: Place, mode: str) -> Finding:
    with np.errstate(all="ignore"):  # a wrong convention may overflow, which is no news
        explanation, accused = _explanation(running, place)
    is_lacking = any(accused is one.accused for one in place.substitutes)
    if accused is not None and (accused.path != place.path or is_lacking):
        kind = accused.kind.removeprefix(OWN)
        place = replace(place, path=accused.path, kind=kind, what=Quantity(OUTPUT))
    remarks, details = tuple(_exact_before(running.modes[mode], place)), place.details
    if explanation is None:
        details += like_float32(place.difference)
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
        _effect(running, place),
    )


def _effect(running: Running, place: Place) -> str:
    """What a place does to outputs in evaluation: nothing where it is exact in evaluation itself.

    Nor do gradients, and statistics that training moves.
    """
    if "eval" not in running.modes:
        return ""
    layers = running.modes["eval"].layers
    own = [
        far for tap, far in layers.items() if tap.path == place.path and tap != Tap()
    ]
    is_exact = bool(own) and max(own) <= LIMIT
    if is_exact or place.what.gradient or place.what.kind == TENSOR:
        return NO_EFFECT
    return running.effect()


def _explanation(running: Running, place: Place) -> Explained:
    """The first known explanation with whom it accuses, or else the nearest of all."""
    nearest: Explanation | None = None
    unknown: Explained = (None, None)
    for attempt in _attempts(running, place):
        what = f"An explanation of {place.path or 'the network'}"
        explanation, accused = running.attempt(what, attempt, unknown)
        if explanation is not None and explanation.known:
            return explanation, accused
        if nearest is None or (explanation and explanation.match < nearest.match):
            nearest = explanation
    return nearest, None


def _attempts(running: Running, place: Place) -> Iterator[Attempt]:
    """What may explain a place, the surest first; each is computed when it is asked for.

    What a call does in another way comes before what is done between calls.
    """
    backend, between = backends.of(running.reference.network), place.glue

    if place.loss is not None:
        yield partial(_about, None, losses.explain, place.loss)
    for accused in place.accused:
        yield partial(_about, accused, search.explain, accused, backend)
    yield partial(substitution.explain, place.substitutes, backend)
    if between is None or running.raises:
        return  # beside an error a setting would look like a factor
    # A single number tells nothing of the formula that it comes from.
    if place.loss is None or np.size(between.reference) > 1:
        yield partial(_about, None, glue.explain, between)


def _about(
    accused: FailingBlock | None,
    explaining: Callable[..., Explanation | None],
    *given: Any,
) -> Explained:
    """An explanation, with whom it accuses."""
    return explaining(*given), accused


def _exact_before(mode: semantics.Mode, place: Place) -> Iterator[str]:
    """Say so if all layers are exact that are called before a place; of a gradient, all layers."""
    before = list(
        itertools.takewhile(lambda name: name.path != place.path, mode.layers)
    )
    if place.what.gradient or place.path not in {name.path for name in mode.layers}:
        before = list(mode.layers)
    if before and all(mode.layers[name] <= LIMIT for name in before):
        yield "Everything before it is exact."
