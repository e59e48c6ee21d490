"""Two networks made comparable: copies in float64, matched, with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np

from deliralike.conformance import matching
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.attempts import Attempts
from deliralike.conformance.by_name import holds, owner
from deliralike.conformance.findings import LIMIT
from deliralike.conformance.kinds import Arrays, Batch, Named, Tensors
from deliralike.conformance.layout_adapter import (
    Evaluation,
    Fit,
    Layout,
    called,
    evaluate,
    evaluate_in_own_layout,
    fit,
)
from deliralike.conformance.matching import Match, folding
from deliralike.conformance.matching.aligning import Orders
from deliralike.conformance.matching.settling import Alone, Settled, settle
from deliralike.conformance.observe import Unit, listen
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.observe.matched import Matched
from deliralike.conformance.subject import Subject
from deliralike.network.base import Network
from deliralike.weights.matching import block_paths
from deliralike.weights.matching.layouts import NEAR

Order = tuple[Sequence[str], Sequence[str]]  # the paths of either side's blocks as they are called


@dataclass(frozen=True)
class Sides:
    """Both sides of a comparison.

    Attributes:
        reference, candidate: Copies in float64; the candidate's loss sees its network in the
            reference's layout.
        batch: In the reference's layout.
        correspondence: Which block of the candidate is which of the reference.
        match: Of names; None where both have the same.
        folded: The reference's norms that the candidate has folded into the layers before them:
            only evaluation can be compared.
        settled: Whether nothing but this match would do.
        notes: What could not be tried.
    """

    reference: Subject
    candidate: Subject
    batch: Batch
    correspondence: Correspondence = SAME
    match: Match | None = None
    folded: tuple[str, ...] = ()
    settled: bool = True
    notes: tuple[str, ...] = ()


def bring_together(
    given: Sequence[Subject],
    batch: Batch,
    names: Named,
    weights: str = "load",
) -> Sides:
    """Copy both sides in float64, match them, and give the candidate the reference's weights.

    The batch may lie as either side wants it.

    A candidate whose weights are to be judged keeps its own where tensors have no counterpart: it
    may hold in another form what the reference holds, such as scales that are folded into kernels.

    Raises:
        DeliralikeError: There is no copy in float64; a correction does not fit; or the weights do
            not.
    """
    reference, candidate = (side.in_dtype("float64") for side in given)
    if _written_once(given) and _have_same_names(given) and not names:
        _load(candidate, reference.network.neutral_state(), strict=True)
        return Sides(reference, candidate, batch)
    batch, mine = evaluate_in_own_layout(reference, batch)
    order: Order = ((), ())
    match = matching.propose(reference.network, candidate.network, names)
    if not _without_choice(match):
        order = mine.order, called(candidate, batch)
        match = matching.propose(reference.network, candidate.network, names, called=order)
    if candidate.keeps_layout and _have_same_names(given):  # nothing is open
        _load(candidate, match.to_candidate(reference.network.neutral_state()))
        return _sides(reference, candidate, batch, match, Layout())
    attempt = Attempts()
    folds: Sequence[folding.Fold] = ()
    as_it_is: tuple[Sequence[folding.Fold], Match] = (folds, match)
    if not match.complete:
        folded = reference.replace(network=deepcopy(reference.network))
        folds, without = attempt(
            "Folding norms into the layers before them",
            lambda: _folded(folded, candidate, match, names, order),
            as_it_is,
        )
        if folds and (weights == "load" or without.holds_all):
            reference, match, mine = folded, without, evaluate(folded, batch)
        else:
            folds = ()
    if weights == "judge" and not match.holds_all:
        own = fit(reference, candidate, batch, mine)
        together = _together(match, reference, candidate, batch)
        return _sides(reference, candidate, batch, together, own.layout)
    found, layout = _settled(reference, candidate, batch, match, mine)
    settled = found.agrees or (found.exhausted and not found.match.parameters_left_over())
    norms = tuple(fold.norm for fold in folds)
    sides = _sides(reference, candidate, batch, found.match, layout, norms, settled)
    return replace(sides, notes=tuple(attempt.notes))


def _folded(
    reference: Subject,
    candidate: Subject,
    match: Match,
    names: Named,
    order: Order,
) -> tuple[Sequence[folding.Fold], Match]:
    """The norms of the reference that the candidate has not, folded into the layers before them.

    The reference's network is changed, and the match is that of both as they are now.
    """
    folds = folding.folds(match, reference.network, order[0])
    if not folds:
        return (), match
    folding.fold(reference.network, folds)
    constants = folding.left_out(folds, match.reference.tensors)
    corrections = {**names, **folding.corrections(folds), **dict.fromkeys(constants)}
    return folds, matching.propose(reference.network, candidate.network, corrections, called=order)


def _settled(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    match: Match,
    mine: Evaluation,
) -> tuple[Settled, Layout]:
    """The match with which the candidate agrees best, loaded; and the layout it has then."""
    state = reference.network.neutral_state()
    fits: dict[int, tuple[Match, Fit]] = {}  # by the match, which is kept so that its number stays

    def merit(tried: Match) -> tuple[bool, Any]:
        _load(candidate, tried.to_candidate(state))
        found = fit(reference, candidate, batch, mine)
        fits[id(tried)] = (tried, found)
        return found.agrees, found.merit

    def layout(chosen: Match) -> Layout:
        return next(one.layout for tried, one in fits.values() if _is_same(tried, chosen))

    def alone(tried: Match) -> Alone:
        _load(candidate, tried.to_candidate(state))
        near = [one.layout for other, one in fits.values() if _is_same(other, tried)]
        return _alone(reference, candidate, batch, tried, (near or [layout(match)])[0])

    found = settle(match, merit, alone)
    _load(candidate, found.match.to_candidate(state))
    return found, layout(found.match)


def _alone(
    reference: Subject, candidate: Subject, batch: Batch, match: Match, layout: Layout
) -> Alone:
    """How many arrays agree where each layer gets the reference's inputs, and how near others are."""
    correspondence, innermost = _matched(match, layout), _innermost(match)
    mine = Unit(reference.network, reference.loss, batch, False, innermost.get, functions=False)
    inverse = {match.blocks[path]: path for path in innermost}
    theirs = replace(
        mine,
        network=candidate.network,
        call=correspondence.loss(candidate.loss),
        tapped=inverse.get,
    )
    try:
        found = list(correspondence.by_layer(listen(mine), theirs))
    except Exception:  # noqa: BLE001  # what a stranger's network raises is for level L1 to say
        return 0, 0.0
    count, like = 0, 0.0
    for given, results in found:
        count += sum(relative_difference(*pair) <= LIMIT for pair in (*given, *results))
        like = sum(starmap(_likeness, given), like)
    return count, round(like, _DIGITS)


_DIGITS = 6  # what is nearer than that is as near


def _likeness(mine: Any, theirs: Any) -> float:
    """The cosine of the angle between two arrays; 0.0 where they are not alike at all.

    Other than a distance it tells arrays apart that a missing activation makes larger.
    """
    if np.shape(mine) != np.shape(theirs):
        return 0.0
    one, two = (
        np.nan_to_num(np.asarray(x, np.float64), posinf=0.0, neginf=0.0).ravel()
        for x in (mine, theirs)
    )
    size = np.linalg.norm(one) * np.linalg.norm(two)
    return max(0.0, float(one @ two / size)) if size else 0.0


def _innermost(match: Match) -> dict[str, str]:
    """The paths of the reference's blocks that hold no other block that both sides have."""
    paths = [path for path in match.blocks if path]
    outer = {path for path in paths if holds(path, paths)}
    return {path: path for path in paths if path not in outer}


def _is_same(one: Match, two: Match) -> bool:
    """Whether two matches give the candidate the same weights."""
    pairs = zip(one.names, two.names, strict=True)
    return all(a.candidate == b.candidate and a.transform == b.transform for a, b in pairs)


def _sides(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    match: Match,
    layout: Layout,
    folded: tuple[str, ...] = (),
    settled: bool = True,
) -> Sides:
    correspondence = _matched(match, layout)
    seen = candidate.replace(loss=correspondence.loss(candidate.loss))
    return Sides(reference, seen, batch, correspondence, match, folded, settled)


def _matched(match: Match, layout: Layout) -> Matched:
    return Matched(match, layout, orders=Orders(list(layout.inputs.values())))


def _together(match: Match, reference: Subject, candidate: Subject, batch: Batch) -> Match:
    """The match without the tensors that one side holds in another form.

    They are those without a counterpart, and those whose values differ, if the batch makes use of
    most that differs: outputs say nothing of a row of an embedding that no sample asks for.
    """
    wanted, own = reference.network.neutral_state(), candidate.network.neutral_state()
    found, used = match.to_reference(own), _used(reference, batch)
    apart = set()
    for name, value in found.items():
        if value is None or relative_difference(wanted[name], value) <= NEAR:
            continue
        differs = ~np.isclose(wanted[name], value, rtol=NEAR, atol=0.0)
        if name not in used or used[name][differs].mean() > 0.5:
            apart.add(name)
    kept, mine, theirs = [], set[str](), set[str]()
    for pair in match.names:
        sources = {unit.source for unit in pair.reference}
        if not apart & sources:
            kept.append(pair)
            mine |= sources
            theirs.update(unit.source for unit in pair.candidate)
    others = [name for name in match.reference.tensors if name not in mine]
    others += [name for name in match.candidate.tensors if name not in theirs]
    owners = set(map(owner, others))
    fused = {owner(name) for name in apart if name in used}
    owners -= {"", *map(owner, (*mine, *theirs))} - fused
    blocks = {}
    for path, its in block_paths.between(match.reference, match.candidate, kept).items():
        if path not in owners and its not in owners:
            blocks[path] = its
    left = replace(match, names=tuple(kept), blocks=blocks, together=tuple(others))
    return replace(left, missing={}, unexpected={})


def _used(side: Subject, batch: Batch) -> Tensors:
    """Of each parameter, which of its numbers the loss of a batch depends on in evaluation."""
    with side.network.training_mode(False):
        found = side.network.backend.gradients(side.loss, side.network, *batch).parameters
    state, used = side.network.neutral_state(), {}
    for name, gradient in found.items():
        used[name] = np.zeros(state[name].shape, bool) if gradient is None else gradient != 0.0
    return used


def _without_choice(match: Match) -> bool:
    """Whether there is nothing that the order of calls could decide: whole tensors, all certain."""
    straight = all(pair.straight and pair.decided != "order" for pair in match.names)
    return straight and match.complete and not match.ambiguous


def is_certain(match: Match | None) -> bool:
    """Whether names alone decide which tensor is which; None where they are the same."""
    return match is None or (_without_choice(match) and not (match.together or match.summed))


def matched_by_names(given: Sequence[Subject], names: Named) -> Match | None:
    """The match of networks that cannot be run in float64; None where names are the same."""
    if _have_same_names(given) and not names:
        return None
    reference, candidate = (one.network for one in given)
    return matching.propose(reference, candidate, names)


def _have_same_names(sides: Sequence[Subject]) -> bool:
    reference, candidate = (list(one.network.neutral_slots()) for one in sides)
    return reference == candidate


def _written_once(sides: Sequence[Subject]) -> bool:
    """Whether both networks are written in the vocabulary of `nn`."""
    return all(isinstance(one.network, Network) for one in sides)


def _load(side: Subject, state: Arrays, strict: bool = False) -> None:
    """Load weights, unless the side has the very same."""
    own = side.network.neutral_state()
    if not all(np.array_equal(own[name], value) for name, value in state.items()):
        side.network.load_neutral_state(dict(state), strict=strict)
