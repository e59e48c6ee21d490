"""What is known of a call that differs: the layer that it is, its settings, inputs and results."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from deliralike import nest
from deliralike.conformance.by_name import below
from deliralike.conformance.explain import arguments
from deliralike.conformance.findings import OWN, FailingBlock, Observed
from deliralike.conformance.kinds import Named
from deliralike.conformance.locate.place import Allowed
from deliralike.conformance.observe.arrays import SlotName, bare
from deliralike.conformance.observe.corresponding import SharedCall
from deliralike.conformance.observe.units import Call, CallCotangents, Unit
from deliralike.conformance.places import Quantity, Tap
from deliralike.network.arguments import recorded_arguments
from deliralike.network.base import AbstractNetwork
from deliralike.nn.layers import LAYERS


@dataclass(frozen=True)
class Suspect:
    """A call that differs.

    Attributes:
        name: Of the tap.
        tap: The call on both sides.
        weights: The cotangents of its inputs and output.
        what: The first that differs.
        difference: Of that.
        pair: What both sides gave; None for a block of blocks, since that is a lot.
        noise: What rounding alone may do.
    """

    name: Tap
    tap: SharedCall
    weights: CallCotangents
    what: Quantity
    difference: float
    pair: tuple[Observed, Observed] | None = None
    noise: Allowed = field(default_factory=dict)

    @property
    def cotangent(self) -> Any:
        """The gradient of the unit's scalar with respect to the call's output."""
        return nest.unflatten(
            nest.flatten(self.tap.reference.output)[1], self.weights.output
        )

    def block(self, unit: Unit, path: str, layer: tuple[str, Named]) -> FailingBlock:
        """The call with all data to explain it."""
        pair, call = self.pair or (Observed(), Observed()), self.tap.reference
        return failing_block(unit, path, layer, call, pair, self.cotangent, self.noise)


def failing_block(
    unit: Unit,
    path: str,
    layer: tuple[str, Named],
    call: Call,
    pair: tuple[Observed, Observed],
    cotangent: Any = None,
    noise: Allowed | None = None,
) -> FailingBlock:
    """A call with all data to explain it.

    Args:
        unit: The reference's.
        path: Of the block, seen from the network.
        layer: The class or function, with its settings.
        call: The reference's.
        pair: What both sides gave.
        cotangent: Of the call's output; None where it is not known.
        noise: What rounding alone may do.
    """
    args, kwargs = filled(unit.network, call.given)
    state = {}
    if call.path is not None:
        slots = below(call.path, unit.network.neutral_slots())
        state = {name: slot.read() for name, slot in slots.items()}
    words = {str(name): far for name, far in (noise or {}).items()}
    return FailingBlock(
        path, *layer, state, args, kwargs, cotangent, unit.training, *pair, words
    )


def filled(network: AbstractNetwork, values: Any) -> Any:
    """A nest with the network's own parameters and buffers in their places."""
    slots = network.neutral_slots()
    plain = bare(values)
    return nest.map(
        lambda leaf: slots[leaf].read() if isinstance(leaf, SlotName) else leaf, plain
    )


def layer_of(unit: Unit, block: Any) -> tuple[str, Named]:
    """The layer of `nn` that a block is, with its settings; else its class.

    A class of a user's own may have a layer's name, but not what such a layer is made with.
    """
    known = unit.backend.neutral_layer(block)
    if known is not None:
        return known
    kind, found = type(block).__name__, settings(block)
    parameters = (
        inspect.signature(LAYERS[kind].__init__).parameters if kind in LAYERS else {}
    )
    wanted = [
        one
        for one in parameters.values()
        if one.default is one.empty and one.name != "self"
    ]
    lacking = any(
        one.name not in found for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD
    )
    if lacking or (kind not in LAYERS and arguments.plain(kind) != kind):
        return f"{OWN}{kind}", {}
    return kind, found


def settings(block: Any) -> dict[str, Any]:
    """Return the settings of a layer by the names of the layer of `nn` of its class.

    They are the arguments that it was made with, or else its attributes.
    """
    layer = LAYERS.get(type(block).__name__)
    if layer is None:
        return {}
    names = [
        name for name in inspect.signature(layer.__init__).parameters if name != "self"
    ]
    given: dict[str, Any] = recorded_arguments(block) or {}
    found = {
        name: given.get(name, getattr(block, name, inspect.Parameter.empty))
        for name in names
    }
    plain = {
        name: value
        for name, value in found.items()
        if value is not inspect.Parameter.empty
    }
    if "bias" in plain and "bias" not in given:
        plain["bias"] = plain["bias"] is not None
    return plain
