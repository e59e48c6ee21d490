"""Matching two networks whose names and layouts differ, such as a port and its original.

`propose` finds which tensor is which from values, shapes, names, kinds and order; what is not
certain says so, and can be corrected.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from deliralike.errors import UnknownName, listed, suggestion
from deliralike.network.base import AbstractNetwork
from deliralike.tables import text_table
from deliralike.weights.matching import block_paths
from deliralike.weights.matching.layouts import transforms
from deliralike.weights.matching.naming import role, spoken
from deliralike.weights.matching.pairing import STATISTICS, Pair, Side
from deliralike.weights.matching.parts import Shape, Unit, assembled, last, shown
from deliralike.weights.matching.searching import search

Corrections = Mapping[str, str | None]
Names = tuple[str, ...]
_SHOWN = 3  # tensors without a counterpart in a sentence; the table has all


@dataclass(frozen=True)
class Match:
    """Which parameters and buffers of a candidate are which of a reference.

    Attributes:
        names: Pairs in the order of the reference.
        missing: Tensors of the reference without one in the candidate.
        unexpected: Tensors of the candidate without one in the reference.
        blocks: Paths of the candidate's blocks by those of the reference's.
        reference, candidate: What was matched.
        left_out: Tensors that the user said to have no counterpart.
    """

    names: tuple[Pair, ...]
    missing: Names
    unexpected: Names
    blocks: Mapping[str, str]
    reference: Side = field(repr=False)
    candidate: Side = field(repr=False)
    left_out: Names = ()

    @property
    def ambiguous(self) -> tuple[Pair, ...]:
        """Pairs for which something else would do as well, in place or in layout."""
        return tuple(pair for pair in self.names if not pair.certain)

    @property
    def summed(self) -> frozenset[str]:
        """The reference's tensors that are sums of several of the candidate's, or summands."""
        summed: set[str] = set()
        for pair in self.names:
            if len(pair.reference) + len(pair.candidate) > 2:
                summed.update(unit.source for unit in pair.reference)
        return frozenset(summed)

    @property
    def complete(self) -> bool:
        """Whether every tensor of both has its place."""
        return not (self.missing or self.unexpected)

    def candidate_names(self, name: str) -> Names:
        """Return the candidate's tensors that hold a tensor of the reference, or parts of it."""
        found: dict[str, None] = {}
        for pair in self.names:
            if any(unit.source == name for unit in pair.reference):
                found |= dict.fromkeys(unit.source for unit in pair.candidate)
        return tuple(found)

    def to_candidate(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state of the reference (or a part of one) in the candidate's names and layouts."""
        return _moved(self.names, state, self.candidate.shapes)

    def to_reference(
        self, state: Mapping[str, Any], gradients: bool = False
    ) -> dict[str, Any]:
        """Return a (partial) state of the candidate in the reference's names and layouts.

        Args:
            gradients: They are gradients: where a bias is the sum of two, the gradient of each is
                its gradient.
        """
        inverse = [pair.inverse for pair in self.names]
        return _moved(inverse, state, self.reference.shapes, gradients)

    @property
    def left_over(self) -> str:
        """What has no counterpart, and how to say what is which."""
        return (
            f"{self.candidate.name} does not match {self.reference.name}: "
            f"{listed(self._left_over, _SHOWN)}. Say "
            'which is which by names={"name in the reference": "name in the candidate"}, or that a '
            'tensor has no counterpart by names={"name": None}'
        )

    @property
    def doubtful(self) -> str:
        """Which pairs are not certain, and what would settle it."""
        pairs = [
            f"{shown(pair.reference)} as {shown(pair.candidate)}"
            for pair in self.ambiguous
        ]
        why = listed(pairs, 8) or "matched by names and shapes alone"
        return (
            f"It is not certain which tensor is which, and no choice that was tried agrees: "
            f"{why}. Say which is which by "
            'names={"name in the reference": "name in the candidate"}'
        )

    @property
    def holds_all(self) -> bool:
        """Whether nothing is left over but constants, such as masks, of one side."""
        left = (*self.missing, *self.unexpected)
        is_constant = all(role(name) not in STATISTICS for name in left)
        return is_constant and not self.parameters_left_over()

    @property
    def lacking(self) -> frozenset[str]:
        """Matrices and kernels that are missing where the candidate has nothing left for them."""
        if self.unexpected:
            return frozenset()
        lacking = set()
        for name in self.missing:
            tensor = self.reference.tensors[name]
            if tensor.is_parameter and len(tensor.shape) > 1:
                lacking.add(name)
        return frozenset(lacking)

    def parameters_left_over(self) -> Names:
        """The parameters, not the buffers, that have no counterpart."""
        left_over = []
        for side, names in (
            (self.reference, self.missing),
            (self.candidate, self.unexpected),
        ):
            for name in names:
                if side.tensors[name].is_parameter:
                    left_over.append(name)
        return tuple(left_over)

    def __str__(self) -> str:
        """Return a table of both names, the layout, and how the pair was decided."""
        rows = []
        for pair in self.names:
            names = shown(pair.reference), shown(pair.candidate)
            rows.append((*names, str(pair.transform), _how(pair)))
        table = text_table(["reference", "candidate", "layout", "decided by"], rows)
        counts = f"{len(self.names)} pairs, {len(self.ambiguous)} of them not certain"
        title = f"{self.reference.name} → {self.candidate.name}: {counts}"
        return "\n".join([title, table, *self._left_over])

    @property
    def _left_over(self) -> list[str]:
        missing = [f"missing: {name}" for name in self.missing]
        return [*missing, *(f"unexpected: {name}" for name in self.unexpected)]


def propose(
    reference: AbstractNetwork,
    candidate: AbstractNetwork,
    corrections: Corrections | None = None,
    called: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Match:
    """Find which parameters and buffers of a candidate are which of a reference.

    Equal names with equal shapes on both sides throughout are taken as they are. Otherwise values
    decide where both hold equal weights in some layout; then shapes, names, kinds of blocks and
    order. Counters (``num_batches_tracked``) are left out.

    Args:
        corrections: Names of tensors in the candidate by those in the reference, or paths of blocks
            whose tensors have the same names; they win. None says that a tensor of the reference
            (or of the candidate, if the reference has none of that name) has no counterpart.
        called: The blocks of each side in the order of their calls.

    Raises:
        UnknownName: A correction names what is not there.
        ShapeError: A correction names tensors of which no order of the axes has the same shape.

    Example:
        >>> from deliralike import zoo
        >>> settings = {"backend": "torch", "in_features": 3, "out_features": 2}
        >>> net, port = (zoo.build("mlp", seed=seed, **settings) for seed in (0, 1))
        >>> [(pair.reference[0].name, pair.decided) for pair in propose(net, port).names][:1]
        [('layers.0.weight', 'name')]
    """
    reference_side = Side.of(reference, called[0])
    candidate_side = Side.of(candidate, called[1])
    return propose_between(reference_side, candidate_side, corrections or {})


def propose_between(
    reference: Side, candidate: Side, corrections: Corrections
) -> Match:
    """Find which tensors of one side are which of the other; see `propose`."""
    left_out = [name for name, partner in corrections.items() if partner is None]
    of_candidate = [name for name in left_out if name not in reference.tensors]
    for name in of_candidate:
        if name not in candidate.tensors:
            hint = suggestion(name, [*reference.tensors, *candidate.tensors])
            raise UnknownName(
                f"names={{{name!r}: None}}: neither side has such a tensor. {hint}"
            )
    reference = reference.without(left_out)
    candidate = candidate.without(of_candidate)
    named = {}
    for name, partner in corrections.items():
        if partner is not None:
            named[name] = partner
    pairs = search(reference, candidate, named)
    return Match(
        tuple(pairs),
        _not_covered(reference, [pair.reference for pair in pairs]),
        _not_covered(candidate, [pair.candidate for pair in pairs]),
        block_paths.between(reference, candidate, pairs),
        reference,
        candidate,
        tuple(left_out),
    )


def _moved(
    pairs: Iterable[Pair],
    state: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    gradients: bool = False,
) -> dict[str, Any]:
    """Return a state of the pairs' reference as one of their candidate."""
    values = (_values(pair, state, gradients) for pair in pairs)
    return assembled(chain.from_iterable(values), shapes)


def _values(
    pair: Pair, state: Mapping[str, Any], gradients: bool
) -> Iterator[tuple[Unit, Any]]:
    """Yield the candidate's units with their values; nothing where a state lacks a tensor."""
    sources = [unit.source for unit in pair.reference]
    if any(name not in state for name in sources):
        return
    if any(state[name] is None for name in sources):
        for unit in pair.candidate:
            yield unit, None
        return
    first, *others = (
        unit.read(np.asarray(state[unit.source])) for unit in pair.reference
    )
    if gradients:
        value = pair.transform.apply(first)
        rest = value
    else:
        value = pair.transform.apply(sum(others, start=first))
        rest = np.zeros_like(value)
    yield pair.candidate[0], value
    for unit in pair.candidate[1:]:
        yield unit, rest


def _not_covered(side: Side, units: Iterable[Sequence[Unit]]) -> Names:
    """Tensors of which not all has a pair."""
    covered: Counter[str] = Counter()
    for unit in set(chain.from_iterable(units)):
        covered[unit.source] += math.prod(unit.shape)
    left_over = []
    for name, shape in side.shapes.items():
        if covered[name] < max(1, math.prod(shape)):
            left_over.append(name)
    return tuple(left_over)


def _how(pair: Pair) -> str:
    words = [pair.decided]
    if pair.alternatives:
        words.append(f"or {', '.join(pair.alternatives)}")
    if pair.layouts:
        words.append("or another layout")
    return "; ".join(words)


# What a file's names and other arrays settle -----------------------------------------------------


def by_other_weights(match: Match) -> Match:
    """Return the match with weights that fit both ways in the layout of others of their last name.

    A hand that keeps one ``w`` as ``(in, out)`` keeps all of them so. What lies both ways is open.
    """
    ways: dict[str, set[bool]] = defaultdict(set)
    options = {}
    for index, pair in enumerate(match.names):
        unit, partner = pair.reference[0], pair.candidate[0]
        if len(unit.shape) != len(partner.shape) or role(partner.source) != "weight":
            continue
        every = transforms(unit.shape, partner.shape)
        usual = [each for each in every if each.plain or each.turned]
        by_way = {each.turned: each for each in reversed(usual)}
        if len(by_way) == 1:
            ways[last(partner.source)].update(by_way)
        if {pair.transform, *pair.layouts} <= set(every):
            options[index] = by_way
    pairs = list(match.names)
    for index, by_way in options.items():
        pair = pairs[index]
        found = sorted(ways[last(pair.candidate[0].source)].intersection(by_way))
        if found:
            first, *others = (by_way[way] for way in found)
            pairs[index] = replace(pair, transform=first, layouts=tuple(others))
    return replace(match, names=tuple(pairs))


def by_number(match: Match) -> Match:
    """Return the match with those open pairs settled that are numbered series of one length.

    Where ``layers.0``, ``layers.1`` may be ``fc1``, ``fc2`` in any order and stand in the order of
    their numbers, the numbers decide.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, pair in enumerate(match.names):
        if pair.alternatives:
            choices = frozenset((pair.candidate[0].source, *pair.alternatives))
            groups[choices].append(index)
    pairs = list(match.names)
    for choices, indices in groups.items():
        places = _series([pairs[index].reference[0].source for index in indices])
        other_places = _series([pairs[index].candidate[0].source for index in indices])
        if len(indices) == len(choices) and places and places == other_places:
            for index in indices:
                pairs[index] = replace(pairs[index], decided="number", alternatives=())
    return replace(match, names=tuple(pairs))


def _series(names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the place of each name in a series that differs in one number; empty if it is none.

    Example:
        >>> _series(["fc2.weight", "fc10.weight", "fc1.weight"]), _series(["a1.b", "c2.b"])
        ([(1,), (2,), (0,)], [])
    """
    paths = spoken(names).values()
    places = [path.ranks for path in paths]
    have_one_number = all(len(place) == 1 for place in places)
    are_distinct = len(set(places)) == len(names)
    if have_one_number and are_distinct and len({path.words for path in paths}) == 1:
        return places
    return []
