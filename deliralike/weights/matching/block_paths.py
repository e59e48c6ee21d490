"""Which block of one network is which of another, once their tensors are matched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from operator import itemgetter

from deliralike.weights.matching.naming import bare, kind_similarity, similarity, spoken
from deliralike.weights.matching.pairing import Pair, Side
from deliralike.weights.matching.parts import Unit, above, last, parent

Members = frozenset[int]  # the indices of the pairs of tensors below a block
Kinds = Mapping[str, str]  # the class's name of each block


def between(reference: Side, candidate: Side, pairs: Sequence[Pair]) -> dict[str, str]:
    """Paths of the candidate's blocks by those of the reference's.

    Two blocks are one where all pairs of tensors below the one are all pairs below the other; of
    several such (a block that only wraps another) the one at the same height. Blocks without
    tensors go by name or class and order, within blocks that are one.
    """
    kinds = reference.kinds
    other_kinds = candidate.kinds
    chains = _chains(kinds, [pair.reference for pair in pairs])
    other_chains = _chains(other_kinds, [pair.candidate for pair in pairs])
    empty = chains.pop(frozenset(), [])
    other_empty = other_chains.pop(frozenset(), [])
    found: dict[str, str] = {"": ""}
    for members, chain in chains.items():
        found |= _along(chain, other_chains.get(members, []), kinds, other_kinds)
    for path, partner in list(found.items()):
        children = [child for child in empty if parent(child) == path]
        other_children = [child for child in other_empty if parent(child) == partner]
        found |= _without_tensors(children, other_children, kinds, other_kinds)
    return {path: found[path] for path in kinds if path in found}


def _chains(kinds: Kinds, units: Iterable[Sequence[Unit]]) -> dict[Members, list[str]]:
    """Return the blocks that hold the same pairs, the outermost first; not the network itself.

    Args:
        units: Those of each pair.
    """
    indices: dict[str, set[int]] = {path: set() for path in kinds if path}
    for index, of_pair in enumerate(units):
        for unit in of_pair:
            for path in above(unit.source):
                if path in indices:
                    indices[path].add(index)
    chains: dict[Members, list[str]] = defaultdict(list)
    for path, members in indices.items():
        chains[frozenset(members)].append(path)
    return chains


def _along(
    chain: list[str], other: list[str], kinds: Kinds, other_kinds: Kinds
) -> dict[str, str]:
    """Match blocks that wrap each other, the outermost first.

    Blocks of like classes are matched in this order, else the inner ones.
    """

    def likeness(chosen: tuple[tuple[str, ...], tuple[str, ...]]) -> float:
        pairs = zip(*chosen, strict=True)
        return sum(kind_similarity(kinds[one], other_kinds[two]) for one, two in pairs)

    count = min(len(chain), len(other))
    options = list(product(combinations(chain, count), combinations(other, count)))
    innermost_first = options[::-1]
    return dict(zip(*max(innermost_first, key=likeness), strict=True))


def _without_tensors(
    children: list[str], others: list[str], kinds: Kinds, other_kinds: Kinds
) -> dict[str, str]:
    """Match blocks without tensors right below two matched blocks, by name and class, then by one.

    The very same name goes before one that means the same: ``act`` is ``act`` before ``act2``.
    """
    names = spoken(children)
    other_names = spoken(others)
    ranked = []
    for one, two in product(children, others):
        same_name = last(one) == last(two)
        similar_name = similarity(names[one], other_names[two]) == 1.0
        same_kind = bare(kinds[one]) == bare(other_kinds[two])
        fits = (
            same_name and same_kind,
            similar_name and same_kind,
            same_name,
            similar_name,
            same_kind,
        )
        if any(fits):
            ranked.append((fits.index(True), one, two))
    found: dict[str, str] = {}
    for _, one, two in sorted(ranked, key=itemgetter(0)):
        if one not in found and two not in found.values():
            found[one] = two
    return found
