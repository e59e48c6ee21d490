"""What a unit does between its taps, where that differs: the place, and the data to explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.by_name import block_kinds, without
from deliralike.conformance.explain.search import LOSSES
from deliralike.conformance.explain.wiring import Differing, Made, Stopped, Use, Wiring
from deliralike.conformance.findings import LIMIT, Observed, is_array, is_floating, is_number
from deliralike.conformance.kinds import Named
from deliralike.conformance.locate.accusing import Suspect, accused, filled, layer_of
from deliralike.conformance.locate.differing import (
    all_differences,
    first_difference,
    forward_differences,
)
from deliralike.conformance.locate.lacking import substitutes
from deliralike.conformance.locate.place import LOSS, Allowed, Place, joined
from deliralike.conformance.locate.units import (
    Forcing,
    Units,
    force_candidate,
    force_reference,
)
from deliralike.conformance.observe import Around, Call, Calls, Unit
from deliralike.conformance.observe.corresponding import Correspondence, SharedCall
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
from deliralike.network.core import innermost
from deliralike.nn.layers import LAYERS

_AS_INFINITE = 1e9  # scores of this size mask


def between(units: Units, forcing: Forcing, allowed: Mapping[Tap, Allowed]) -> Iterator[Place]:
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
            if what is not None and self.units.matters(self.forcing, UNIT, what):
                differing = [(what, distance)]
        if not differing:
            return
        what, difference = differing[0]
        path, kind = self._owner(what)
        wiring = self._wiring([name for name, _ in differing])
        place = Place(path, kind, what, difference, (), tuple(self._details()), wiring)
        if not what.gradient:
            standing = substitutes(self.units, self.forcing, self.mine, self.theirs)
            place = replace(place, substitutes=tuple(standing))
        other = self._made_otherwise(wiring, what)
        if other is None:
            yield place
            return
        unit, function = self.units.mine, other.name.function
        layer: tuple[str, Named] = (function, {})
        if other.name.path:
            path = joined(self.units.path, other.name.path)
            layer = layer_of(unit, self.units.blocks[other.name.path])
        else:
            place = replace(place, kind=function)
        yield replace(place, accused=(accused(unit, path, layer, other),))

    def _owner(self, what: Quantity) -> tuple[str, str]:
        """The path and class of the unit, or of the block in it that makes what a tap is given."""
        call = self.forcing.calls.get(what.tap)
        if call is not None and call.within and what.kind == INPUT:
            kind = block_kinds(self.units.mine.network)[call.within]
            return joined(self.units.path, call.within), kind
        path = self.units.path
        return path, "" if path == LOSS else kind_of(self.units.mine.network)

    def _differing(self) -> list[tuple[Quantity, float]]:
        """Return the forward results of a unit that differ, with their distances.

        They have the order of the candidate's calls.
        """
        position = {name: place for place, name in enumerate(self.order)}
        distances = forward_differences(self.mine, self.theirs)
        wrong = [(what, distance) for what, distance in distances.items() if distance > LIMIT]
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
    def told(self) -> dict[Tap, Call]:
        """The calls that both sides have to make."""
        calls = self.forcing.calls.items()
        return {name: call for name, call in calls if self.counts or call.path is not None}

    # The data to explain it
    # -------------------------------------------------------------------------

    def _wiring(self, names: Sequence[Quantity]) -> Wiring:
        """What is at hand, what differs, and what either side calls."""
        unit, forcing = self.units.mine, self.forcing
        right, wrong, gradients = self.mine.values(), self.theirs.values(), {}
        for name, gradient in self.mine.inputs.items():
            if name in self.theirs.inputs:
                gradients[name] = gradient, self.theirs.inputs[name]
        beyond, known = {}, block_kinds(unit.network)
        for tap, call in forcing.found.beyond.items():
            beyond[tap] = _made(unit, call, tap, forcing.taps.get(tap.first))
        for tap, made in self._padded():
            beyond.setdefault(tap, made)
            if np.isinf(beyond[tap].off):
                beyond[tap] = made
        kinds = {tap: known[tap.path] for tap in forcing.calls if tap.path}
        told, slots = self.told.items(), unit.network.neutral_slots()
        return Wiring(
            _at_hand(unit, forcing.calls),
            right.get(names[0]),
            wrong.get(names[0]),
            gradients,
            tuple(Differing(name, right[name], wrong[name]) for name in names if name in right),
            {tap: call.given for tap, call in told if self.counts or tap in forcing.taps},
            beyond,
            tuple(tap for tap in self.order if tap in self.told),
            tuple(_uses(forcing)),
            _stopped(self.units, forcing),
            {tap: call.given for tap, call in forcing.calls.items()},
            kinds,
            {name: slot.read() for name, slot in slots.items() if not slot.is_parameter},
        )

    def _padded(self) -> Iterator[tuple[Tap, Made]]:
        """The reference's layers of packed sequences, called with the sequences and their padding."""
        unit = self.units.mine
        for tap, call in self.forcing.calls.items():
            is_plain = any(map(is_array, call.args[:1]))
            if call.path is None or tap in self.forcing.taps or is_plain:
                continue
            for sequences in filter(is_array, nest.leaves(unit.inputs)):
                output = _again(unit, tap, ((sequences,), {})) if sequences.ndim == 3 else None
                if output is not None:
                    yield tap, Made((sequences,), {}, output)

    def _made_otherwise(self, wiring: Wiring, what: Quantity) -> Suspect | None:
        """The function or layer whose result the reference has, and the candidate another one.

        None where the candidate calls it, or nothing else gives that result.
        """
        expected: Any = self.mine.values().get(what)
        came = self.theirs.values().get(what)
        if not is_number(expected):
            return None
        for name, call in reversed(list(self.forcing.calls.items())):
            if not self._may_give_all(name, call) or not np.array_equal(call.output, expected):
                continue
            if not is_number(came):
                return None
            weights = self.forcing.weights[name]
            pair = _as_function(call, weights, came, wiring)
            tap = Correspondence().alone(name, call)
            return Suspect(name, tap, weights, what, np.inf, pair)
        return None

    def _may_give_all(self, name: Tap, call: Call) -> bool:
        """Whether a call is a function or layer that the candidate lacks, and gives an array."""
        if name in self.forcing.found.observed or not is_number(call.output):
            return False
        if name.path and layer_of(self.units.mine, self.units.blocks[name.path])[0] not in LAYERS:
            return False
        # anything may be made to give one number
        return np.size(call.output) > 1 or name.function in LOSSES

    def _details(self) -> Iterator[str]:
        """Which taps one side has and the other has not, and whether they come in another order."""
        observed = self.forcing.found.observed
        missing = [name for name in self.told if name not in observed]
        if missing and self.counts:
            yield f"The candidate does not call {listed(missing)}."
        elif missing:
            yield f"No call of the candidate corresponds to {listed(missing)}."
        others = [name for name in self.forcing.found.beyond if self.counts or not name.function]
        if others:
            yield f"Only the candidate calls {listed(others)}."
        met = [name for name in self.order if name in self.told]
        order = [name for name in self.told if name in observed]
        for mine, theirs in zip(order, met, strict=True):
            if mine != theirs:
                yield f"The candidate calls {theirs} where the reference calls {mine}."
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


def _uses(forcing: Forcing) -> Iterator[Use]:
    """What each tap is given, with the gradient that comes back from there."""
    for name, call in forcing.calls.items():
        leaves = nest.leaves(call.given)
        for leaf, gradient in zip(leaves, forcing.weights[name].inputs, strict=True):
            if is_array(leaf) and gradient is not None:
                yield Use(name, leaf, gradient)


def _made(unit: Unit, call: Call, name: Tap, first: SharedCall | None) -> Made:
    """A call that only the candidate makes, done again on the reference's side.

    Args:
        unit: The reference's.
        call: The candidate's call.
        name: Of the call.
        first: The first call of the same block, if both sides make it.
    """
    given, result = call.given, call.output
    if first is not None:
        given = first.inputs.back(given, first.mine.given)
        result = first.output.back(result, first.mine.output)
    output = _again(unit, name, given)
    if output is None:
        return Made(call.args, call.kwargs, call.output, np.inf)
    pairs = zip(nest.leaves(result), nest.leaves(output), strict=False)
    far = [relative_difference(y, x) for x, y in pairs if is_number(x) and is_number(y)]
    args, kwargs = filled(unit.network, given)
    return Made(args, kwargs, result, max(far, default=0.0))


def _again(unit: Unit, name: Tap, given: Any) -> Any:
    """What a block or function of the reference gives for other arguments; None if it raises."""
    network, backend = unit.network, unit.network.backend
    again: Any = dict(network.named_blocks()).get(name.path)
    if name.function:
        again = getattr(backend.nn, name.function, None)
    state = network.neutral_state()
    try:
        args, kwargs = backend.prepare(filled(network, given), network)
        with network.training_mode(unit.training), random.portable():
            return backend.to_numpy(again(*args, **kwargs))
    except Exception:  # noqa: BLE001
        return None
    finally:
        if state:
            network.load_neutral_state(state)


def _stopped(units: Units, forcing: Forcing) -> Stopped | None:
    """The side whose own `stop_gradient` makes the difference: without it nothing differs."""
    mine, theirs = forcing.sides()
    if any(name.stops for name in forcing.found.beyond):
        opened = replace(units, theirs=replace(units.theirs, opened=True))
        theirs = force_candidate(opened, forcing.taps, forcing.weights).observed[UNIT]
        return _alike("candidate", mine, theirs)
    own = [name for name in forcing.taps if name.stops and name not in forcing.found.observed]
    if own or any(name.stops for name in forcing.expected.beyond):
        opened = replace(units, mine=replace(units.mine, opened=True))
        left = without(forcing.taps, own)
        mine = force_reference(opened, left, forcing.weights).observed[UNIT]
        return _alike("reference", mine, theirs)
    return None


def _alike(side: str, mine: Observed, theirs: Observed) -> Stopped | None:
    apart = max(all_differences(mine, theirs).values(), default=0.0)
    return Stopped(side, apart) if apart <= LIMIT else None


def _as_function(
    call: Call, weights: Around, wrong: Any, wiring: Wiring
) -> tuple[Observed, Observed]:
    """What the reference's function gave, and what the candidate gave in its place.

    Gradients are known of those inputs that nothing else makes use of.
    """
    given = named(own_arguments(*call.given), call.given)
    right: dict[Quantity, Any] = {}
    theirs: dict[Quantity, Any] = {}
    for (name, leaf), gradient in zip(given.items(), weights.inputs, strict=True):
        if gradient is None:
            continue
        for source, (own, other) in wiring.gradients.items():
            is_same = source in wiring.sources and np.array_equal(wiring.sources[source], leaf)
            if is_same and compare({"": gradient}, {"": own}).difference <= LIMIT:
                right[name], theirs[name] = gradient, other
                break
    return Observed(call.output, right), Observed(wrong, theirs)
