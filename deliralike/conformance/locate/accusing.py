"""What is known of a call that differs: the layer that it is, its settings, inputs and results."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.by_name import below
from deliralike.conformance.explain import arguments
from deliralike.conformance.findings import OWN, FailingBlock, Observed, is_array
from deliralike.conformance.kinds import Named
from deliralike.conformance.locate.place import Allowed
from deliralike.conformance.observe import Around, Held, Unit, bare
from deliralike.conformance.observe.corresponding import SharedCall
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
    weights: Around
    what: Quantity
    difference: float
    pair: tuple[Observed, Observed] | None = None
    noise: Allowed = field(default_factory=dict)

    @property
    def cotangent(self) -> Any:
        """The gradient of the unit's scalar with respect to the call's output."""
        return nest.unflatten(nest.flatten(self.tap.mine.output)[1], self.weights.output)


def accused(
    unit: Unit,
    path: str,
    layer: tuple[str, Named],
    suspect: Suspect,
    weighted: bool = True,
) -> FailingBlock:
    """A suspect with all data to explain it.

    Args:
        unit: The reference's.
        path: Of the block, seen from the network.
        layer: The class or function, with its settings.
        suspect: What differs.
        weighted: Whether the cotangent of its output is known.
    """
    call = suspect.tap.mine
    mine, theirs = suspect.pair or (Observed(), Observed())
    args, kwargs = filled(unit.network, call.given)
    state, beside = {}, {}
    slots = unit.network.neutral_slots()
    if call.path is not None:
        state = {name: slot.read() for name, slot in below(call.path, slots).items()}
    elif any(isinstance(leaf, Held) for leaf in nest.leaves(call.given)):
        beside = {name: slot.read() for name, slot in slots.items()}
    cotangent = suspect.cotangent if weighted else None
    noise = {str(name): far for name, far in suspect.noise.items()}
    found = FailingBlock(
        path, *layer, state, args, kwargs, cotangent, unit.training, mine, theirs, noise, beside
    )
    block = dict(unit.network.named_blocks()).get(call.path or "")
    return _as_in_nn(found) if unit.backend.has_channels_last(block) else found


def _as_in_nn(layer: FailingBlock) -> FailingBlock:
    """A layer whose channels come last, with all its arrays as the layer of `nn` takes them."""
    sides = []
    for side in (layer.reference, layer.candidate):
        gradients = {name: _channels_second(one) for name, one in side.inputs.items()}
        sides.append(
            replace(side, outputs=nest.map(_channels_second, side.outputs), inputs=gradients)
        )
    args, kwargs, cotangent = nest.map(
        _channels_second, (layer.args, layer.kwargs, layer.cotangent)
    )
    mine, theirs = sides
    changes = {"args": args, "kwargs": kwargs, "cotangent": cotangent}
    return replace(layer, **changes, reference=mine, candidate=theirs)


def _channels_second(leaf: Any) -> Any:
    return np.moveaxis(leaf, -1, 1) if is_array(leaf) and leaf.ndim > 2 else leaf


def filled(network: AbstractNetwork, values: Any) -> Any:
    """A nest with the network's own parameters and buffers in their places."""
    slots = network.neutral_slots()
    plain = bare(values)
    return nest.map(lambda leaf: slots[leaf].read() if isinstance(leaf, Held) else leaf, plain)


def layer_of(unit: Unit, block: Any) -> tuple[str, Named]:
    """The layer of `nn` that a block is, with its settings; else its class.

    A class of a user's own may have a layer's name, but not what such a layer is made with.
    """
    known = unit.backend.neutral_layer(block)
    if known is not None:
        return known
    kind, found = type(block).__name__, settings(block)
    parameters = inspect.signature(LAYERS[kind].__init__).parameters if kind in LAYERS else {}
    wanted = [one for one in parameters.values() if one.default is one.empty and one.name != "self"]
    lacking = any(one.name not in found for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD)
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
    names = [name for name in inspect.signature(layer.__init__).parameters if name != "self"]
    given: dict[str, Any] = recorded_arguments(block) or {}
    found = {name: given.get(name, getattr(block, name, inspect.Parameter.empty)) for name in names}
    plain = {name: value for name, value in found.items() if value is not inspect.Parameter.empty}
    if "bias" in plain and "bias" not in given:
        plain["bias"] = plain["bias"] is not None
    return plain
