"""What names and shapes leave open, settled by running: layers of one shape, layouts of squares."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deliralike.conformance.matching.choosing import Change, in_order, orders
from deliralike.weights.matching import block_paths
from deliralike.weights.matching.layouts import Transform
from deliralike.weights.matching.match import Match
from deliralike.weights.matching.pairing import Pair

MOST_TRIES = 200
_MOST_OPTIONS = 24  # of one group: the orders of four layers
# Of the distance before: with a mistake, no other choice of layers is so much nearer, nor another
# layout of the same ones.
_LEAD, _LAYOUT_LEAD = 0.1, 0.5

_Groups = Sequence[Sequence[Change]]
Merit = tuple[
    bool, int, float
]  # it runs; how many activations are the same; minus the distance


@dataclass(frozen=True)
class Settled:
    """A match, and how far trying went.

    Attributes:
        match: The one whose outputs agree, or else the best. Of its pairs those are not certain for
            which another choice shows as much.
        agrees: Whether outputs agree.
        exhausted: Whether everything was tried that would do beside what is certain: no other match
            removes the difference.
    """

    match: Match
    agrees: bool
    exhausted: bool


def settle(
    match: Match,
    merit: Callable[[Match], tuple[bool, Merit]],
) -> Settled:
    """Choose, in the order of calls, what gives the most of the reference's activations.

    In a right port the layer that is called first shows which choice is right for it, whatever is
    chosen for later ones. What shows nothing by itself is tried together.

    Args:
        match: With pairs that are not certain, in the order of calls.
        merit: Whether outputs agree, and what is larger for a better match.
    """
    search = _Settling(match, merit)
    ordered = in_order(match.names, list(match.candidate.tensors))
    for first in (ordered, _joined([ordered, _as_they_are(match.names)])):
        if not search.agrees:
            search.change(first, match)
    match = search.match
    groups = [
        list(itertools.islice(group, _MOST_OPTIONS + 1))
        for group in _groups(match.names)
    ]
    groups.sort(key=lambda group: min(_indices(group), default=0))  # as they are called
    doubted = [group for group in groups if not search.by_value(group)]
    is_small = all(len(group) <= _MOST_OPTIONS for group in doubted)
    tied = groups
    while not search.agrees:
        before = search.best
        tied = [group for group in map(search.tied, tied) if len(group) > 1]
        if search.best == before and not search.improved_together(groups, tied):
            break
    if search.agrees:
        return Settled(_but_open(search.match, ()), True, True)
    exhausted = is_small and search.tries < MOST_TRIES
    open_pairs = set().union(*map(_indices, tied))
    return Settled(_but_open(search.match, open_pairs), False, exhausted)


class _Settling:
    """The best match so far."""

    def __init__(
        self, match: Match, merit: Callable[[Match], tuple[bool, Merit]]
    ) -> None:
        self.match, self.merit, self.tries = match, merit, 0
        self.agrees, self.best = merit(match)

    def tied(self, group: Sequence[Change]) -> list[Change]:
        """Take the best change of a group; return those that show as many activations."""
        start, shown = self.match, []
        for change in group:
            if self.agrees or self.tries >= MOST_TRIES:
                return list(group)
            shown.append(self.change(change, start)[:2])
        return [
            change
            for change, one in zip(group, shown, strict=True)
            if one == self.best[:2]
        ]

    def improved_together(self, groups: _Groups, tied: _Groups) -> bool:
        """Whether changes of several groups at once are better, which then are taken.

        All are tried together where they are few, else those that showed no less by themselves.
        """
        left = MOST_TRIES - self.tries
        doubted = [group for group in tied if not self.by_value(group)]
        fitting = (
            one for one in (groups, tied, doubted) if math.prod(map(len, one)) <= left
        )
        chosen = next(fitting, None)
        if chosen is None:
            self.tries = MOST_TRIES
            return False
        if len(chosen) < 2:
            return False
        before, start = self.best, self.match
        for changes in itertools.product(*chosen):
            self.change(_joined(changes), start)
            if self.best != before or self.agrees:
                return True
        return False

    def by_value(self, group: Sequence[Change]) -> bool:
        """Whether values say what names deny."""
        return all(
            self.match.names[index].decided == "value" for index in _indices(group)
        )

    def change(self, change: Change, start: Match) -> Merit:
        """Take a change of a match if it is better than the best; return its merit."""
        if all(_has(start.names[index], fields) for index, fields in change.items()):
            return self.best if start is self.match else self.merit(start)[1]
        changed = _changed(start, change)
        self.tries += 1
        self.agrees, found = self.merit(changed)
        is_layout = all(fields.keys() == {"transform"} for fields in change.values())
        lead = _LAYOUT_LEAD if is_layout else _LEAD
        if self.agrees or _is_better(found, self.best, lead):
            self.match, self.best = changed, found
        return found


def _is_better(found: Merit, best: Merit, lead: float) -> bool:
    """Whether more is the same; where nothing is seen of layers, whether the end is far nearer."""
    return found[:2] > best[:2] or (found[:2] == best[:2] and found[2] > lead * best[2])


def _groups(pairs: Sequence[Pair]) -> list[Iterator[Change]]:
    return [*orders(pairs), *_layouts(pairs)]


def _joined(changes: Iterable[Change]) -> Change:
    """All changes at once."""
    found: Change = defaultdict(dict)
    for change in changes:
        for index, fields in change.items():
            found[index] = {**found[index], **fields}
    return found


def _as_they_are(pairs: Sequence[Pair]) -> Change:
    """Every tensor whose layout is open in the order of elements that it has in the reference."""
    found: Change = {}
    for index, pair in enumerate(pairs):
        plain = [how for how in pair.layouts if how.plain]
        if plain:
            found[index] = {"transform": plain[0]}
    return found


def _indices(group: Sequence[Change]) -> set[int]:
    """The pairs that some change of a group changes."""
    return set().union(*group)


def _layouts(pairs: Sequence[Pair]) -> Iterator[Iterator[Change]]:
    """Every layout: the same for all tensors of one name and the same choice, and of a layer's rows."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        if pair.layouts:
            choice = tuple(map(_choice, (pair.transform, *pair.layouts)))
            leaf = pair.candidate[0].source.rpartition(".")[2]
            if any(
                one[0] == "rows" for one in choice
            ):  # of a weight, and of the bias beside it
                leaf = ""
            groups[leaf, choice].append(index)
    for indices in groups.values():
        yield _with_one_transform([pairs[index] for index in indices], indices)


def _choice(how: Transform) -> tuple[Any, ...]:
    if how.plain and how.start == how.end:
        return ("as it is",)
    if how.axes[:2] == (1, 0) and how.split[:2] != how.start[:2]:
        return "rows", how.split[:2]
    return how.start, how.split, how.axes, how.end


def _with_one_transform(
    pairs: Sequence[Pair], indices: Sequence[int]
) -> Iterator[Change]:
    options = [[pair.transform, *pair.layouts] for pair in pairs]
    for chosen in zip(*options, strict=True):
        places = zip(indices, chosen, strict=True)
        yield {index: {"transform": option} for index, option in places}


def _has(pair: Pair, fields: dict[str, Any]) -> bool:
    return all(getattr(pair, name) == value for name, value in fields.items())


def _changed(match: Match, change: Change) -> Match:
    pairs = list(match.names)
    for index, fields in change.items():
        pairs[index] = replace(pairs[index], decided="output", **fields)
    blocks = block_paths.between(match.reference, match.candidate, pairs)
    return replace(match, names=tuple(pairs), blocks=blocks)


def _but_open(match: Match, open_pairs: Container[int]) -> Match:
    """The match, in which all pairs are certain but some."""
    names = list(match.names)
    for index, pair in enumerate(names):
        if index not in open_pairs:
            names[index] = replace(pair, alternatives=(), layouts=())
    return replace(match, names=tuple(names))
