"""Calls of the reference's that the candidate has no call for: what conventions may stand in for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from deliralike.conformance.by_name import below
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.substitution import Substitute
from deliralike.conformance.findings import FailingBlock, Observed
from deliralike.conformance.kinds import Named, Tensors
from deliralike.conformance.locate.accusing import Suspect, accused, layer_of
from deliralike.conformance.locate.place import joined
from deliralike.conformance.locate.units import Forcing, Units
from deliralike.conformance.observe import Around, Call, Calls, Unit, handed_on
from deliralike.conformance.places import OUTPUT, Quantity, Tap


def substitutes(
    units: Units, forcing: Forcing, mine: Observed, theirs: Observed
) -> Iterator[Substitute]:
    """The reference's calls that the candidate has no call for.

    Args:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        mine, theirs: What either side hands on.
    """
    right, wrong = _forward(mine), _forward(theirs)
    for name, call in forcing.calls.items():
        layer = None if name in forcing.taps else _layer(units, name, call)
        if layer is not None:
            follow = partial(_handed_on, units, forcing, name)
            which = _which(name, forcing.calls)
            yield Substitute(_failing(units, layer, name, call), follow, right, wrong, which)


def _layer(units: Units, name: Tap, call: Call) -> tuple[str, Named] | None:
    """The class or function of a call, and its settings; None where `nn` has no such function."""
    if call.path is not None:
        return layer_of(units.mine, units.blocks[call.path])
    return (name.function, {}) if arguments.is_known(name.function) else None


def _handed_on(units: Units, forcing: Forcing, name: Tap, output: Any) -> Tensors:
    """What the reference hands on with another result of a call; nothing where it refuses that."""
    given = {tap: one.mine for tap, one in forcing.taps.items()}
    try:
        return _forward(handed_on(units.mine, given, {name: output}))
    except Exception:  # noqa: BLE001  # of a stranger's network, such as of sequences of no length
        return {}


def _failing(units: Units, layer: tuple[str, Named], name: Tap, call: Call) -> FailingBlock:
    tap = units.correspondence.alone(name, call)
    pair = Observed(call.output, parameters=_parameters(units.mine, call.path)), Observed()
    suspect = Suspect(name, tap, Around([], []), Quantity(OUTPUT), 0.0, pair)
    path = joined(units.path, call.within if call.path is None else call.path)
    return accused(units.mine, path, layer, suspect, weighted=False)


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
