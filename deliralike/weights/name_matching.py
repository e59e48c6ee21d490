"""Matching of weights with unknown names to a network's layers, by their order and their shapes.

Where these leave a choice, nothing is matched: two layers of one shape that were exchanged would go
unnoticed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from deliralike.errors import StateError
from deliralike.weights.matching.naming import unnumbered
from deliralike.weights.matching.pairing import COUNTER, ROLES

Shape = tuple[int, ...]
Signature = tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Layer:
    """The arrays under one path, or a single array that belongs to no layer.

    Attributes:
        path: The common beginning of the names; the whole name of a single array.
        names: The names of the arrays by role (``"weight"``, ``"bias"`` …).
        signature: The roles with the shapes of the arrays.
    """

    path: str
    names: Mapping[str, str]
    signature: Signature

    @property
    def kind(self) -> str:
        """The kind of layer (convolution, matrix, norm …), within which an order may be known."""
        shapes = dict(self.signature)
        return f"{sorted(shapes)} of {len(shapes.get('weight', ()))} axes"

    @property
    def series(self) -> str:
        """The path without its numbers."""
        return unnumbered(self.path)


def fit(theirs: Mapping[str, Shape], ours: Mapping[str, Shape], order: str) -> dict[str, str]:
    """Return the source's name for each of our names, if there is exactly one match.

    Args:
        theirs, ours: Shapes by name.
        order: The meaning of the order of their names; see `deliralike.weights.Contents`.

    Raises:
        StateError: There is no match, or more than one; the message names the layers.

    Example:
        >>> theirs = {"first.weight": (3, 2), "second.weight": (3, 3)}
        >>> fit(theirs, {"layers.0.weight": (3, 2), "layers.1.weight": (3, 3)}, "")
        {'layers.0.weight': 'first.weight', 'layers.1.weight': 'second.weight'}
    """
    source = _layers(theirs)
    target = _layers(ours)
    _check_same_layers(source, target)
    source_names: dict[str, str] = {}
    for our_layer, their_layer in _pairs(source, target, order):
        for role, name in our_layer.names.items():
            source_names[name] = their_layer.names[role]
    return {name: source_names[name] for name in ours if name in source_names}


def _pairs(source: list[Layer], target: list[Layer], order: str) -> list[tuple[Layer, Layer]]:
    """Return pairs of one of our layers and one of theirs."""
    if order == "all" and _signatures(source) == _signatures(target):
        return list(zip(target, source, strict=True))
    pairs: list[tuple[Layer, Layer]] = []
    for theirs, ours in _groups(source, target, attrgetter("kind")):
        if order == "kind" and _signatures(theirs) == _signatures(ours):
            pairs.extend(zip(ours, theirs, strict=True))
            continue
        for same_shape in _groups(theirs, ours, attrgetter("signature")):
            pairs.extend(_pairs_of_shape(*same_shape))
    return pairs


def _groups(
    source: list[Layer], target: list[Layer], key: Callable[[Layer], Any]
) -> Iterator[tuple[list[Layer], list[Layer]]]:
    """Yield the layers of both that have one key, in the order of the target."""
    theirs = _by_key(source, key)
    for value, ours in _by_key(target, key).items():
        yield theirs[value], ours


def _by_key(layers: list[Layer], key: Callable[[Layer], Any]) -> dict[Any, list[Layer]]:
    groups: dict[Any, list[Layer]] = defaultdict(list)
    for layer in layers:
        groups[key(layer)].append(layer)
    return groups


def _signatures(layers: list[Layer]) -> list[Signature]:
    return [layer.signature for layer in layers]


def _layers(shapes: Mapping[str, Shape]) -> list[Layer]:
    members: dict[str, dict[str, str]] = defaultdict(dict)
    for name in shapes:
        path, _, leaf = name.rpartition(".")
        if leaf in ROLES:
            members[path][leaf] = name
        elif leaf != COUNTER:
            members[name]["array"] = name
    layers = []
    for path, names in members.items():
        signature = []
        for role in sorted(names):
            shape = tuple(shapes[names[role]])
            signature.append((role, shape))
        layers.append(Layer(path, names, tuple(signature)))
    return layers


def _check_same_layers(source: list[Layer], target: list[Layer]) -> None:
    """Raise an error unless both have as many layers of every kind and shape."""
    have = Counter(_signatures(source))
    want = Counter(_signatures(target))
    differences = []
    for signature in want | have:
        wanted = want[signature]
        present = have[signature]
        if present != wanted:
            differences.append(f"{wanted} of {_words(signature)} wanted, {present} came")
    if not differences:
        return
    shown = "; ".join(differences[:4])
    more = len(differences) - 4
    if more > 0:
        shown = f"{shown} and {more} more differences"
    raise StateError(f"the file holds other layers than the network: {shown}")


def _pairs_of_shape(source: list[Layer], target: list[Layer]) -> list[tuple[Layer, Layer]]:
    """Return pairs among layers of one shape: numbered series are matched by their lengths."""
    theirs = _series_by_length(source)
    ours = _series_by_length(target)
    if theirs is None or ours is None or set(theirs) != set(ours):
        raise StateError(
            f"{len(source)} layers of one shape ({_words(source[0].signature)}) may go to "
            f"{_paths(target)} in more than one way, and the order of {_paths(source)} does not "
            "tell which: give them the network's names first"
        )
    pairs: list[tuple[Layer, Layer]] = []
    for length, layers in ours.items():
        pairs.extend(zip(layers, theirs[length], strict=True))
    return pairs


def _series_by_length(layers: list[Layer]) -> dict[int, list[Layer]] | None:
    """Return the numbered series of layers by length; None if two have the same length."""
    ordered = sorted(layers, key=lambda layer: natural(layer.path))
    series = _by_key(ordered, attrgetter("series"))
    by_length = {len(members): members for members in series.values()}
    if len(by_length) < len(series):
        return None
    return by_length


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers within texts by value."""
    key = []
    for part in re.split(r"(\d+)", text):
        if part.isdigit():
            key.append((int(part), ""))
        else:
            key.append((-1, part))
    return key


def _words(signature: Signature) -> str:
    weight_first = sorted(signature, key=lambda entry: entry[0] != "weight")
    return ", ".join(f"{role} {shape}" for role, shape in weight_first)


def _paths(layers: list[Layer]) -> str:
    shown = ", ".join(repr(layer.path) for layer in layers[:3])
    if len(layers) > 3:
        return f"{shown} …"
    return shown
