"""The same for networks whose names, layouts or signatures differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from deliralike import nest
from deliralike.conformance.by_name import below, start, without
from deliralike.conformance.findings import Observed, is_array
from deliralike.conformance.kinds import Function, Named, Shape
from deliralike.conformance.layout_adapter import Layout
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.aligning import (
    TRANSPOSED,
    Alignment,
    Orders,
    align,
)
from deliralike.conformance.observe.corresponding import (
    Correspondence,
    Counterpart,
    SharedCall,
    SharedCalls,
)
from deliralike.conformance.observe.forcing import force
from deliralike.conformance.observe.recording import record
from deliralike.conformance.observe.units import (
    Call,
    Calls,
    Cotangents,
    Forced,
    Recording,
    Unit,
)
from deliralike.conformance.places import (
    ARGUMENT,
    UNIT,
    Quantity,
    Tap,
    arguments,
    outputs,
)
from deliralike.network.base import AbstractNetwork
from deliralike.weights.matching.layouts import Transform, plain

# Functions that stand for no step of their own, so that namesakes need not be the same one.
_ELEMENTARY = frozenset(
    [
        "abs",
        "clamp",
        "concatenate",
        "cos",
        "erf",
        "exp",
        "log",
        "matmul",
        "max_along",
        "mean",
        "min",
        "pad",
        "prod",
        "select",
        "sin",
        "sqrt",
        "stack",
        "sum",
        "tril",
        "triu",
        "var",
        "where",
    ]
)


@dataclass(frozen=True)
class Matched(Correspondence):
    """Networks whose names, layouts or signatures differ, such as a port and its original.

    Attributes:
        match: Of the tensors' and blocks' names.
        layout: How the network as a whole is seen by the loss.
        inside: The unit's path in the reference, and in the candidate; None for the loss.
        call: How the unit was called; None for the loss.
        orders: The candidate's layouts, as far as they were seen.
    """

    counts_functions: ClassVar[bool] = False

    match: Match
    layout: Layout = field(default_factory=Layout)
    inside: tuple[str, str] | None = None
    call: SharedCall | None = None
    orders: Orders = field(default_factory=Orders)

    def tap(self, path: str) -> str | None:
        """As in `Correspondence`."""
        if path and _join(self._inside[0], path) in self.match.blocks:
            return path
        return None

    def tap_of(self, path: str) -> str | None:
        """As in `Correspondence`."""
        return self._names().get(path) if path else None

    def within(self, path: str, tap: SharedCall) -> Matched:
        """As in `Correspondence`."""
        inside = _join(self._inside[0], path)
        return replace(self, inside=(inside, self.match.blocks[inside]), call=tap)

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """As in `Correspondence`."""
        partner = self.match.blocks.get(_join(self._inside[0], path))
        begin = start(self._inside[1])
        if partner is None or not partner.startswith(begin):
            return None
        return dict(candidate.named_blocks()).get(partner.removeprefix(begin))

    def loss(self, loss: Function) -> Function:
        """As in `Correspondence`."""
        return self.layout.loss(loss)

    def counterpart(self, calls: Calls, other: Unit, cotangent: Any) -> Counterpart:
        """As in `Correspondence`: those whose arguments and results are found in the candidate's."""
        free = record(other, self._cotangent(cotangent))
        shared = dict(self._shared(calls, free.calls))
        return Counterpart(shared, self._free(free), free.calls)

    def _shared(self, calls: Calls, own: Calls) -> Iterator[tuple[Tap, SharedCall]]:
        """The calls of which the candidate makes one with the same arrays."""
        free = [name for name, call in own.items() if call.path is None]
        for name, call in calls.items():
            if call.path is not None:
                tap = self._tap(name, call, own.get(name)) or self._resized(
                    name, call, own
                )
            else:
                tap = self._function(name, call, own, free)
            if tap is not None:
                yield name, tap

    def more(
        self,
        calls: Calls,
        taps: SharedCalls,
        beyond: Calls,
        wrong: Callable[[Tap], bool],
    ) -> dict[Tap, SharedCall]:
        """As in `Correspondence`: those with the same arrays.

        Where there are none, the first one that has a namesake is taken for it, if there are as
        many of that name on both sides, and what follows it is wrong.
        """
        left = {name: call for name, call in calls.items() if name not in taps}
        found = dict(self._shared(left, beyond))
        if found:
            return found
        own = {name: call for name, call in beyond.items() if call.path is None}
        for name, call in left.items():
            if (
                call.path is not None
                or name.function in _ELEMENTARY
                or self._is_computed(call, own)
            ):
                continue  # other code may put it together in another way, and rightly so
            namesakes = [other for other in own if other.operation == name.operation]
            count = sum(other.operation == name.operation for other in left)
            if len(namesakes) == count and wrong(name):
                tap = self._tap(namesakes[0], call, own[namesakes[0]])
                return {} if tap is None else {name: tap}
        return {}

    def _is_computed(self, call: Call, own: Calls) -> bool:
        """Whether some call of the candidate gives what a call of the reference gives."""
        found = (align(call.output, one.output, self.orders) for one in own.values())
        return any(one.leaves and one.by_value for one in found)

    def _tap(self, name: Tap, call: Call, partner: Call | None) -> SharedCall | None:
        """The candidate's call of a block, if it holds what the reference's does.

        Args:
            name: The candidate's.
            call, theirs: Of both sides.
        """
        if partner is None:
            return None
        path = _join(self._inside[0], call.path or "")
        inputs = align(call.given, partner.given, self.orders)
        inputs = self._as_weight(inputs, path, 1)
        output = self._as_weight(
            align(call.output, partner.output, self.orders), path, 0
        )
        if _is_upright(inputs):
            output = _upright(output)
        if not (inputs.complete and output.leaves):
            return None
        return SharedCall(name, call, partner, inputs, output)

    def _resized(self, name: Tap, call: Call, own: Calls) -> SharedCall | None:
        """The candidate's call of a block that is given the same and gives pictures of another size.

        What follows gets the reference's result.
        """
        partner = own.get(name)
        if partner is None or not all(
            map(_is_sequence_or_picture, (call.output, partner.output))
        ):
            return None
        inputs = align(call.given, partner.given, self.orders)
        if not (inputs.leaves and inputs.by_value):
            return None
        output = self.orders.turned(call.output)
        alignment = align(call.output, output, self.orders)
        return SharedCall(
            name, call, replace(partner, output=output), inputs, alignment
        )

    def _as_weight(self, alignment: Alignment, path: str, axis: int) -> Alignment:
        """The alignment with arrays in the order that the block's weight has along an axis.

        A map may be flattened in another order. What arrays say goes before a weight that is open,
        not before the values of a weight.
        """
        how = self._flattenings.get((path, axis))
        if how is None:
            return alignment
        split, is_certain = how
        leaves = []
        for leaf in alignment.leaves:
            is_as_long = leaf.transform.end[-1:] == (math.prod(split),)
            if is_as_long and (is_certain or not leaf.by_value):
                leaf = replace(leaf, transform=_flattened(leaf.transform, split))
            leaves.append(leaf)
        return replace(alignment, leaves=tuple(leaves))

    @cached_property
    def _flattenings(self) -> dict[tuple[str, int], tuple[tuple[int, ...], bool]]:
        """How a weight's axis is split that is in another order, and whether by its own values."""
        found = {}
        for pair in self.match.names:
            how = pair.transform
            path, _, leaf = pair.reference[0].source.rpartition(".")
            if leaf != "weight" or len(how.start) != 2 or how.start != how.end:
                continue
            by_value = pair.decided == "value"
            for axis in (0, 1):
                exchanged = (*range(axis), axis + 1, axis, *range(axis + 2, 3))
                if how.axes == exchanged:
                    found[path, axis] = how.split[axis : axis + 2], by_value
                elif how.plain and by_value:
                    found[path, axis] = how.start[axis : axis + 1], True
        return found

    def _function(
        self, name: Tap, call: Call, own: Calls, free: list[Tap]
    ) -> SharedCall | None:
        """The candidate's call of a function with the same arrays."""
        for other in free:
            if other.operation == name.operation:
                tap = self._tap(other, call, own[other])
                if tap is None and name.operation in _WINDOWS:
                    tap = self._resized(other, call, own)
                if tap is not None and tap.inputs.leaves and tap.inputs.by_value:
                    free.remove(other)
                    return tap
        return None

    def _free(self, recording: Recording) -> Observed | None:
        """What the unit did by itself, in the names and layouts of the reference."""
        if self.call is None:
            return None
        partner = self.call.candidate
        names = arguments(partner.args, {})
        gradients = dict(zip(names, nest.leaves(recording.inputs), strict=False))
        return Observed(
            self.call.output.back(recording.output, self.call.reference.output),
            _named_as(gradients, [_given(self.call)]),
            self._below(self._inside, recording.parameters, gradients=True),
            self._below(self._inside, recording.state),
        )

    def forced(
        self,
        unit: Unit,
        taps: SharedCalls,
        weights: Cotangents,
        cotangent: Any,
    ) -> Forced:
        """As in `Correspondence`."""
        given = {tap.name: tap.given for tap in taps.values()}
        weighing = {tap.name: tap.weights(weights[name]) for name, tap in taps.items()}
        found = force(unit, given, weighing, self._cotangent(cotangent))
        names = {tap.name: name for name, tap in taps.items()} | {UNIT: UNIT}
        observed = {}
        for other, one in found.observed.items():
            name = names[other]
            observed[name] = self._observed(name, one, taps)
        return replace(found, observed=observed)

    def to_reference(self, recording: Recording, reference: Recording) -> Recording:
        """As in `Correspondence`; of a recording of the whole network."""
        names = {b: a for a, b in self.match.blocks.items()}
        calls = {}
        for name, call in recording.calls.items():
            own = replace(name, path=names.get(name.path, name.path))
            if name.path in names and own in reference.calls:
                output = self._like(call.output, reference.calls[own].output)
                calls[own] = replace(call, output=output)
        return Recording(
            recording.output,
            calls,
            self.match.to_reference(recording.parameters, gradients=True),
            recording.inputs,  # of the loss, which takes them in the reference's layout
            self.match.to_reference(recording.state),
        )

    def is_input(self, path: str) -> bool:
        """As in `Correspondence`."""
        return not self.layout.given or path in self.layout.given

    def unmatched(self, reference: Named, candidate: Named) -> dict[str, Any]:
        """As in `Correspondence`."""
        reference_names = {name: reference.get(name) for name in self.match.missing}
        candidate_names = {name: candidate.get(name) for name in self.match.unexpected}
        found = {**reference_names, **candidate_names}
        return {name: value for name, value in found.items() if value is not None}

    def _like(self, output: Any, reference: Any) -> Any:
        """What a block gives, as it lies in the reference."""
        found = _upright(align(reference, output, self.orders))
        return found.back(output, reference) if found.leaves else output

    @property
    def _inside(self) -> tuple[str, str]:
        return self.inside or ("", "")

    def _cotangent(self, cotangent: Any) -> Any:
        """The cotangent of the unit's output in the candidate's layout."""
        if cotangent is None or self.call is None:
            return cotangent
        leaves, structure = nest.flatten(self.call.candidate.output)
        moved = self.call.output.numbers_there(nest.leaves(cotangent), len(leaves))
        return nest.unflatten(structure, moved)

    def _names(self) -> dict[str, str]:
        """The path in the reference by the path in the candidate, both within the unit."""
        outer, partner = self._inside
        inside = below(outer, self.match.blocks)
        return below(partner, {b: a for a, b in inside.items()})

    def _observed(self, name: Tap, one: Observed, taps: SharedCalls) -> Observed:
        if name == UNIT:
            return self._between(one, taps)
        tap, path = taps[name], _join(self._inside[0], name.path)
        is_block = bool(name.path) and path in self.match.blocks
        inside = (path, self.match.blocks[path]) if is_block else self._inside
        given = one.outputs
        if tap.output.leaves:
            given = tap.output.back(given, tap.reference.output)
        gradients = _named_as(one.inputs, [_given(tap)])
        parameters = self._below(inside, one.parameters, gradients=True)
        return Observed(given, gradients, parameters, self._below(inside, one.state))

    def _between(self, one: Observed, taps: SharedCalls) -> Observed:
        """What a unit computes between its taps: the inputs of taps, and its own output."""
        handed = {}
        for name, tap in taps.items():
            if tap.name in one.handed:
                given = _shaped(one.handed[tap.name], tap.candidate.given)
                handed[name] = tap.inputs.back(given, tap.reference.given)
        output, gradients = one.outputs, _named_as(one.inputs, self._sources(taps))
        if self.call is not None:
            output = self.call.output.back(output, self.call.reference.output)
        else:
            given = [name for name in gradients if name.kind == ARGUMENT]
            gradients = without(
                gradients, [n for n in given if not self.is_input(n.name)]
            )
        parameters = self._below(self._inside, one.parameters, gradients=True)
        state = self._below(self._inside, one.state)
        return Observed(output, gradients, parameters, state, handed)

    def _sources(self, taps: SharedCalls) -> list[_Source]:
        """The arrays from which a unit computes: its arguments, and the outputs of its taps."""
        found = [] if self.call is None else [_given(self.call)]
        for name, tap in taps.items():
            expected, actual = (
                outputs(tap.reference.output, name),
                outputs(tap.candidate.output, tap.name),
            )
            found.append((tap.output, expected, actual))
        return found

    def _below(
        self, outer: tuple[str, str], named: Named, gradients: bool = False
    ) -> dict[str, Any]:
        """Tensors by the candidate's names within a block, by those of the reference."""
        whole = {_join(outer[1], name): value for name, value in named.items()}
        found = self.match.to_reference(whole, gradients)
        return below(outer[0], found)


_Source = tuple[Alignment, Sequence[Quantity], Sequence[Quantity]]


# Functions whose settings say how large the result is: they are the same with other settings.
_WINDOWS = frozenset({"avg_pool", "conv", "conv_transpose", "interpolate", "max_pool"})


def _is_sequence_or_picture(value: Any) -> bool:
    return is_array(value) and value.ndim > 2


def _is_upright(inputs: Alignment) -> bool:
    """Whether a picture comes with its rows and columns as in the reference."""
    return any(
        leaf.transform.plain and len(leaf.transform.start) == len(TRANSPOSED)
        for leaf in inputs.leaves
    )


def _upright(output: Alignment) -> Alignment:
    """The alignment of what a block gives, with rows and columns as in the reference.

    A block that exchanges them on one side alone is wrong, however pictures lie.
    """
    leaves = []
    for leaf in output.leaves:
        how = leaf.transform
        if how.axes == TRANSPOSED and how.start == how.end:
            leaf = replace(leaf, transform=plain(how.start))
        leaves.append(leaf)
    return replace(output, leaves=tuple(leaves))


def _given(tap: SharedCall) -> _Source:
    """The arguments of a call, on both sides."""
    expected, actual = (
        arguments(*call.given) for call in (tap.reference, tap.candidate)
    )
    return tap.inputs, expected, actual


def _flattened(transform: Transform, split: Shape) -> Transform:
    """The transform with the last axis split, and its parts exchanged if there are two."""
    shape = transform.start
    last = len(shape) - 1
    if transform.end != shape or transform.axes[:last] != tuple(range(last)):
        return transform
    if len(split) == 1:
        return plain(shape)
    return Transform(
        shape, (*shape[:-1], *split), (*range(last), last + 1, last), shape
    )


def _named_as(
    gradients: Mapping[Quantity, np.ndarray | None], sources: Sequence[_Source]
) -> dict[Quantity, np.ndarray | None]:
    """Gradients of the candidate's arrays, as those of the reference's.

    Those of the loss's own arguments, which are of no source, keep their names.
    """
    known = set[Quantity]().union(*(names for _, _, names in sources))
    found = without(gradients, known)
    for alignment, names, others in sources:
        met = set()
        for leaf in sorted(alignment.leaves, key=lambda leaf: leaf.reference):
            other = others[leaf.candidate]
            if leaf.candidate not in met and other in gradients:
                value = gradients[other]
                found[names[leaf.reference]] = (
                    None if value is None else leaf.transform.inverse.apply(value)
                )
            met.add(leaf.candidate)
    return found


def _shaped(values: Any, likes: Any) -> Any:
    """Return a nest whose arrays have the shapes of another nest's arrays.

    Only arrays with as many elements on other axes are reshaped.
    """
    leaves, structure = nest.flatten(values)
    wanted = nest.leaves(likes)
    if len(leaves) != len(wanted):
        return values

    def shaped(leaf: Any, like: Any) -> Any:
        if not (is_array(leaf) and is_array(like)) or leaf.ndim == like.ndim:
            return leaf
        return leaf.reshape(like.shape) if leaf.size == like.size else leaf

    return nest.unflatten(structure, list(map(shaped, leaves, wanted)))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".strip(".")
