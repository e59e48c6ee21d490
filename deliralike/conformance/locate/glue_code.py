"""What a unit does between its taps, where that differs: the place, and the data to explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.explain.glue import Glue
from deliralike.conformance.findings import LIMIT, Observed, is_array, is_floating
from deliralike.conformance.locate.differing import (
    first_difference,
    forward_differences,
)
from deliralike.conformance.locate.missing_calls import substitutes
from deliralike.conformance.locate.place import LOSS, Allowed, Place, joined
from deliralike.conformance.locate.units import (
    Forcing,
    Units,
)
from deliralike.conformance.observe.units import Call, Calls, Unit
from deliralike.conformance.places import (
    INPUT,
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
from deliralike.network.core import unwrap

_AS_INFINITE = 1e9  # scores of this size mask


def between(
    units: Units, forcing: Forcing, allowed: Mapping[Tap, Allowed]
) -> Iterator[Place]:
    """The unit itself, where its own code differs."""
    reference, candidate = forcing.sides()
    if not units.correspondence.counts_functions:
        reference, candidate = _with_masks(reference), _with_masks(candidate)
    yield from _Between(units, forcing, reference, candidate).places(allowed.get(UNIT))


def kind_of(network: AbstractNetwork) -> str:
    """The class of a unit."""
    return type(unwrap(network)).__name__


@dataclass(frozen=True)
class _Between:
    """What a unit does between its taps.

    Attributes:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        reference, candidate: What either side hands on.
    """

    units: Units
    forcing: Forcing
    reference: Observed
    candidate: Observed

    def places(self, allowed: Allowed | None) -> Iterator[Place]:
        """The place, if anything differs by more than is allowed."""
        differing = self._differing()
        if not differing:
            what, distance = first_difference(self.reference, self.candidate, allowed)
            if what is not None:
                differing = [(what, distance)]
        if not differing:
            return
        what, difference = differing[0]
        path, kind = self._owner(what)
        place = Place(
            path, kind, what, difference, (), tuple(self._details()), self._glue(what)
        )
        if not what.gradient:
            standing = substitutes(
                self.units, self.forcing, self.reference, self.candidate
            )
            place = replace(place, substitutes=tuple(standing))
        yield place

    def _owner(self, what: Quantity) -> tuple[str, str]:
        """The path and class of the unit, or of the block in it that makes what a tap is given."""
        call = self.forcing.calls.get(what.tap)
        if call is not None and call.caller and what.kind == INPUT:
            kind = block_kinds(self.units.reference.network)[call.caller]
            return joined(self.units.path, call.caller), kind
        path = self.units.path
        return path, "" if path == LOSS else kind_of(self.units.reference.network)

    def _differing(self) -> list[tuple[Quantity, float]]:
        """Return the forward results of a unit that differ, with their distances.

        They have the order of the candidate's calls.
        """
        position = {name: place for place, name in enumerate(self.order)}
        distances = forward_differences(self.reference, self.candidate)
        wrong = [
            (what, distance) for what, distance in distances.items() if distance > LIMIT
        ]
        return sorted(wrong, key=lambda pair: position.get(pair[0].tap, len(position)))

    @cached_property
    def order(self) -> list[Tap]:
        """The forced taps in the order of the candidate's calls."""
        return [name for name in self.forcing.found.observed if name != UNIT]

    @property
    def counts(self) -> bool:
        """Whether functions have to be called by both sides: where code is written once."""
        return self.units.correspondence.counts_functions

    @cached_property
    def required_calls(self) -> dict[Tap, Call]:
        """The calls that both sides have to make."""
        calls = self.forcing.calls.items()
        return {
            name: call for name, call in calls if self.counts or call.path is not None
        }

    # The data to explain it
    # -------------------------------------------------------------------------

    def _glue(self, what: Quantity) -> Glue:
        """What is at hand, and what differs."""
        unit = self.units.reference
        gradients = {}
        for name, gradient in self.reference.inputs.items():
            if name in self.candidate.inputs:
                gradients[name] = gradient, self.candidate.inputs[name]
        right, wrong = self.reference.values(), self.candidate.values()
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

    def _details(self) -> Iterator[str]:
        """Which taps one side has and the other has not, and whether they come in another order."""
        observed = self.forcing.found.observed
        missing = [name for name in self.required_calls if name not in observed]
        if missing and self.counts:
            yield f"The candidate does not call {listed(missing)}."
        elif missing:
            yield f"No call of the candidate corresponds to {listed(missing)}."
        others = [
            name
            for name in self.forcing.found.beyond
            if self.counts or not name.function
        ]
        if others:
            yield f"Only the candidate calls {listed(others)}."
        met = [name for name in self.order if name in self.required_calls]
        order = [name for name in self.required_calls if name in observed]
        for expected, actual in zip(order, met, strict=True):
            if expected != actual:
                yield f"The candidate calls {actual} where the reference calls {expected}."
                return


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
