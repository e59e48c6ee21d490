"""What a unit does between its taps, where that differs: the place, and the data to explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.explain.glue import Glue
from deliralike.conformance.findings import (
    LIMIT,
    MATCH,
    OWN,
    Explanation,
    Observed,
    is_array,
    is_floating,
)
from deliralike.conformance.locate.accusing import failing_block, layer_of
from deliralike.conformance.locate.differing import (
    first_difference,
    forward_differences,
)
from deliralike.conformance.locate.place import LOSS, Allowed, Place, joined
from deliralike.conformance.locate.units import (
    Forcing,
    Units,
)
from deliralike.conformance.observe import Call, Calls, Unit
from deliralike.conformance.places import (
    INPUT,
    OUTPUT,
    UNIT,
    Quantity,
    Tap,
    named,
    outputs,
)
from deliralike.conformance.places import (
    arguments as own_arguments,
)
from deliralike.errors import listed
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import innermost

_AS_INFINITE = 1e9  # scores of this size mask


def between(
    units: Units, forcing: Forcing, allowed: Mapping[Tap, Allowed]
) -> Iterator[Place]:
    """The unit itself, where its own code differs."""
    mine, theirs = forcing.sides()
    if not units.correspondence.counts_functions:
        mine, theirs = _with_masks(mine), _with_masks(theirs)
    yield from _Between(units, forcing, mine, theirs).places(allowed.get(UNIT))


def kind_of(network: AbstractNetwork) -> str:
    """The class of a unit."""
    return type(innermost(network)).__name__


@dataclass(frozen=True)
class _Between:
    """What a unit does between its taps.

    Attributes:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        mine, theirs: What either side hands on.
    """

    units: Units
    forcing: Forcing
    mine: Observed
    theirs: Observed

    def places(self, allowed: Allowed | None) -> Iterator[Place]:
        """The place, if anything differs by more than is allowed."""
        differing = self._differing()
        if not differing:
            what, distance = first_difference(self.mine, self.theirs, allowed)
            if what is not None:
                differing = [(what, distance)]
        if not differing:
            return
        what, difference = differing[0]
        glue, details = self._glue(what), tuple(self._details())
        place = Place(*self._owner(what), what, difference, (), details, glue)
        yield replace(place, lone=self._in_place_of_lone(place, glue))

    def _owner(self, what: Quantity) -> tuple[str, str]:
        """The path and class of the unit, or of the block in it that makes what a tap is given."""
        call = self.forcing.calls.get(what.tap)
        if call is not None and call.caller and what.kind == INPUT:
            kind = block_kinds(self.units.mine.network)[call.caller]
            return joined(self.units.path, call.caller), kind
        path = self.units.path
        return path, "" if path == LOSS else kind_of(self.units.mine.network)

    def _differing(self) -> list[tuple[Quantity, float]]:
        """Return the forward results of a unit that differ, with their distances.

        They have the order of the candidate's calls.
        """
        order = list(self.forcing.found.observed)
        wrong = []
        for what, distance in forward_differences(self.mine, self.theirs).items():
            if distance > LIMIT:
                place = len(order)
                if what.tap != UNIT and what.tap in order:
                    place = order.index(what.tap)
                wrong.append((place, what, distance))
        wrong.sort(key=lambda one: one[0])
        return [(what, distance) for _, what, distance in wrong]

    # The data to explain it
    # -------------------------------------------------------------------------

    def _glue(self, what: Quantity) -> Glue:
        """What is at hand, and what differs."""
        unit = self.units.mine
        gradients = {}
        for name, gradient in self.mine.inputs.items():
            if name in self.theirs.inputs:
                gradients[name] = gradient, self.theirs.inputs[name]
        right, wrong = self.mine.values(), self.theirs.values()
        found = self.forcing.found.beyond
        beyond = {tap: call for tap, call in found.items() if tap.path and tap.call > 1}
        return Glue(
            _at_hand(unit, {**beyond, **self.forcing.calls}),
            right.get(what),
            wrong.get(what),
            None if what.gradient else what,
            gradients,
            frozenset(beyond) - frozenset(self.forcing.calls),
        )

    def _in_place_of_lone(self, place: Place, glue: Glue) -> Place | None:
        """A call that only the reference makes, and that gives what differs, as the place."""
        if place.what.gradient:
            return None
        for mine, its in self._handed(glue):
            for name, call in self.forcing.calls.items():
                is_lone = name not in self.forcing.taps
                if is_lone and _have_same_numbers(call.output, mine):
                    return self._instead(place, name, call, (mine, its))
        return None

    def _handed(self, glue: Glue) -> Iterator[tuple[Any, Any]]:
        """Arrays that differ: the one of the place, and what functions get on both sides."""
        yield glue.reference, glue.candidate
        for name, call in self.forcing.calls.items():
            other = self.forcing.found.beyond.get(name)
            if other is None or name in self.forcing.taps:
                continue
            pairs = zip(nest.leaves(call.args), nest.leaves(other.args), strict=False)
            for mine, its in pairs:
                if is_array(mine) and not _have_same_numbers(mine, its):
                    yield mine, its

    def _instead(
        self, place: Place, name: Tap, call: Call, arrays: tuple[Any, Any]
    ) -> Place:
        """A call with what the candidate has in its place: what it is given, if it is left out."""
        count = sum(one.first == name.first for one in self.forcing.calls)
        which = f"call {name.call} of {count} of " if count > 1 else ""
        units, (like, came) = self.units, arrays
        layer: tuple[str, Mapping[str, Any]] = (name.function, {})
        inside = call.caller if call.path is None else call.path
        if call.path is not None:
            layer = layer_of(units.mine, units.blocks[call.path])
        path, kind = units.path, layer[0].removeprefix(OWN)
        if inside or call.path is not None:
            path = joined(units.path, inside or "")
        given, known = next(iter(nest.leaves(call.args)), None), None
        if _have_same_numbers(given, came):
            words = f"no {which}{kind}: it is left out, and its input goes on"
            known = Explanation(words, 0.0, place.difference)
        elif is_array(came) and came.size == call.output.size:
            came = _as_laid(came, like, call.output)
        pair = Observed(call.output), Observed(came)
        accused = failing_block(units.mine, path, layer, call, pair)
        moved = replace(place, path=path, kind=kind, what=Quantity(OUTPUT), glue=None)
        return replace(moved, accused=(accused,), known=known)

    def _details(self) -> Iterator[str]:
        """Which calls one side makes and the other does not."""
        found, counts = self.forcing.found, self.units.correspondence.counts_functions
        missing, others = [], []
        for name, call in self.forcing.calls.items():
            if name not in found.observed and (counts or call.path is not None):
                missing.append(name)
        for name in found.beyond:
            if counts or not name.function:
                others.append(name)
        if missing:
            yield f"The candidate has no call for {listed(missing)}."
        if others:
            yield f"Only the candidate calls {listed(others)}."


def _have_same_numbers(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same numbers, in any shape and order."""
    if not (is_array(one) and is_array(other)) or one.size != other.size:
        return False
    return relative_difference(np.sort(one, None), np.sort(other, None)) <= MATCH


def _as_laid(array: np.ndarray, like: np.ndarray, output: np.ndarray) -> np.ndarray:
    """An array that lies as `like` does, whose numbers are those of `output`, laid as that."""
    found = np.empty(output.size, array.dtype)
    found[np.argsort(output, axis=None)] = array.ravel()[np.argsort(like, axis=None)]
    return found.reshape(output.shape)


def _with_masks(observed: Observed) -> Observed:
    """What a unit hands on, with infinities in the place of numbers that stand for them.

    Scores are masked by minus infinity, or by a number that is as good; beside such a number every
    difference of the others would be small.
    """

    def masked(leaf: Any) -> Any:
        if not is_floating(leaf):
            return leaf
        return np.where(np.abs(leaf) >= _AS_INFINITE, np.copysign(np.inf, leaf), leaf)

    given, handed = nest.map(masked, (observed.outputs, dict(observed.handed)))
    return replace(observed, outputs=given, handed=handed)


# What is at hand
# -----------------------------------------------------------------------------


def _at_hand(unit: Unit, calls: Calls) -> dict[Quantity, np.ndarray]:
    """The arrays from which a unit computes what it does between its taps."""
    found = named(own_arguments(*unit.inputs), unit.inputs)
    for name, call in calls.items():
        found |= named(outputs(call.output, name), call.output)
    return {name: leaf for name, leaf in found.items() if is_array(leaf)}
