"""The search for places: level L3, with each block judged alone.

A unit is looked into tap by tap: a block that differs is a unit in its turn, and where none of its
taps differ but the block does, it is accused itself. So the deepest accusation wins, and only the
taps of one block are held at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.conformance.by_name import below, holds, only
from deliralike.conformance.findings import LIMIT, FailingBlock
from deliralike.conformance.kinds import Batch
from deliralike.conformance.locate.accusing import Suspect, filled, layer_of
from deliralike.conformance.locate.differing import agrees, all_differences, first_of
from deliralike.conformance.locate.glue_code import between, kind_of
from deliralike.conformance.locate.place import LOSS, Place, joined
from deliralike.conformance.locate.units import (
    Forcing,
    Units,
    forced,
    forced_once,
    rounding,
)
from deliralike.conformance.locate.whole_loss import whole_loss
from deliralike.conformance.memory import collect
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.observe.raised import in_words
from deliralike.conformance.observe.recording import listen
from deliralike.conformance.observe.units import Call, Cotangents, Recording, Unit
from deliralike.conformance.places import OUTPUT, UNIT, Quantity
from deliralike.conformance.subject import Subject
from deliralike.conformance.ulp import SLIGHT
from deliralike.nn.layers import LAYERS


def localise(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    training: bool,
    correspondence: Correspondence = SAME,
) -> list[Place]:
    """The places that differ in one mode, in the order of their calls; gradients come last.

    Args:
        reference, candidate: Networks in float64 that hold the same weights; the candidate's loss
            sees it in the reference's layout (`Correspondence.loss`).
        batch: NumPy arrays: inputs and target.
        training: The mode.
        correspondence: Which block of the candidate is which of the reference.
    """
    unit = Unit(reference.network, reference.loss, batch, training, _network)
    partner = replace(unit, network=candidate.network, call=candidate.loss)
    places = list(look_into(Units(unit, partner, correspondence, LOSS)))
    places.sort(key=lambda place: place.what.gradient)
    of_loss = [at for at, place in enumerate(places) if place.path == LOSS]
    whole = whole_loss(unit, partner, correspondence) if of_loss else None
    for at in of_loss:
        places[at] = replace(places[at], loss=whole)
    return places


def _network(path: str) -> str | None:
    """The one tap of a loss."""
    return None if path else path


def look_into(units: Units) -> Iterator[Place]:
    """Yield the places within a unit, and the unit itself where its own code differs."""
    units, recording, weights = units.recorded()
    calls = recording.calls
    try:
        counterpart = units.correspondence.counterpart(
            calls, units.candidate, units.cotangent
        )
        opened = units.opened(calls, counterpart.calls)
        if opened is not None:
            yield from look_into(opened)
            return
        if agrees(recording, counterpart.free):
            return
        forcing = forced(units, calls, counterpart.taps, weights)
    except Exception as error:  # noqa: BLE001  # at inputs that are the reference's
        yield from _not_forced(units, recording, weights, error)
        return
    suspects, itself = _examined(units, forcing)
    # They hold as much as the network does, and blocks are looked into next.
    del calls, recording, counterpart, weights, forcing
    collect(units.reference.network)
    while suspects:
        yield from _judge(units, suspects.pop(0))
    yield from itself


def _not_forced(
    units: Units, recording: Recording, weights: Cotangents, error: Exception
) -> Iterator[Place]:
    """Yield the places within a unit that does not take the reference's inputs at each call.

    Each block is looked into by itself; where none differs, the unit is the place.
    """
    is_found = False
    for name, call in recording.calls.items():
        if call.path is None:
            continue
        what = Quantity(OUTPUT)
        suspect = Suspect(
            name, units.correspondence.alone(name, call), weights[name], what, np.inf
        )
        for place in _inside(units, suspect):
            is_found = True
            yield place
    if not is_found:
        details = (
            f"Could not be judged at the reference's inputs: {in_words(error)}.",
        )
        kind = kind_of(units.reference.network)
        yield Place(units.path, kind, Quantity(OUTPUT), np.inf, details=details)


def _examined(units: Units, forcing: Forcing) -> tuple[list[Suspect], list[Place]]:
    """The calls that differ, and the unit itself where its own code differs."""
    apart, is_slight = {}, False
    for name in only(forcing.expected.observed, forcing.found.observed):
        cotangent: Sequence[Any] = () if name == UNIT else forcing.weights[name].output
        apart[name] = all_differences(*forcing.sides(name), cotangent)
    alone = [n for n in apart if n == UNIT or not _has_blocks(units, forcing.calls[n])]
    for name in alone:
        is_slight |= any(LIMIT < far <= SLIGHT for far in apart[name].values())
    allowed = rounding(units, forcing) if is_slight else {}
    itself = list(between(units, forcing, allowed))
    suspects = []
    for name in only(forcing.calls, apart):
        what, difference = first_of(apart[name], allowed.get(name, {}))
        again = itself and replace(name, call=2) in forcing.found.beyond
        # Several calls add up to gradients and statistics: that they are made is said of the unit.
        is_result = what is not None and what.kind == OUTPUT and not what.gradient
        if what is None or (again and not is_result):
            continue
        observed = forcing.sides(name)
        suspects.append(
            Suspect(
                name,
                forcing.taps[name],
                forcing.weights[name],
                what,
                difference,
                observed if name in alone else None,
                allowed.get(name, {}),
            )
        )
    return suspects, itself


def _judge(units: Units, suspect: Suspect) -> Iterator[Place]:
    """A tap that differs: a function, a layer, or the places within a block."""
    call, unit = suspect.tap.reference, units.reference
    if call.path is None:
        function = suspect.name.function
        where = units.path
        if call.caller:
            where = joined(units.path, call.caller)
        one = suspect.block(unit, where, (function, {}))
        yield Place(where, function, suspect.what, suspect.difference, (one,))
        return
    where = joined(units.path, call.path)
    block = units.blocks[call.path]
    layer = layer_of(unit, block)
    inner = list(_inside(units, suspect))
    whole = layer[0] in LAYERS or not _has_blocks(units, call)
    is_layer = whole and not any(place.path != where for place in inner)
    if inner and not is_layer:
        yield from inner
        return
    found = _alone(units, suspect) if suspect.pair is None else suspect
    if found is None:
        return
    kind = type(block).__name__
    deeper: list[FailingBlock] = []
    for place in inner:
        if place.kind != kind:
            deeper += place.accused
    known = found.block(unit, where, layer), *deeper
    place = Place(where, kind, found.what, found.difference, known)
    if inner:
        own = inner[0]
        place = replace(
            place, details=own.details, glue=own.glue, substitutes=own.substitutes
        )
    yield place


def _alone(units: Units, suspect: Suspect) -> Suspect | None:
    """A suspect once more, with what both sides gave, and what rounding may do to that.

    None where that explains it.
    """
    name = suspect.name
    weights = {name: suspect.weights}
    forcing = forced_once(
        units, {name: suspect.tap.reference}, {name: suspect.tap}, weights
    )
    noise = rounding(units, forcing).get(name, {})
    pair = forcing.sides(name)
    what, difference = first_of(all_differences(*pair, suspect.weights.output), noise)
    if what is None:
        return None
    return replace(suspect, what=what, difference=difference, pair=pair, noise=noise)


def _inside(units: Units, suspect: Suspect) -> Iterator[Place]:
    """The places within a block that differs."""
    tap, path = suspect.tap, suspect.tap.reference.path or ""
    partner = units.correspondence.block(units.candidate.network, path)
    if partner is None:
        return
    deeper = units.correspondence.within(path, tap)
    unit = _unit(units.reference, units.blocks[path], tap.reference, deeper.tap)
    unit = replace(unit, tapped=_tapping(deeper, unit))
    opposite = _unit(units.candidate, partner, tap.given, deeper.tap_of)
    where = joined(units.path, path)
    yield from look_into(Units(unit, opposite, deeper, where, suspect.cotangent))


def _unit(
    unit: Unit, block: Any, call: Call, tapped: Callable[[str], str | None]
) -> Unit:
    """A block as a unit, called as it was."""
    args, kwargs = filled(unit.network, call.given)
    return replace(
        unit,
        network=unit.network.backend.wrap(block),
        call=operator.call,
        args=args,
        kwargs=kwargs,
        tapped=tapped,
        same=call.same,
    )


def _tapping(within: Correspondence, unit: Unit) -> Callable[[str], str | None]:
    """The taps of a unit of the reference: what both sides have, and layers that `nn` has.

    A layer that calls blocks that both sides have is looked into instead.
    """
    layers, shared = set(), []
    for path, inner in unit.network.named_blocks():
        kind, *_ = unit.backend.neutral_layer(inner) or (type(inner).__name__,)
        if path and kind in LAYERS:
            layers.add(path)
        if within.tap(path):
            shared.append(path)
    divided = {path for path in layers if holds(path, shared)}
    if divided:
        # A layer may hold blocks of which it takes the weights alone.
        called = [call.path or "" for call in listen(unit).values()]
        divided = {path for path in divided if holds(path, called)}
    layers -= divided

    def tap(path: str) -> str | None:
        return within.tap(path) or (path if path in layers else None)

    return tap


def _has_blocks(units: Units, call: Call) -> bool:
    """Whether a tap is a block with blocks in it."""
    return call.path is not None and any(below(call.path, units.blocks))
