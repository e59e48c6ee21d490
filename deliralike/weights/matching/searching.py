"""The search for pairs of tensors: corrections, equal names, layers, parts, single tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from deliralike.errors import ShapeError, UnknownName, suggestion
from deliralike.weights.matching.assignment import (
    LayerPair,
    assign,
    layers,
    singles,
)
from deliralike.weights.matching.conventions import twin, units
from deliralike.weights.matching.cutting import ordered, pieces, series
from deliralike.weights.matching.layouts import plain, transforms
from deliralike.weights.matching.naming import role
from deliralike.weights.matching.pairing import Pair, Side
from deliralike.weights.matching.parts import Unit, whole
from deliralike.weights.matching.unit_layouts import (
    Layout,
    by_convolutions,
    is_telling,
    layout,
    same_layout,
)

Left = dict[str, Unit]


def search(
    reference: Side, candidate: Side, corrections: Mapping[str, str]
) -> list[Pair]:
    """The pairs, in the order of the reference; see `deliralike.weights.matching.match.propose`."""
    found = _Search(reference, candidate)
    found.correct(corrections)
    if reference.shapes == candidate.shapes:
        found.same_names()
    found.match()
    found.added()
    found.ties()
    order = {name: place for place, name in enumerate(reference.tensors)}
    return sorted(found.pairs, key=lambda pair: order[pair.reference[0].source])


class _Search:
    """What is not matched yet, and the pairs found so far."""

    def __init__(self, reference: Side, candidate: Side) -> None:
        self.sides = (reference, candidate)
        self.left: list[Left] = []
        for side in self.sides:
            tensors = [whole(name, shape) for name, shape in side.shapes.items()]
            self.left.append(_by_name(tensors))
        self.pairs: list[Pair] = []

    def match(self) -> None:
        """Match all that is left: layers, then tensors that are cut, then single tensors."""
        self.split()
        for exact in (True, False):
            references, candidates = (
                layers(left.values(), side)
                for left, side in zip(self.left, self.sides, strict=True)
            )
            for found in assign(references, candidates, exact):
                self._pair_layers(found)
        self.cut()
        self.single()

    def pair(
        self, one: Unit, two: Unit, decided: str, alternatives: Iterable[str] = ()
    ) -> None:
        """Two units go together."""
        reference, candidate = self.sides
        transform, layouts = layout(reference, one, candidate, two)
        pair = Pair((one,), (two,), transform, decided, tuple(alternatives), layouts)
        self.pairs.append(pair)
        self.left[0].pop(one.name, None)
        self.left[1].pop(two.name, None)

    def same_names(self) -> None:
        """Match equal names and shapes: exchanged values are a difference, not another match."""
        reference, candidate = self.sides
        references, candidates = self.left
        for name in [name for name in references if name in candidates]:
            one = references.pop(name)
            two = candidates.pop(name)
            as_it_is: Layout = (plain(one.shape), ())
            if not candidate.kinds:
                # a file, in which names do not say how a picture was flattened
                as_it_is = by_convolutions(reference, one, candidate, two) or as_it_is
            transform, layouts = as_it_is
            self.pairs.append(Pair((one,), (two,), transform, "name", layouts=layouts))

    def split(self) -> None:
        """Known conventions: gates and projections under common names."""
        shapes, other_shapes = (
            {unit.source: unit.shape for unit in left.values()} for left in self.left
        )
        reference, candidate = self.sides
        own = units(shapes, reference.kinds, other_shapes)
        others = units(other_shapes, candidate.kinds, shapes)
        self.left = [_by_name(own), _by_name(others)]

    def single(self) -> None:
        """Match single tensors, the most axes first; those of one layer stay together."""
        tensors_left = singles(list(self.left[0].values()), self.sides[0])
        others_left = singles(list(self.left[1].values()), self.sides[1])
        for axes in sorted({layer.axes for layer in tensors_left}, reverse=True):
            wanted = [layer for layer in tensors_left if layer.axes == axes]
            free = [layer for layer in others_left if layer.first.name in self.left[1]]
            for found in assign(wanted, free, exact=False):
                if self._belong_together(found):
                    self._pair_layers(found)

    def cut(self) -> None:
        """Cut each tensor that is as large as a series of others into parts with their names."""
        for here in (0, 1):
            for unit in list(self.left[here].values()):
                others = self.left[1 - here].values()
                options = [ordered(members) for members in series(unit, others)]
                if options:
                    self._cut(here, unit, options)

    def _cut(self, here: int, unit: Unit, options: Sequence[list[Unit]]) -> None:
        """Cut a tensor into the series that holds its values, or else into the first."""
        members = options[0]
        decided = "order"
        is_certain = False
        for option in options:
            by_value = self._by_values(here, unit, option)
            if by_value is not None:
                members = by_value
                decided = "value"
                is_certain = by_value == option
                break
        del self.left[here][unit.name]
        for piece, member in zip(pieces(unit, members), members, strict=True):
            if here == 1:
                self.pair(member, piece, decided)
                continue
            others = [each.source for each in members if each is not member]
            self.pair(piece, member, decided, [] if is_certain else others)

    def _by_values(
        self, here: int, unit: Unit, members: Sequence[Unit]
    ) -> list[Unit] | None:
        """The member that holds each part's values; None unless there is exactly one for each."""
        side = self.sides[here]
        other_side = self.sides[1 - here]
        found: list[Unit] = []
        left = list(members)
        while left:
            same = []
            for member in left:
                others = [each for each in left if each is not member]
                piece = pieces(unit, [*found, member, *others])[len(found)]
                if same_layout(side, piece, other_side, member):
                    same.append(member)
            if len(same) != 1:
                return None
            found += same
            left.remove(same[0])
        return found

    def added(self) -> None:
        """Add a recurrent layer's second bias to the first where the other side has only one."""
        for here in (0, 1):
            places = {
                pair.sides[here][0].name: place for place, pair in enumerate(self.pairs)
            }
            for name, unit in list(self.left[here].items()):
                first = twin(name)
                if first is not None and first in places:
                    place = places[first]
                    pair = self.pairs[place]
                    self.pairs[place] = _with(pair, here, *pair.sides[here], unit)
                    del self.left[here][name]

    def ties(self) -> None:
        """Match further names of parameters that have their pair under another name.

        They are tied, or hold the very same values while the other side has one tensor for both.
        """
        for here in (0, 1):
            pairs = [pair for pair in self.pairs if pair.sides[here][0].whole]
            for name, unit in list(self.left[here].items()):
                for pair in pairs:
                    if self._are_one(here, pair.sides[here][0], unit):
                        tied = replace(_with(pair, here, unit), decided="tie")
                        self.pairs.append(tied)
                        del self.left[here][name]
                        break

    def _are_one(self, here: int, one: Unit, two: Unit) -> bool:
        """Whether two tensors of a side are tied, or equal in every number."""
        tensors = self.sides[here].tensors
        first = tensors[one.source]
        second = tensors[two.source]
        if first.tie == second.tie:
            return True
        return (
            two.whole
            and is_telling(first.value)
            and np.array_equal(first.value, second.value)
        )

    # Corrections
    # -------------------------------------------------------------------------

    def correct(self, corrections: Mapping[str, str]) -> None:
        """What the user said: of tensors, or of blocks with tensors of the same names in them."""
        for name, partner in corrections.items():
            tensors = self.sides[0].tensors
            named = [each for each in tensors if f"{each}.".startswith(f"{name}.")]
            for each in named or [name]:
                self._pair_named(each, f"{partner}{each.removeprefix(name)}")

    def _pair_named(self, name: str, partner: str) -> None:
        one = self._take(0, name)
        two = self._take(1, partner)
        if not transforms(one.shape, two.shape):
            left = self.left[1].items()
            fitting = [name for name, unit in left if transforms(one.shape, unit.shape)]
            shown = ", ".join(fitting[:8]) or "nothing"
            raise ShapeError(
                f"the correction {name!r}: {partner!r} pairs shapes {one.shape} and {two.shape}, "
                "and no order of the axes makes one the other. What fits in the candidate: "
                f"{shown}"
            )
        self.pair(one, two, "correction")

    def _take(self, here: int, name: str) -> Unit:
        """A tensor that a correction names."""
        if name not in self.sides[here].tensors:
            raise UnknownName(self._unknown(here, name))
        if name not in self.left[here]:
            raise UnknownName(f"two corrections name {name!r}: leave one of them out")
        return self.left[here][name]

    def _unknown(self, here: int, name: str) -> str:
        side = self.sides[here]
        which = ("reference", "candidate")[here]
        return (
            f"a correction names {name!r}, and the {which}, {side.name}, has no such tensor or "
            f"block. {suggestion(name, list(side.tensors))}"
        )

    # Layers
    # -------------------------------------------------------------------------

    def _pair_layers(self, found: LayerPair) -> None:
        for name, unit in found.reference.units.items():
            rivals = [layer.units[name].source for layer in found.alternatives]
            self.pair(unit, found.candidate.units[name], found.decided, rivals)

    def _belong_together(self, found: LayerPair) -> bool:
        """Whether the layers of two single tensors are a pair already, or both free.

        A user's own tensors, whose role is not known, may stand together in one layer for several
        of the other side.
        """
        if found.decided == "value" or not (
            found.reference.role and found.candidate.role
        ):
            return True
        one = found.reference.first.owner
        two = found.candidate.first.owner
        for pair in self.pairs:
            unit = pair.reference[0]
            partner = pair.candidate[0]
            is_split = (unit.owner == one) != (partner.owner == two)
            if is_split and role(unit.name) == role(partner.name):
                return False
        return True


def _with(pair: Pair, here: int, *units: Unit) -> Pair:
    """Return a pair with other units on one side."""
    if here == 0:
        return replace(pair, reference=units)
    return replace(pair, candidate=units)


def _by_name(units: Iterable[Unit]) -> Left:
    return {unit.name: unit for unit in units}
