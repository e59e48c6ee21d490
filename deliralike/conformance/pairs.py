"""Two networks made comparable: copies in float64, matched, with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.conformance import matching
from deliralike.conformance.kinds import Arrays, Batch, Named
from deliralike.conformance.layout_adapter import (
    Evaluation,
    Fit,
    Layout,
    called,
    evaluate_in_own_layout,
    fit,
)
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.aligning import Orders
from deliralike.conformance.matching.settling import Settled, settle
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.observe.matched import Matched
from deliralike.conformance.subject import Subject
from deliralike.network.base import Network


@dataclass(frozen=True)
class Sides:
    """Both sides of a comparison.

    Attributes:
        reference, candidate: Copies in float64; the candidate's loss sees its network in the
            reference's layout.
        batch: In the reference's layout.
        correspondence: Which block of the candidate is which of the reference.
        match: Of names; None where both have the same.
        settled: Whether nothing but this match would do.
    """

    reference: Subject
    candidate: Subject
    batch: Batch
    correspondence: Correspondence = SAME
    match: Match | None = None
    settled: bool = True


def bring_together(
    given: Sequence[Subject],
    batch: Batch,
    names: Named,
) -> Sides:
    """Copy both sides in float64, match them, and give the candidate the reference's weights.

    The batch may lie as either side wants it.

    The candidate keeps its own where tensors have no counterpart.

    Raises:
        DeliralikeError: There is no copy in float64; a correction does not fit; or the weights do
            not.
    """
    reference, candidate = (side.in_dtype("float64") for side in given)
    if _written_once(given) and _have_same_names(given) and not names:
        _load(candidate, reference.network.neutral_state())
        return Sides(reference, candidate, batch)
    match = matching.propose(reference.network, candidate.network, names)
    if candidate.keeps_layout and _have_same_names(given):  # nothing is open
        _load(candidate, match.to_candidate(reference.network.neutral_state()))
        return _sides(reference, candidate, batch, match, Layout())
    batch, evaluation = evaluate_in_own_layout(reference, batch)
    if not _without_choice(match):
        order = evaluation.order, called(candidate, batch)
        match = matching.propose(
            reference.network, candidate.network, names, called=order
        )
    found, layout = _settled(reference, candidate, batch, match, evaluation)
    settled = found.agrees or (
        found.exhausted and not found.match.parameters_left_over()
    )
    return _sides(reference, candidate, batch, found.match, layout, settled)


def _settled(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    match: Match,
    evaluation: Evaluation,
) -> tuple[Settled, Layout]:
    """The match with which the candidate agrees best, loaded; and the layout it has then."""
    state = reference.network.neutral_state()
    fits: dict[
        int, tuple[Match, Fit]
    ] = {}  # by the match, which is kept so that its number stays

    def merit(tried: Match) -> tuple[bool, Any]:
        _load(candidate, tried.to_candidate(state))
        found = fit(reference, candidate, batch, evaluation)
        fits[id(tried)] = (tried, found)
        return found.agrees, found.merit

    def layout(chosen: Match) -> Layout:
        return next(
            one.layout for tried, one in fits.values() if _is_same(tried, chosen)
        )

    found = settle(match, merit)
    _load(candidate, found.match.to_candidate(state))
    return found, layout(found.match)


def _is_same(one: Match, two: Match) -> bool:
    """Whether two matches give the candidate the same weights."""
    pairs = zip(one.names, two.names, strict=True)
    return all(
        a.candidate == b.candidate and a.transform == b.transform for a, b in pairs
    )


def _sides(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    match: Match,
    layout: Layout,
    settled: bool = True,
) -> Sides:
    orders = Orders(list(layout.inputs.values()))
    correspondence = Matched(match, layout, orders=orders)
    adapted = candidate.replace(loss=correspondence.loss(candidate.loss))
    return Sides(reference, adapted, batch, correspondence, match, settled)


def _without_choice(match: Match) -> bool:
    """Whether there is nothing that the order of calls could decide: whole tensors, all certain."""
    straight = all(pair.straight and pair.decided != "order" for pair in match.names)
    return straight and match.complete and not match.ambiguous


def is_certain(match: Match | None) -> bool:
    """Whether names alone decide which tensor is which; None where they are the same."""
    return match is None or (_without_choice(match) and not match.summed)


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


def _load(side: Subject, state: Arrays) -> None:
    """Load weights, unless the side has the very same."""
    own = side.network.neutral_state()
    if not all(np.array_equal(own[name], value) for name, value in state.items()):
        side.network.load_neutral_state(dict(state), strict=False)
