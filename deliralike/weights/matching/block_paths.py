"""Which block of one network is which of another, once their tensors are matched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from deliralike.weights.matching.naming import similarity, spoken
from deliralike.weights.matching.pairing import Pair, Side, alike, bare


def between(reference: Side, candidate: Side, pairs: Sequence[Pair]) -> dict[str, str]:
    """Paths of the candidate's blocks by those of the reference's.

    Two blocks are one where all pairs of tensors below the one are all pairs below the other; of
    several such (a block that only wraps another) the one at the same height. Blocks without
    tensors go by name or class and order, within blocks that are one.
    """
    mine, theirs = _members(reference, pairs, 0), _members(candidate, pairs, 1)
    found: dict[str, str] = {"": ""}
    for members in dict.fromkeys(mine.values()):
        chain, other = (
            [path for path, own in side.items() if own == members and path]
            for side in (mine, theirs)
        )
        if members and other:
            found |= _along(chain, other, reference.kinds, candidate.kinds)
    for path, partner in list(found.items()):
        found |= _without_tensors(path, partner, reference.kinds, candidate.kinds, mine, theirs)
    return {path: found[path] for path in reference.kinds if path in found}


def _members(side: Side, pairs: Sequence[Pair], here: int) -> dict[str, frozenset[int]]:
    """The indices of the pairs below each block."""
    found: dict[str, set[int]] = {path: set() for path in side.kinds}
    for index, pair in enumerate(pairs):
        for unit in (pair.reference, pair.candidate)[here]:
            for path in _above(unit.source):
                if path in found:
                    found[path].add(index)
    return {path: frozenset(members) for path, members in found.items()}


def _above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(len(parts))]


def _along(
    mine: list[str], theirs: list[str], kinds: Mapping[str, str], others: Mapping[str, str]
) -> dict[str, str]:
    """Match blocks that wrap each other, the outermost first.

    Blocks of like classes are matched in this order, else the inner ones.
    """
    swap = len(mine) > len(theirs)
    few, many = (theirs, mine) if swap else (mine, theirs)
    of_few, of_many = (others, kinds) if swap else (kinds, others)
    choices = list(combinations(many, len(few)))[::-1]
    best = max(
        choices,
        key=lambda chosen: sum(
            alike(of_few[a], of_many[b]) for a, b in zip(few, chosen, strict=True)
        ),
    )
    return dict(zip(best, few, strict=True) if swap else zip(few, best, strict=True))


def _without_tensors(
    path: str,
    partner: str,
    kinds: Mapping[str, str],
    others: Mapping[str, str],
    mine: Mapping[str, frozenset[int]],
    theirs: Mapping[str, frozenset[int]],
) -> dict[str, str]:
    """Match blocks without tensors right below two matched blocks, by name, else by class."""
    own, free = (
        _empty_children(*each) for each in ((path, kinds, mine), (partner, others, theirs))
    )
    mine_spoken, their_spoken = spoken(own), spoken(free)
    found: dict[str, str] = {}
    for one in own:
        named = [two for two in free if similarity(mine_spoken[one], their_spoken[two]) == 1.0]
        same = [two for two in free if bare(kinds[one]) == bare(others[two])]
        best = next(iter([two for two in named if two in same] or named or same), None)
        if best is not None:
            found[one] = best
            free.remove(best)
    return found


def _empty_children(
    path: str, kinds: Iterable[str], members: Mapping[str, frozenset[int]]
) -> list[str]:
    """The children of a block without tensors."""
    return [
        child
        for child in kinds
        if child and child.rpartition(".")[0] == path and not members[child]
    ]
