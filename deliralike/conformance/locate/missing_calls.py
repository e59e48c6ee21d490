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
from deliralike.conformance.locate.accusing import failing_block, layer_of
from deliralike.conformance.locate.place import joined
from deliralike.conformance.locate.units import Forcing, Units
from deliralike.conformance.observe.corresponding import of_reference
from deliralike.conformance.observe.forcing import handed_on
from deliralike.conformance.observe.units import Call
from deliralike.conformance.places import Tap


def substitutes(
    units: Units, forcing: Forcing, reference: Observed, candidate: Observed
) -> Iterator[Substitute]:
    """The reference's calls that the candidate has no call for.

    Args:
        units, forcing: The unit on both sides, and what both did at the reference's inputs.
        reference, candidate: What either side hands on.
    """
    right, wrong = _forward(reference), _forward(candidate)
    for name, call in forcing.calls.items():
        layer = None if name in forcing.taps else _layer(units, name, call)
        if layer is not None:
            follow = partial(_handed_on, units, forcing, name)
            count = sum(one.first == name.first for one in forcing.calls)
            which = f"call {name.call} of {count}" if count > 1 else ""
            yield Substitute(_failing(units, layer, call), follow, right, wrong, which)


def _layer(units: Units, name: Tap, call: Call) -> tuple[str, Named] | None:
    """The class or function of a call, and its settings; None where `nn` has no such function."""
    if call.path is not None:
        return layer_of(units.reference, units.blocks[call.path])
    return (name.function, {}) if arguments.is_known(name.function) else None


def _handed_on(units: Units, forcing: Forcing, name: Tap, output: Any) -> Tensors:
    """What the reference hands on with another result of a call; nothing where it refuses that."""
    given = of_reference(forcing.taps)
    try:
        return _forward(handed_on(units.reference, given, {name: output}))
    except Exception:  # noqa: BLE001  # of a stranger's network, such as of sequences of no length
        return {}


def _failing(units: Units, layer: tuple[str, Named], call: Call) -> FailingBlock:
    path, slots = call.caller if call.path is None else call.path, {}
    if call.path:
        slots = below(call.path, units.reference.network.neutral_slots())
    parameters = {name: None for name, slot in slots.items() if slot.is_parameter}
    pair = Observed(call.output, parameters=parameters), Observed()
    is_own = call.path is None and not call.caller
    where = units.path if is_own else joined(units.path, path)
    return failing_block(units.reference, where, layer, call, pair)


def _forward(one: Observed) -> Tensors:
    """The results of the forward pass, by words."""
    return {str(name): value for name, value in one.values().items()}
