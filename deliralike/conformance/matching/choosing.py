"""Alternatives to an ambiguous match: layers of one shape in other orders, or other layouts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

from deliralike.conformance.matching.pairing import Pair
from deliralike.errors import SettingError

_MOST = 1000
Change = dict[int, dict[str, Any]]  # what to replace, by the index of the pair


def choices(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, ...]]:
    """Yield every match that would do as well, the given one first.

    What was ambiguous is decided by ``"output"``.

    Raises:
        SettingError: There are more than a thousand.
    """
    sets = [*_orders(pairs), *_layouts(pairs)]
    count = math.prod(len(changes) for changes in sets)
    if count > _MOST:
        raise SettingError(
            f"{count} matches would do as well, too many to try (more than {_MOST}): correct some "
            "of the names first"
        )
    for chosen in product(*sets):
        merged = list(pairs)
        for index, fields in (item for change in chosen for item in change.items()):
            merged[index] = replace(merged[index], decided="output", **fields)
        yield tuple(merged)


def in_order(pairs: Sequence[Pair], alike: Callable[[str, str], bool]) -> tuple[Pair, ...]:
    """The pairs with layers exchanged where only one order has none that are not alike.

    Args:
        alike: Whether two layers are alike, by their paths in the reference and in the candidate.
    """
    layers, merged = _ambiguous(pairs), list(pairs)
    for group in _groups(pairs, layers):
        ours = [pairs[layers[layer][0]].reference[0].source.rpartition(".")[0] for layer in group]
        fitting = [order for order in permutations(group) if all(map(alike, ours, order))]
        change = _exchanged(pairs, layers, group, fitting[0]) if len(fitting) == 1 else None
        for index, fields in (change or {}).items():
            merged[index] = replace(merged[index], decided="output", **fields)
    return tuple(merged)


def _ambiguous(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """Return the candidate's layers with alternatives, with the indices of their pairs."""
    layers: dict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        if pair.alternatives:
            layers[pair.candidate[0].source.rpartition(".")[0]].append(index)
    return layers


def _orders(pairs: Sequence[Pair]) -> Iterator[list[Change]]:
    """For each set of layers among which something else would do: every order of them."""
    layers = _ambiguous(pairs)
    for group in _groups(pairs, layers):
        orders = (_exchanged(pairs, layers, group, order) for order in permutations(group))
        yield [change for change in orders if change is not None]


def _groups(pairs: Sequence[Pair], layers: Mapping[str, list[int]]) -> list[list[str]]:
    """Layers of the candidate that may stand for each other, directly or by way of a third."""
    groups: list[set[str]] = []
    for layer, indices in layers.items():
        near = {layer}
        near |= {
            other.rpartition(".")[0] for index in indices for other in pairs[index].alternatives
        }
        touched = [group for group in groups if group & near]
        groups = [group for group in groups if group not in touched] + [near.union(*touched)]
    return [[layer for layer in layers if layer in group] for group in groups]


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
            found[index] = {"candidate": pairs[taken].candidate, "alternatives": ()}
    return found


def _layouts(pairs: Sequence[Pair]) -> Iterator[list[Change]]:
    """For each tensor of which the layout is not certain: every layout."""
    for index, pair in enumerate(pairs):
        if pair.layouts:
            options = [pair.transform, *pair.layouts]
            yield [{index: {"transform": option, "layouts": ()}} for option in options]
