"""Alternatives to an ambiguous match: layers of one shape in other orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, permutations
from typing import Any

from deliralike.conformance.by_name import only, owner
from deliralike.weights.matching.pairing import Pair

Change = dict[int, dict[str, Any]]  # what to replace, by the index of the pair


def orders(pairs: Sequence[Pair]) -> Iterator[Iterator[Change]]:
    """For each set of layers among which something else would do: every order of them."""
    layers = _by_layer(pairs)
    for group in _groups(pairs, layers):
        every = map(partial(_exchanged, pairs, layers, group), permutations(group))
        yield (change for change in every if change is not None)


def in_order(pairs: Sequence[Pair], called: Sequence[str]) -> Change:
    """All sets of layers at once, each in the order in which the candidate calls its layers.

    Args:
        pairs: In the order of the reference's calls.
        called: The candidate's tensors in the order of its calls.
    """
    layers = _by_layer(pairs)
    found: Change = {}
    places = {owner(name): place for place, name in enumerate(called)}
    for group in _groups(pairs, layers):
        indices = chain.from_iterable(layers[layer] for layer in group)
        if any(pairs[index].decided == "value" for index in indices):
            continue
        order = sorted(group, key=lambda layer: places[layer])
        found |= _exchanged(pairs, layers, group, order) or {}
    return found


def _by_layer(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """Return the pairs of each layer of the candidate, but those that are certain beside others."""
    every: dict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        every[pair.candidate[0].layer].append(index)
    found = {}
    for layer, indices in every.items():
        open_pairs = [index for index in indices if pairs[index].alternatives]
        found[layer] = open_pairs or indices
    return found


def _groups(pairs: Sequence[Pair], layers: Mapping[str, list[int]]) -> list[list[str]]:
    """Layers of the candidate that may stand for each other, directly or by way of a third."""
    groups: list[set[str]] = []
    for layer, indices in layers.items():
        near: set[str] = set()
        for index in indices:
            near.update(map(owner, pairs[index].alternatives))
        if not near:
            continue
        near.add(layer)
        apart = []
        for group in groups:
            if group & near:
                near |= group
            else:
                apart.append(group)
        groups = [*apart, near]
    return [list(only(layers, group)) for group in groups]


def _exchanged(
    pairs: Sequence[Pair],
    layers: Mapping[str, list[int]],
    group: Sequence[str],
    order: Sequence[str],
) -> Change | None:
    """Return the pairs of some layers with the candidate's layers in another order.

    None where shapes do not allow it.
    """
    found: Change = {}
    for layer, other in zip(group, order, strict=True):
        if len(layers[layer]) != len(layers[other]):
            return None
        for index, taken in zip(layers[layer], layers[other], strict=True):
            if pairs[index].candidate[0].shape != pairs[taken].candidate[0].shape:
                return None
            found[index] = {"candidate": pairs[taken].candidate}
    return found
