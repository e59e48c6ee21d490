"""Numbered series settle the pairs that names, shapes and order leave open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from deliralike.weights.matching.match import Match
from deliralike.weights.matching.naming import numbers_in, unnumbered


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
        mine = _series([pairs[index].reference[0].source for index in indices])
        theirs = _series([pairs[index].candidate[0].source for index in indices])
        if len(indices) == len(choices) > 1 and mine is not None and mine == theirs:
            for index in indices:
                pairs[index] = replace(pairs[index], decided="number", alternatives=())
    return replace(match, names=tuple(pairs))


def _series(names: Sequence[str]) -> list[int] | None:
    """Return the place of each name in a series that differs in one number; None if it is none.

    Example:
        >>> _series(["fc2.weight", "fc10.weight", "fc1.weight"]), _series(["a1.b", "c2.b"])
        ([1, 2, 0], None)
    """
    if len(set(map(unnumbered, names))) > 1:
        return None
    changing = []
    for column in zip(*map(numbers_in, names), strict=True):
        if len(set(column)) > 1:
            changing.append(column)
    if len(changing) != 1:
        return None
    column = changing[0]
    if len(set(column)) < len(names):
        return None
    ordered = sorted(column)
    return [ordered.index(number) for number in column]
