"""The search for pairs of tensors: corrections, equal names, layers, parts, single tensors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.errors import ShapeError, UnknownName, suggestion
from deliralike.weights.matching.layouts import transforms
from deliralike.weights.matching.naming import role, spoken
from deliralike.weights.matching.pairing import (
    Families,
    Found,
    Layer,
    Pair,
    Side,
    assign,
    is_telling,
    layers,
    layout,
    same_layout,
    singles,
)
from deliralike.weights.matching.parts import Unit, cut, cut_apart, join, twin, units, whole

Corrections = Mapping[str, str | Sequence[str] | None]
Left = dict[str, Unit]

_MOST_PARTS = 8  # gates of both sides of an LSTM


def search(reference: Side, candidate: Side, corrections: Corrections) -> list[Pair]:
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
        self.left: list[Left] = [
            {n: whole(n, shape) for n, shape in side.shapes.items()} for side in self.sides
        ]
        self.pairs: list[Pair] = []

    def match(self) -> None:
        """Match all that is left: layers, then tensors that are cut, then single tensors."""
        self.split()
        for exact in (True, False):
            for is_last in (False, True):
                families = Families(self.pairs)
                for found in assign(self._layers(0), self._layers(1), exact, families):
                    if is_last or found.decided != "order":
                        self._pair_layers(found)
        self.cut()
        self.single()

    def pair(self, one: Unit, two: Unit, decided: str, alternatives: Iterable[str] = ()) -> None:
        """Two units go together."""
        transform, others = layout(self.sides[0], one, self.sides[1], two)
        self.pairs.append(Pair((one,), (two,), transform, decided, tuple(alternatives), others))
        self.left[0].pop(one.name, None)
        self.left[1].pop(two.name, None)

    def same_names(self) -> None:
        """Match equal names and shapes: exchanged values are a difference, not another match."""
        for name in [name for name in self.left[0] if name in self.left[1]]:
            one, two = self.left[0].pop(name), self.left[1].pop(name)
            self.pairs.append(Pair((one,), (two,), transforms(one.shape, two.shape)[0], "name"))

    def split(self) -> None:
        """Known conventions: gates and projections under common names."""
        shapes = [{unit.source: unit.shape for unit in left.values()} for left in self.left]
        self.left = [
            {
                unit.name: unit
                for unit in units(shapes[here], self.sides[here].kinds, shapes[1 - here])
            }
            for here in (0, 1)
        ]

    def single(self) -> None:
        """Match single tensors, the most axes first; those of one layer stay together.

        Tensors of a user's own with one name and shape on both sides come before all others.
        """
        for name, one in list(self.left[0].items()):
            two = self.left[1].get(name)
            if two is not None and one.shape == two.shape:
                self.pair(one, two, "name")
        mine, theirs = (
            singles(list(left.values()), side)
            for left, side in zip(self.left, self.sides, strict=True)
        )
        families = Families(self.pairs)
        for axes in sorted({_axes(layer) for layer in mine}, reverse=True):
            wanted = [layer for layer in mine if _axes(layer) == axes]
            free = [layer for layer in theirs if set(layer.names) <= set(self.left[1])]
            for found in assign(wanted, free, False, families):
                if self._belong_together(found):
                    self._pair_layers(found)

    def cut(self) -> None:
        """Cut each tensor that is as large as a series of others into parts with their names."""
        for here in (0, 1):
            for unit in list(self.left[here].values()):
                members = _series(unit, self.left[1 - here].values())
                if members:
                    named = _ordered(members)
                    held = self._by_values(here, unit, named)
                    decided = "order" if held is None else "value"
                    self._cut(here, unit, held or named, decided, certain=held == named)

    def _cut(
        self, here: int, unit: Unit, members: Sequence[Unit], decided: str, certain: bool = True
    ) -> None:
        """A tensor of one side is several of the other, one after another."""
        del self.left[here][unit.name]
        for piece, member in zip(_pieces(unit, members), members, strict=True):
            one, two = (piece, member) if here == 0 else (member, piece)
            others = [other.source for other in members if other is not member]
            self.pair(one, two, decided, () if certain or here else others)

    def _by_values(self, here: int, unit: Unit, members: Sequence[Unit]) -> list[Unit] | None:
        """The member that holds each part's values; None unless there is exactly one for each."""
        mine, theirs = self.sides[here], self.sides[1 - here]
        found: list[Unit] = []
        while len(found) < len(members):
            left, same = [member for member in members if member not in found], []
            for member in left:
                others = [one for one in left if one is not member]
                piece = _pieces(unit, [*found, member, *others])[len(found)]
                if same_layout(mine, piece, theirs, member):
                    same.append(member)
            if len(same) != 1:
                return None
            found += same
        return found

    def added(self) -> None:
        """Add a recurrent layer's second bias to the first where the other side has only one."""
        for here in (0, 1):
            for name, unit in [
                (name, unit) for name, unit in self.left[here].items() if twin(name)
            ]:
                for index, pair in enumerate(self.pairs):
                    if _of(pair, here)[0].name == twin(name):
                        self.pairs[index] = _with(pair, here, (*_of(pair, here), unit))
                        del self.left[here][name]
                        break

    def ties(self) -> None:
        """Match further names of parameters that have their pair under another name.

        They are tied, or hold the very same values while the other side has one tensor for both.
        """
        for here in (0, 1):
            whole = [pair for pair in self.pairs if _of(pair, here)[0].whole]
            for name, unit in list(self.left[here].items()):
                tied = (pair for pair in whole if self._are_one(here, _of(pair, here)[0], unit))
                pair = next(tied, None)
                if pair is not None:
                    self.pairs.append(replace(_with(pair, here, (unit,)), decided="tie"))
                    del self.left[here][name]

    def _are_one(self, here: int, one: Unit, two: Unit) -> bool:
        """Whether two tensors of a side are tied, or equal in every number."""
        side = self.sides[here]
        first, second = side.tensors[one.source], side.tensors[two.source]
        if first.tie == second.tie:
            return True
        return two.whole and is_telling(first.value) and np.array_equal(first.value, second.value)

    # Corrections
    # -------------------------------------------------------------------------

    def correct(self, corrections: Corrections) -> None:
        """What the user said: of tensors first, then of blocks."""
        blocks: dict[str, str] = {}
        several: dict[str, list[str]] = defaultdict(list)
        for mine, theirs in corrections.items():
            if theirs is None:
                continue
            if not isinstance(theirs, str):
                self._parts(0, mine, list(theirs))
            elif mine in self.sides[0].tensors or theirs in self.sides[1].tensors:
                several[theirs].append(mine)
            else:
                blocks[mine] = theirs
        for theirs, names in several.items():
            if len(names) == 1:
                self._one(names[0], theirs)
            else:
                self._parts(1, theirs, names)
        for mine, theirs in blocks.items():
            self._blocks(mine, theirs)

    def _one(self, mine: str, theirs: str) -> None:
        one, two = self._take(0, mine), self._take(1, theirs)
        if not transforms(one.shape, two.shape):
            fitting = [
                name for name, unit in self.left[1].items() if transforms(one.shape, unit.shape)
            ]
            raise ShapeError(
                f"the correction {mine!r}: {theirs!r} pairs shapes {one.shape} and {two.shape}, "
                "and no order of the axes makes one the other. What fits in the candidate: "
                f"{', '.join(fitting[:8]) or 'nothing'}"
            )
        self.pair(one, two, "correction")

    def _parts(self, here: int, name: str, others: list[str]) -> None:
        """A tensor of one side is several of the other, as the user said."""
        unit, members = self._take(here, name), [self._take(1 - here, other) for other in others]
        if not _pieces(unit, members):
            shapes = ", ".join(f"{member.source!r} of shape {member.shape}" for member in members)
            raise ShapeError(
                f"a correction says that {name!r} of shape {unit.shape} is {shapes}: it cannot be "
                "cut so"
            )
        self._cut(here, unit, members, "correction")

    def _blocks(self, mine: str, theirs: str) -> None:
        """All below one block is all below another: matched among themselves."""
        outside = self.left
        inside = [_below(left, path) for left, path in zip(outside, (mine, theirs), strict=True)]
        for here, path in ((0, mine), (1, theirs)):
            if not inside[here]:
                raise UnknownName(self._unknown(here, path))
        self.left = [dict(each) for each in inside]
        self.match()
        if self.left[0] and self.left[1]:
            one, two = (next(iter(left.values())) for left in self.left)
            raise ShapeError(
                f"the correction {mine!r}: {theirs!r} leaves {one.source!r} of shape {one.shape} "
                f"and {two.source!r} of shape {two.shape} without a partner: name the tensors "
                "themselves"
            )
        for here in (0, 1):
            others = {
                name: unit for name, unit in outside[here].items() if name not in inside[here]
            }
            self.left[here] = others | self.left[here]

    def _take(self, here: int, name: str) -> Unit:
        """A tensor that a correction names."""
        if name not in self.sides[here].tensors:
            raise UnknownName(self._unknown(here, name))
        if name not in self.left[here]:
            raise UnknownName(f"two corrections name {name!r}: leave one of them out")
        return self.left[here][name]

    def _unknown(self, here: int, name: str) -> str:
        side, which = self.sides[here], ("reference", "candidate")[here]
        hint = suggestion(name, [*side.tensors, *(path for path in side.kinds if path)])
        return (
            f"a correction names {name!r}, and the {which}, {side.name}, has no such tensor or "
            f"block. {hint}"
        )

    # Layers
    # -------------------------------------------------------------------------

    def _layers(self, here: int) -> list[Layer]:
        left = list(self.left[here].values())
        return layers(left, self.sides[here], spoken(dict.fromkeys(unit.owner for unit in left)))

    def _pair_layers(self, found: Found) -> None:
        for name, unit in found.reference.units.items():
            rivals = [layer.units[name].source for layer in found.alternatives]
            self.pair(unit, found.candidate.units[name], found.decided, rivals)

    def _belong_together(self, found: Found) -> bool:
        """Whether the layers of two single tensors are a pair already, or both free.

        A user's own tensors, whose role is not known, may stand together in one layer for several
        of the other side.
        """
        if found.decided == "value" or not (found.reference.role and found.candidate.role):
            return True
        one, two = (
            next(iter(layer.units.values())).owner for layer in (found.reference, found.candidate)
        )
        owners = [
            (pair.reference[0].owner, pair.candidate[0].owner)
            for pair in self.pairs
            if role(pair.reference[0].name) == role(pair.candidate[0].name)
        ]
        return all((mine == one) == (theirs == two) for mine, theirs in owners)


def _series(unit: Unit, others: Iterable[Unit]) -> list[Unit]:
    """The others of one role, side by side, that together are as large as a tensor.

    They have one shape, or differ in the size of their first axis.
    """
    series: dict[Any, list[Unit]] = defaultdict(list)
    for other in others:
        if role(other.name) == role(unit.name):
            beside = other.owner.rpartition(".")[0]
            series[beside, other.shape].append(other)
            series[beside, other.shape[1:], "any size"].append(other)
    for members in series.values():
        size = sum(math.prod(member.shape) for member in members)
        is_few = 2 <= len(members) <= _MOST_PARTS
        if is_few and math.prod(unit.shape) == size and _pieces(unit, members):
            return members
    return []


def _pieces(unit: Unit, members: Sequence[Unit]) -> list[Unit]:
    """Return the parts of a tensor with the others' names.

    They lie along the first axis along which they have the others' shapes.
    """
    owner, _, leaf = unit.source.rpartition(".")
    names = [join(owner, member.owner.rpartition(".")[2], leaf) for member in members]
    if len({member.shape for member in members}) > 1:
        sizes = [member.shape[0] for member in members]
        alike = {member.shape[1:] for member in members} == {unit.shape[1:]}
        return cut_apart(unit.source, unit.shape, names, sizes) if alike else []
    for axis in (axis for axis, size in enumerate(unit.shape) if size % len(members) == 0):
        pieces = cut(unit.source, unit.shape, names, axis)
        if all(
            transforms(piece.shape, member.shape)
            for piece, member in zip(pieces, members, strict=True)
        ):
            return pieces
    return []


def _ordered(members: Sequence[Unit]) -> list[Unit]:
    """Return query, key and value in this order, and all others in the order of creation."""
    known = ("query", "key", "value")
    words = {
        member.name: "".join(spoken([member.owner])[member.owner].words[-1:]) for member in members
    }
    if set(words.values()) != set(known[: len(members)]):
        return list(members)
    return sorted(members, key=lambda member: known.index(words[member.name]))


def _of(pair: Pair, here: int) -> tuple[Unit, ...]:
    return (pair.reference, pair.candidate)[here]


def _with(pair: Pair, here: int, units: tuple[Unit, ...]) -> Pair:
    return replace(pair, reference=units) if here == 0 else replace(pair, candidate=units)


def _below(left: Left, path: str) -> Left:
    return {name: unit for name, unit in left.items() if unit.source.startswith(f"{path}.")}


def _axes(layer: Layer) -> int:
    return max(len(unit.shape) for unit in layer.units.values())
