"""Which block of one network is which of another, once their tensors are matched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from deliralike.weights.matching.naming import bare, kind_similarity, similarity, spoken
from deliralike.weights.matching.pairing import Pair, Side
from deliralike.weights.matching.parts import Unit, above, parent

Members = frozenset[int]  # the indices of the pairs of tensors below a block


def between(reference: Side, candidate: Side, pairs: Sequence[Pair]) -> dict[str, str]:
    """Paths of the candidate's blocks by those of the reference's.

    Two blocks are one where all pairs of tensors below the one are all pairs below the other; of
    several such (a block that only wraps another) the one at the same height. Blocks without
    tensors go by name or class and order, within blocks that are one.
    """
    reference_blocks = _Blocks.of(reference, [pair.reference for pair in pairs])
    candidate_blocks = _Blocks.of(candidate, [pair.candidate for pair in pairs])
    found: dict[str, str] = {"": ""}
    for members, chain in reference_blocks.chains.items():
        other = candidate_blocks.chains.get(members, [])
        if len(chain) > len(other):
            outermost = _along(
                other, chain, candidate_blocks.kinds, reference_blocks.kinds
            )
            found |= {path: partner for partner, path in outermost.items()}
        else:
            found |= _along(
                chain, other, reference_blocks.kinds, candidate_blocks.kinds
            )
    for path, partner in list(found.items()):
        found |= _without_tensors(reference_blocks, path, candidate_blocks, partner)
    return {path: found[path] for path in reference.kinds if path in found}


@dataclass(frozen=True)
class _Blocks:
    """The blocks of a network.

    Attributes:
        kinds: The class's name of each.
        members: The pairs below each.
        chains: The blocks that hold the same pairs, the outermost first; not the network itself.
    """

    kinds: Mapping[str, str]
    members: Mapping[str, Members]
    chains: Mapping[Members, list[str]]

    @classmethod
    def of(cls, side: Side, units: Iterable[Sequence[Unit]]) -> _Blocks:
        """Return a side's blocks, from its units in each pair."""
        indices: dict[str, set[int]] = {path: set() for path in side.kinds}
        for index, of_pair in enumerate(units):
            for unit in of_pair:
                for path in above(unit.source):
                    if path in indices:
                        indices[path].add(index)
        members = {path: frozenset(below) for path, below in indices.items()}
        chains: dict[Members, list[str]] = defaultdict(list)
        for path, below in members.items():
            if path and below:
                chains[below].append(path)
        return cls(side.kinds, members, chains)

    def empty_children(self, path: str) -> list[str]:
        """Return the blocks without tensors right below another."""
        children = []
        for child in self.kinds:
            is_below = child and parent(child) == path
            if is_below and not self.members[child]:
                children.append(child)
        return children


def _along(
    few: list[str], many: list[str], kinds: Mapping[str, str], others: Mapping[str, str]
) -> dict[str, str]:
    """Match blocks that wrap each other, the outermost first.

    Blocks of like classes are matched in this order, else the inner ones.
    """

    def likeness(chosen: tuple[str, ...]) -> float:
        pairs = zip(few, chosen, strict=True)
        return sum(kind_similarity(kinds[one], others[two]) for one, two in pairs)

    innermost_first = list(combinations(many, len(few)))[::-1]
    best = max(innermost_first, key=likeness)
    return dict(zip(few, best, strict=True))


def _without_tensors(
    blocks: _Blocks, path: str, others: _Blocks, partner: str
) -> dict[str, str]:
    """Match blocks without tensors right below two matched blocks, by name and class, then by one.

    The very same name goes before one that means the same: ``act`` is ``act`` before ``act2``.
    """
    own = blocks.empty_children(path)
    free = others.empty_children(partner)
    mine_spoken = spoken(own)
    their_spoken = spoken(free)

    def same_name(one: str, two: str) -> bool:
        return one.removeprefix(path) == two.removeprefix(partner)

    def similar_name(one: str, two: str) -> bool:
        return similarity(mine_spoken[one], their_spoken[two]) == 1.0

    def same_kind(one: str, two: str) -> bool:
        return bare(blocks.kinds[one]) == bare(others.kinds[two])

    found: dict[str, str] = {}
    for rules in (
        (same_name, same_kind),
        (similar_name, same_kind),
        (same_name,),
        (similar_name,),
        (same_kind,),
    ):
        for one in own:
            fitting = [two for two in free if all(rule(one, two) for rule in rules)]
            if one not in found and fitting:
                found[one] = fitting[0]
                free.remove(fitting[0])
    return found
