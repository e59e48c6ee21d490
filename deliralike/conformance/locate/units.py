"""One unit on both sides: recorded, and forced to the same inputs at every call that both make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.by_name import holds, only
from deliralike.conformance.findings import LIMIT, Observed
from deliralike.conformance.locate.differing import (
    all_differences,
    forward_differences,
)
from deliralike.conformance.locate.place import Allowed
from deliralike.conformance.observe.corresponding import (
    Correspondence,
    SharedCalls,
    of_reference,
)
from deliralike.conformance.observe.forcing import force
from deliralike.conformance.observe.recording import cotangents, listen, record
from deliralike.conformance.observe.units import (
    CallCotangents,
    Calls,
    Cotangents,
    Forced,
    Recording,
    Unit,
)
from deliralike.conformance.places import (
    INPUT,
    OUTPUT,
    UNIT,
    Quantity,
    Tap,
)
from deliralike.conformance.ulp import EPS, MARGIN, shaken


@dataclass(frozen=True)
class Units:
    """A unit of the reference, and the candidate's.

    Attributes:
        reference, candidate: Of the reference, and of the candidate.
        correspondence: Which block of the candidate is which of the reference.
        path: Of the unit in the reference.
        cotangent: Of its output; None for a unit that gives a loss.
    """

    reference: Unit
    candidate: Unit
    correspondence: Correspondence
    path: str
    cotangent: Any = None

    @property
    def blocks(self) -> dict[str, Any]:
        """The blocks of the reference's unit by path."""
        return dict(self.reference.network.named_blocks())

    def recorded(self) -> tuple[Units, Recording, dict[Tap, CallCotangents]]:
        """The reference's run with its cotangents, and how units have to be called for them.

        A native function may forbid gradients of an argument; functions are no taps then.
        """
        plain = replace(
            self,
            reference=replace(self.reference, functions=False),
            candidate=replace(self.candidate, functions=False),
        )
        try:
            return self._recorded()
        except Exception:  # noqa: BLE001
            return plain._recorded()

    def _recorded(self) -> tuple[Units, Recording, dict[Tap, CallCotangents]]:
        recording = record(self.reference, self.cotangent)
        weights = cotangents(self.reference, recording.calls, self.cotangent)
        return self, recording, weights

    def opened(self, calls: Calls, own: Calls) -> Units | None:
        """The same with blocks looked into that one side calls and the other calls piece by piece.

        None where there are none.

        Args:
            calls: The reference's.
            own: The candidate's, in the reference's names.
        """
        reference_only = {name.path for name in calls if not name.function}
        candidate_only = {name.path for name in own if not name.function}
        one = _opened(self.reference, _divided(reference_only, candidate_only))
        two = _opened(self.candidate, _divided(candidate_only, reference_only))
        if one is self.reference and two is self.candidate:
            return None
        return replace(self, reference=one, candidate=two)


def _divided(paths: set[str], others: set[str]) -> frozenset[str]:
    """The blocks that one side alone calls, and in which the other calls blocks."""
    lone = paths - others
    return frozenset(p for p in lone if holds(p, others))


def _opened(unit: Unit, paths: frozenset[str]) -> Unit:
    """A unit with some blocks looked into, those that call blocks themselves.

    A layer may hold blocks of which it takes the weights alone.
    """
    if not paths:
        return unit
    inside = replace(unit, tapped=partial(_unless, unit.tapped, paths))
    called = {name.path for name in listen(inside)}
    calling = frozenset(p for p in paths if holds(p, called))
    if calling:
        return replace(unit, tapped=partial(_unless, unit.tapped, calling))
    return unit


def _unless(tapped: Any, left_out: frozenset[str], path: str) -> str | None:
    name = tapped(path)
    return None if name in left_out else name


@dataclass(frozen=True)
class Forcing:
    """What both sides did at the reference's inputs.

    Attributes:
        calls: All of the reference's.
        weights: The cotangents of each.
        taps: The calls that both make.
        expected, found: The reference, and the candidate in its names and layouts.
    """

    calls: Calls
    weights: Cotangents
    taps: SharedCalls
    expected: Forced
    found: Forced

    def sides(self, name: Tap = UNIT) -> tuple[Observed, Observed]:
        """What the reference and the candidate computed at a tap; between them for the unit."""
        return self.expected.observed[name], self.found.observed[name]


def forced(
    units: Units,
    calls: Calls,
    taps: SharedCalls,
    weights: Cotangents,
) -> Forcing:
    """Force both sides at some taps; functions that get the same arrays only then are forced too.

    Raises:
        Exception: What the candidate raises.
    """
    offered: set[Tap] = set()
    left_out: set[Tap] = set()
    while True:
        found = forced_once(units, calls, taps, weights)
        # What the candidate calls less often, or not at all, is no step of both: which call of the
        # one is which of the other is not known.
        lone = {name.first for name in found.taps if name not in found.found.observed}
        if lone:
            left_out |= lone
            taps = {
                name: tap for name, tap in found.taps.items() if name.first not in lone
            }
            continue
        wrong = partial(_leads_astray, found, set(_differing(found)))
        known = units.correspondence.more(calls, found.taps, found.found.beyond, wrong)
        more = {name: tap for name, tap in known.items() if name.first not in left_out}
        if not set(more) - offered:
            return found
        offered |= set(more)
        both = {**more, **found.taps}
        taps = {name: both[name] for name in calls if name in both}


def forced_once(
    units: Units,
    calls: Calls,
    taps: SharedCalls,
    weights: Cotangents,
) -> Forcing:
    """Force both sides; by blocks alone where the candidate's functions cannot take the inputs.

    Raises:
        Exception: What the candidate raises.
    """
    try:
        found = force_candidate(units, taps, weights)
    except Exception:  # noqa: BLE001
        taps = {
            name: tap for name, tap in taps.items() if tap.reference.path is not None
        }
        found = force_candidate(units, taps, weights)
    return Forcing(calls, weights, taps, force_reference(units, taps, weights), found)


def force_reference(units: Units, taps: SharedCalls, weights: Cotangents) -> Forced:
    """The reference forced at the calls that both sides make."""
    return force(
        units.reference, of_reference(taps), only(weights, taps), units.cotangent
    )


def force_candidate(units: Units, taps: SharedCalls, weights: Cotangents) -> Forced:
    """The candidate forced at them, in the reference's names and layouts."""
    return units.correspondence.forced(units.candidate, taps, weights, units.cotangent)


def _differing(found: Forcing) -> Iterator[Quantity]:
    """What differs of that which a unit computes between its taps, forwards."""
    for what, distance in forward_differences(*found.sides()).items():
        if distance > LIMIT:
            yield what


def _leads_astray(found: Forcing, differing: set[Quantity], name: Tap) -> bool:
    """Whether the tap that follows a call, or else the output, is given something else."""
    order = list(found.calls)
    following = (one for one in order[order.index(name) + 1 :] if one in found.taps)
    place = next(((INPUT, tap) for tap in following), (OUTPUT, UNIT))
    return any((one.kind, one.tap) == place for one in differing)


def rounding(units: Units, forcing: Forcing) -> dict[Tap, Allowed]:
    """Return how far an error in the last bit of every input moves each array of each tap.

    A cancellation, as in the gradient of a norm whose inputs are far from zero, makes much of that.
    """
    change = partial(shaken, generator=np.random.default_rng(0), unit=EPS)
    moved_taps = {}
    for name, tap in forcing.taps.items():
        args, kwargs = nest.map(change, tap.reference.given)
        moved_taps[name] = replace(
            tap, reference=replace(tap.reference, args=args, kwargs=kwargs)
        )
    moved = force_reference(units, moved_taps, forcing.weights).observed
    allowed: dict[Tap, Allowed] = {}
    for name, one in only(forcing.expected.observed, moved).items():
        distances = all_differences(one, moved[name])
        allowed[name] = {tensor: MARGIN * far for tensor, far in distances.items()}
    return allowed
