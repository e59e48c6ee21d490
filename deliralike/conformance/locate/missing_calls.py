"""Calls of the reference's that the candidate has no call for: what conventions may stand in for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deliralike.conformance.by_name import below
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.findings import Observed
from deliralike.conformance.kinds import Named, Tensors
from deliralike.conformance.locate.accusing import Suspect, accused, layer_of
from deliralike.conformance.locate.place import joined
from deliralike.conformance.locate.units import Forcing, Units
from deliralike.conformance.observe import Around, Call, Calls, Unit, handed_on
from deliralike.conformance.places import OUTPUT, Quantity, Tap

Layer = tuple[str, Named]  # its class or function, and its settings
Follow = Callable[[Any], Tensors]  # from what a call gives to what its unit hands on


def substitutes(
    units: Units, forcing: Forcing, mine: Observed, theirs: Observed
) -> Iterator[Substitute]:
    """The reference's calls that the candidate has no call for.

    Args:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        mine, theirs: What either side hands on.
    """
    lacking = _Lacking(units, forcing, _forward(mine), _forward(theirs))
    for name, call in forcing.calls.items():
        if name not in forcing.taps:
            yield from lacking.of_call(name, call)


@dataclass(frozen=True)
class _Lacking:
    """What may stand in for a unit's calls.

    Attributes:
        mine, theirs: What either side's unit hands on, by words.
    """

    units: Units
    forcing: Forcing
    mine: Tensors
    theirs: Tensors

    def of_call(self, name: Tap, call: Call) -> Iterator[Substitute]:
        """A call by itself."""
        where = joined(self.units.path, call.within)

        def follow(output: Any) -> Tensors:
            return self._handed_on({name: output})

        layer: Layer = (name.function, {})
        if call.path is not None:
            where = joined(self.units.path, call.path)
            layer = layer_of(self.units.mine, self.units.blocks[call.path])
        elif not arguments.is_known(name.function):
            return
        yield self._standing(where, layer, call, name, follow)

    def _handed_on(self, results: Mapping[Tap, Any]) -> Tensors:
        """What the reference hands on with other results of calls; nothing where it refuses them."""
        given = {name: tap.mine for name, tap in self.forcing.taps.items()}
        try:
            return _forward(handed_on(self.units.mine, given, results))
        except Exception:  # noqa: BLE001  # of a stranger's network, such as of sequences of no length
            return {}

    def _standing(
        self, path: str, layer: Layer, call: Call, name: Tap, follow: Follow
    ) -> Substitute:
        tap = self.units.correspondence.alone(name, call)
        parameters = _parameters(self.units.mine, call.path)
        pair = Observed(call.output, parameters=parameters), Observed()
        suspect = Suspect(name, tap, Around([], []), Quantity(OUTPUT), 0.0, pair)
        one = accused(self.units.mine, path, layer, suspect, weighted=False)
        which = _which(name, self.forcing.calls)
        return Substitute(one, follow, self.mine, self.theirs, which)


def _which(name: Tap, calls: Calls) -> str:
    """Which one of several calls it is, in words; empty for the only one."""
    count = sum(one.first == name.first for one in calls)
    return f"call {name.call} of {count}" if count > 1 else ""


def _parameters(unit: Unit, path: str | None) -> dict[str, None]:
    """The names of the parameters of a block, without gradients; of a function there are none."""
    if not path:
        return {}
    slots = below(path, unit.network.neutral_slots())
    return {name: None for name, slot in slots.items() if slot.is_parameter}


def _forward(one: Observed) -> Tensors:
    """The results of the forward pass, by words."""
    return {str(name): value for name, value in one.values().items()}
