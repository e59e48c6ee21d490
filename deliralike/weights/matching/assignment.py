"""Which layer of one network is which of another, by scores of values, names, kinds and order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deliralike.weights.matching.distance import order_free
from deliralike.weights.matching.layouts import NEAR, transforms
from deliralike.weights.matching.naming import (
    Spoken,
    kind_similarity,
    role,
    similarity,
    spoken,
)
from deliralike.weights.matching.pairing import ROLES, Side
from deliralike.weights.matching.parts import Unit
from deliralike.weights.matching.unit_layouts import is_telling, same_layout

_BY_NAME = 1.0
_BY_KIND = 0.3
_BY_ORDER = 0.3
_LEAD = 0.1  # by so much a name must be better than the next best to decide
_NAMED = 0.5  # a similarity from which on the names say something

# of a layer of the reference and one of the candidate, in a group
Places = tuple[int, int]


@dataclass(eq=False)
class Layer:
    """Units that stand together: all under one path, or a single one.

    Attributes:
        units: By role.
        spoken: Their path in common words.
        role: Of a single one whose role is known.
    """

    units: dict[str, Unit]
    side: Side
    spoken: Spoken
    role: str = ""

    @property
    def first(self) -> Unit:
        """The first unit."""
        return next(iter(self.units.values()))

    @property
    def axes(self) -> int:
        """How many axes the first unit has."""
        return len(self.first.shape)

    @property
    def kind(self) -> str:
        """The class's name of the block that holds the first unit's tensor."""
        return self.side.kinds.get(self.first.layer, "")

    @cached_property
    def values(self) -> dict[str, np.ndarray]:
        """Each unit's value."""
        return {name: self.side.value(unit) for name, unit in self.units.items()}

    @cached_property
    def distinctive(self) -> bool:
        """Whether some values are not all the same: those of ones and zeros identify nothing."""
        return any(is_telling(value) for value in self.values.values())

    @cached_property
    def prints(self) -> dict[str, np.ndarray]:
        """Of each unit numbers that no order of its elements changes."""
        return {name: order_free(value) for name, value in self.values.items()}


def layers(units: Iterable[Unit], side: Side) -> list[Layer]:
    """Units by their path, in order."""
    found: dict[str, dict[str, Unit]] = defaultdict(dict)
    for unit in units:
        found[unit.owner][role(unit.name)] = unit
    names = spoken(found)
    return [Layer(of_layer, side, names[path]) for path, of_layer in found.items()]


def singles(units: Sequence[Unit], side: Side) -> list[Layer]:
    """Units by themselves; those in a role that is not known go by their whole name."""
    roles: dict[Unit, str] = {}
    paths: dict[Unit, str] = {}
    for unit in units:
        word = role(unit.name)
        is_known = word in ROLES
        roles[unit] = word if is_known else ""
        paths[unit] = unit.owner if is_known else unit.name
    names = spoken(paths.values())
    layers = []
    for unit, path in paths.items():
        layers.append(Layer({"tensor": unit}, side, names[path], roles[unit]))
    return layers


@dataclass(frozen=True)
class LayerPair:
    """Two layers that go together, by what, and what else would do."""

    reference: Layer
    candidate: Layer
    decided: str
    alternatives: tuple[Layer, ...] = ()


def assign(
    reference: Sequence[Layer], candidate: Sequence[Layer], exact: bool
) -> list[LayerPair]:
    """Pair layers of the same roles and shapes.

    If not `exact`, the axes of shapes may have another order.
    """
    references = _grouped(reference, exact)
    candidates = _grouped(candidate, exact)
    found: list[LayerPair] = []
    for key, group in references.items():
        if key not in candidates:
            continue
        pairs = _within(group, candidates[key])
        if exact and len(group) != len(candidates[key]):
            # some of them have another shape elsewhere: order says nothing before these are seen
            pairs = [pair for pair in pairs if pair.decided != "order"]
        found += pairs
    return found


def _grouped(found: Sequence[Layer], exact: bool) -> dict[object, list[Layer]]:
    groups: dict[object, list[Layer]] = defaultdict(list)
    for layer in found:
        key: dict[str, object] = {}
        for name, unit in layer.units.items():
            key[name] = unit.shape if exact else math.prod(unit.shape)
        groups[frozenset(key.items())].append(layer)
    return groups


def _within(reference: list[Layer], candidate: list[Layer]) -> list[LayerPair]:
    """Pairs within a group: first those of the same values, then by names and order."""
    likeness = {}
    for row, one in enumerate(reference):
        for column, two in enumerate(candidate):
            if _fits(one, two):
                likeness[row, column] = _Likeness.of(one, two)
    by_value = _Choice(likeness, _only_by_value(likeness))
    free = by_value.free()
    by_score = _Choice(free, _greedy(free))
    judged = {}
    for at in by_value.chosen.items():
        judged[at] = ("value", by_value.contradicting(at))
    for at in by_score.chosen.items():
        judged[at] = by_score.judged(at)
    found = []
    for (row, column), (decided, others) in sorted(judged.items()):
        alternatives = tuple(candidate[other] for other in others)
        found.append(
            LayerPair(reference[row], candidate[column], decided, alternatives)
        )
    return found


def _fits(one: Layer, two: Layer) -> bool:
    """Whether two layers of a group may go together."""
    if one.role and two.role and one.role != two.role:
        return False
    for name, value in one.values.items():
        other = two.values[name]
        if value.dtype.kind != other.dtype.kind or not transforms(
            value.shape, other.shape
        ):
            return False
    return True


@dataclass(frozen=True)
class _Likeness:
    """How well two layers go together.

    Attributes:
        score: What names and kinds say, without the order.
    """

    same_values: bool
    name: float
    score: float

    @classmethod
    def of(cls, one: Layer, two: Layer) -> _Likeness:
        """Compare two layers."""
        name = similarity(one.spoken, two.spoken)
        kind = kind_similarity(one.kind, two.kind)
        score = _BY_NAME * name + _BY_KIND * kind
        return cls(_same_values(one, two), name, score)


def _same_values(one: Layer, two: Layer) -> bool:
    """Whether both hold the same values in some layout, and values that say something."""
    if not (one.distinctive and two.distinctive):
        return False
    for name, unit in one.units.items():
        if not np.allclose(one.prints[name], two.prints[name], rtol=1e2 * NEAR):
            return False
        if not same_layout(one.side, unit, two.side, two.units[name]):
            return False
    return True


def _only_by_value(likeness: Mapping[Places, _Likeness]) -> dict[int, int]:
    """Return the pairs of the same values of which neither side is in another such pair.

    Layers that all hold the same values cannot be told apart by them.
    """
    found = [at for at, like in likeness.items() if like.same_values]
    rows = Counter(row for row, _ in found)
    columns = Counter(column for _, column in found)
    return {row: column for row, column in found if rows[row] == columns[column] == 1}


def _greedy(likeness: Mapping[Places, _Likeness]) -> dict[int, int]:
    """The best pair, then the best of what is left, and so on."""
    rows = _ranks(row for row, _ in likeness)
    columns = _ranks(column for _, column in likeness)
    losses = {}
    for (row, column), like in likeness.items():
        order = 1 - abs(rows[row] - columns[column])
        losses[row, column] = -(like.score + _BY_ORDER * order)
    chosen: dict[int, int] = {}
    taken = set()
    for row, column in sorted(losses, key=lambda at: (losses[at], at)):
        if row not in chosen and column not in taken:
            chosen[row] = column
            taken.add(column)
    return chosen


def _ranks(indices: Iterable[int]) -> dict[int, float]:
    """Places from 0 to 1."""
    ordered = sorted(set(indices))
    last = max(1, len(ordered) - 1)
    return {index: place / last for place, index in enumerate(ordered)}


@dataclass(frozen=True)
class _Choice:
    """Which layers of a group go together.

    Attributes:
        likeness: Of layers that may go together.
        chosen: The place of the candidate's layer by that of the reference's.
    """

    likeness: Mapping[Places, _Likeness]
    chosen: Mapping[int, int]

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {column: row for row, column in self.chosen.items()}

    def free(self) -> dict[Places, _Likeness]:
        """Return the layers that may go together and of which neither was chosen."""
        free = {}
        for (row, column), like in self.likeness.items():
            if row not in self.chosen and column not in self._rows:
                free[row, column] = like
        return free

    def contradicting(self, at: Places) -> list[int]:
        """Return the candidate's layers that names would exchange with the chosen one."""
        row = at[0]
        contradicting = []
        for column in self.chosen.values():
            other = row, column
            if other == at or other not in self.likeness:
                continue
            if self._loss(at, other) < -_LEAD:
                contradicting.append(column)
        return contradicting

    def judged(self, at: Places) -> tuple[str, list[int]]:
        """Return by what a pair was decided, and the candidate's layers that do as well."""
        row, column = at
        others = self._beside(at)
        rivals = others
        if not self._crossed:
            rivals = [other for other in others if self._loss(at, other) < _LEAD]
        if rivals:
            alternatives = [other[1] for other in rivals if other[0] == row]
            return "order", alternatives or [column]
        if others or self.likeness[at].name >= _NAMED:
            return "name", []
        return "shape", []

    def _beside(self, at: Places) -> list[Places]:
        """Return the other pairs that a layer of a pair may be in."""
        row, column = at
        return [(k, m) for k, m in self.likeness if (k == row) != (m == column)]

    @cached_property
    def _crossed(self) -> bool:
        """Whether names led away from the order, and yet some names have nothing in common."""
        ordered = [self.chosen[row] for row in sorted(self.chosen)]
        if ordered == sorted(ordered):
            return False
        return any(self.likeness[at].name < _NAMED for at in self.chosen.items())

    def _loss(self, at: Places, other: Places) -> float:
        """How much less names and kinds say of two pairs with their partners exchanged.

        Args:
            at: A pair that was chosen.
            other: One that shares a layer with it.
        """
        likeness = self.likeness
        (i, j), (k, m) = at, self._pair_beside(at, other)
        if (k, m) not in likeness:  # the other layer is free
            return likeness[at].score - likeness[other].score
        if (i, m) not in likeness or (k, j) not in likeness:
            return math.inf
        now = likeness[at].score + likeness[k, m].score
        return now - likeness[i, m].score - likeness[k, j].score

    def _pair_beside(self, at: Places, other: Places) -> Places:
        """Return the chosen pair of the layer that `other` has and `at` has not; -1 for none."""
        row, column = other
        if row == at[0]:
            return self._rows.get(column, -1), column
        return row, self.chosen.get(row, -1)
