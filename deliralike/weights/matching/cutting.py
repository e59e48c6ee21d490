"""Which tensors of one side are the parts of a tensor of the other side, and how it is cut."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from deliralike.weights.matching.conventions import side_of_gate
from deliralike.weights.matching.layouts import transforms
from deliralike.weights.matching.naming import role, spoken
from deliralike.weights.matching.parts import Unit, cut, join, last, parent

_MOST_PARTS = 8  # gates of both sides of an LSTM
_PROJECTIONS = ("query", "key", "value")


def series(unit: Unit, others: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Yield the others of one role, side by side, that together are as large as a tensor.

    They have one shape; of the gates of a recurrent layer they are those of one side.
    """
    candidates: dict[Any, list[Unit]] = defaultdict(list)
    for other in others:
        if role(other.name) == role(unit.name):
            beside = parent(other.owner)
            candidates[beside, other.shape].append(other)
            if side := side_of_gate(other.name):
                candidates[beside, other.shape, side].append(other)
    for members in candidates.values():
        size = sum(math.prod(member.shape) for member in members)
        is_few = 2 <= len(members) <= _MOST_PARTS
        if is_few and math.prod(unit.shape) == size and pieces(unit, members):
            yield members


def pieces(unit: Unit, members: Sequence[Unit]) -> list[Unit]:
    """Return the parts of a tensor with the others' names.

    They lie along the first axis along which they have the others' shapes.
    """
    owner = unit.layer
    leaf = last(unit.source)
    names = [join(owner, last(member.owner), leaf) for member in members]
    for axis, size in enumerate(unit.shape):
        if size % len(members):
            continue
        parts = cut(unit.source, unit.shape, names, axis)
        if transforms(parts[0].shape, members[0].shape):
            return parts
    return []


def ordered(members: Sequence[Unit]) -> list[Unit]:
    """Return query, key and value in this order, and all others in the order of creation."""
    words = {member: _last_word(member.owner) for member in members}
    if set(words.values()) != set(_PROJECTIONS[: len(members)]):
        return list(members)
    return sorted(members, key=lambda member: _PROJECTIONS.index(words[member]))


def _last_word(path: str) -> str:
    words = spoken([path])[path].words
    return words[-1] if words else ""
