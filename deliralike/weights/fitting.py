"""Weights whose names say nothing here, fitted to a network layer by layer: by their order and their shapes.

Where these leave a choice, nothing is fitted: two layers of one shape that were exchanged would go unnoticed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deliralike.errors import StateError

Shape = tuple[int, ...]
Signature = tuple[tuple[str, Shape], ...]

_ROLES = ("weight", "bias", "running_mean", "running_var")
_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Layer:
    """The arrays that stand together under one path, or a single one that is no layer's.

    Attributes:
        path: What their names have in common; the whole name of a single array.
        names: Their names by what they are.
        signature: What they are, with their shapes.
    """

    path: str
    names: Mapping[str, str]
    signature: Signature

    @property
    def kind(self) -> str:
        """Convolutions, matrices, norms …: layers among which an order may be known."""
        shapes = dict(self.signature)
        return f"{sorted(shapes)} of {len(shapes.get('weight', ()))} axes"

    @property
    def series(self) -> str:
        """The path without its numbers."""
        return re.sub(r"\d+", "#", self.path)


def fit(theirs: Mapping[str, Shape], ours: Mapping[str, Shape], order: str) -> dict[str, str]:
    """Our names by theirs, as far as there is one way only.

    Args:
        theirs, ours: Shapes by name.
        order: What the order of their names tells; see `deliralike.weights.Contents`.

    Raises:
        StateError: There is no way, or more than one; the message names the layers.

    Example:
        >>> theirs = {"first.weight": (3, 2), "second.weight": (3, 3)}
        >>> fit(theirs, {"layers.0.weight": (3, 2), "layers.1.weight": (3, 3)}, "")
        {'layers.0.weight': 'first.weight', 'layers.1.weight': 'second.weight'}
    """
    source, target = _layers(theirs), _layers(ours)
    _same_layers(source, target)
    if order == "all" and [layer.signature for layer in source] == [layer.signature for layer in target]:
        pairs = list(zip(target, source, strict=True))
    else:
        pairs = [pair for kind in dict.fromkeys(layer.kind for layer in target)
                 for pair in _of_kind(kind, source, target, order)]  # fmt: skip
    found = {one.names[role]: other.names[role] for one, other in pairs for role in one.names}
    return {name: found[name] for name in ours if name in found}


def _layers(shapes: Mapping[str, Shape]) -> list[Layer]:
    members: dict[str, dict[str, str]] = defaultdict(dict)
    for name in shapes:
        path, _, leaf = name.rpartition(".")
        if leaf in _ROLES:
            members[path][leaf] = name
        elif leaf != _COUNTER:
            members[name]["array"] = name
    return [
        Layer(path, names, tuple(sorted((role, tuple(shapes[name])) for role, name in names.items())))
        for path, names in members.items()
    ]


def _same_layers(source: list[Layer], target: list[Layer]) -> None:
    """Both have as many layers of every kind and shape."""
    have, want = Counter(layer.signature for layer in source), Counter(layer.signature for layer in target)
    differ = [signature for signature in dict.fromkeys([*want, *have]) if have[signature] != want[signature]]
    wrong = [f"{want[signature]} of {_words(signature)} wanted, {have[signature]} came" for signature in differ]
    if wrong:
        more = f" and {len(wrong) - 4} more differences" if len(wrong) > 4 else ""
        raise StateError(f"the file holds other layers than the network: {'; '.join(wrong[:4])}{more}")


def _of_kind(kind: str, source: list[Layer], target: list[Layer], order: str) -> list[tuple[Layer, Layer]]:
    """Pairs of ours and theirs among the layers of one kind."""
    source = [layer for layer in source if layer.kind == kind]
    target = [layer for layer in target if layer.kind == kind]
    same_order = [layer.signature for layer in source] == [layer.signature for layer in target]
    if order == "kind" and same_order:
        return list(zip(target, source, strict=True))
    return [pair for signature in dict.fromkeys(layer.signature for layer in target)
            for pair in _of_shape(_with(source, signature), _with(target, signature))]  # fmt: skip


def _of_shape(source: list[Layer], target: list[Layer]) -> list[tuple[Layer, Layer]]:
    """Pairs among layers of one shape: numbered series whose lengths say which is which."""
    theirs, ours = _by_series(source), _by_series(target)
    lengths, wanted = {len(s): s for s in theirs}, {len(s): s for s in ours}
    if len(lengths) < len(theirs) or len(wanted) < len(ours) or set(lengths) != set(wanted):
        raise StateError(
            f"{len(source)} layers of one shape ({_words(source[0].signature)}) may go to {_paths(target)} in more "
            f"than one way, and the order of {_paths(source)} does not tell which: give them the network's names first"
        )
    return [pair for length, layers in wanted.items() for pair in zip(layers, lengths[length], strict=True)]


def _by_series(layers: list[Layer]) -> list[list[Layer]]:
    series: dict[str, list[Layer]] = defaultdict(list)
    for layer in sorted(layers, key=lambda layer: natural(layer.path)):
        series[layer.series].append(layer)
    return list(series.values())


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts numbers within texts by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _with(layers: Iterable[Layer], signature: Signature) -> list[Layer]:
    return [layer for layer in layers if layer.signature == signature]


def _words(signature: Signature) -> str:
    return ", ".join(f"{role} {shape}" for role, shape in sorted(signature, key=lambda entry: entry[0] != "weight"))


def _paths(layers: list[Layer]) -> str:
    shown = ", ".join(repr(layer.path) for layer in layers[:3])
    return shown if len(layers) <= 3 else f"{shown} …"
