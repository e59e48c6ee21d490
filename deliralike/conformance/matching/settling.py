"""What names and shapes leave open, settled by running: layers of one shape, layouts of squares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from deliralike.conformance.matching import block_paths
from deliralike.conformance.matching.choosing import Change, orders
from deliralike.conformance.matching.match import Match
from deliralike.conformance.matching.pairing import Pair

MOST_TRIES = 200
_MOST_OPTIONS = 24  # of one group: the orders of four layers


@dataclass(frozen=True)
class Settled:
    """A match, and how far trying went.

    Attributes:
        match: The one whose outputs agree, or else the nearest.
        agrees: Whether outputs agree.
        exhausted: Whether everything that would do was tried, by groups.
    """

    match: Match
    agrees: bool
    exhausted: bool

    @property
    def certain(self) -> Match:
        """The match, which nothing else would do for where outputs agree."""
        if not self.agrees:
            return self.match
        pairs = (replace(pair, alternatives=(), layouts=()) for pair in self.match.names)
        return replace(self.match, names=tuple(pairs))


def settle(match: Match, merit: Callable[[Match], tuple[bool, Any]]) -> Settled:
    """Try the alternatives of each group in turn, and keep what brings the outputs nearest.

    Args:
        match: With pairs that are not certain.
        merit: ``(whether outputs agree, what is larger for a better match)``.
    """
    agrees, best = merit(match)
    groups = [list(islice(group, _MOST_OPTIONS + 1)) for group in _groups(match.names)]
    # Of several groups each is tried beside the best of the others, not beside all of them.
    exhausted = len(groups) <= 1 and all(len(group) <= _MOST_OPTIONS for group in groups)
    tries, improved = 0, True
    while improved and not agrees:
        improved = False
        for group in groups:
            for change in group:
                if agrees or tries >= MOST_TRIES:
                    return Settled(match, agrees, exhausted and tries < MOST_TRIES)
                changed = _changed(match, change)
                tries += 1
                agrees, found = merit(changed)
                if agrees or found > best:
                    match, best, improved = changed, found, True
    return Settled(match, agrees, exhausted)


def _groups(pairs: Sequence[Pair]) -> list[Iterator[Change]]:
    return [*orders(pairs), *_layouts(pairs)]


def _layouts(pairs: Sequence[Pair]) -> Iterator[Iterator[Change]]:
    """For tensors of one name and shape: every layout, the same for all of them."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        if pair.layouts:
            leaf = pair.candidate[0].source.rpartition(".")[2]
            groups[leaf, pair.transform.start, pair.transform.end].append(index)
    for indices in groups.values():
        options = [pairs[indices[0]].transform, *pairs[indices[0]].layouts]
        yield iter([{index: {"transform": option} for index in indices} for option in options])


def _changed(match: Match, change: Change) -> Match:
    pairs = list(match.names)
    for index, fields in change.items():
        pairs[index] = replace(pairs[index], decided="output", **fields)
    blocks = block_paths.between(match.reference, match.candidate, pairs)
    return replace(match, names=tuple(pairs), blocks=blocks)
