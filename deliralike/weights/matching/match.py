"""Matching two networks whose names and layouts differ, such as a port and its original.

`propose` finds which tensor is which from values, shapes, names, kinds and order; what is not
certain says so, and can be corrected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from deliralike.errors import UnknownName, suggestion
from deliralike.network.base import AbstractNetwork
from deliralike.weights.matching import block_paths
from deliralike.weights.matching.layouts import transforms
from deliralike.weights.matching.naming import role
from deliralike.weights.matching.pairing import STATISTICS, Pair, Side
from deliralike.weights.matching.parts import Unit, assembled
from deliralike.weights.matching.searching import Corrections, search

_Move = tuple[Sequence[Unit], Sequence[Unit], Callable[[np.ndarray], np.ndarray]]


@dataclass(frozen=True)
class Match:
    """Which parameters and buffers of a candidate are which of a reference.

    Attributes:
        names: Pairs in the order of the reference.
        missing: Tensors of the reference without one in the candidate, each with the nearest ones
            there.
        unexpected: Tensors of the candidate without one in the reference, each with the nearest
            ones there.
        blocks: Paths of the candidate's blocks by those of the reference's.
        reference, candidate: What was matched.
        left_out: Tensors that the user said to have no counterpart.
        together: Tensors of both sides that hold the same in another form, as outputs show.
    """

    names: tuple[Pair, ...]
    missing: Mapping[str, tuple[str, ...]]
    unexpected: Mapping[str, tuple[str, ...]]
    blocks: Mapping[str, str]
    reference: Side = field(repr=False)
    candidate: Side = field(repr=False)
    left_out: tuple[str, ...] = ()
    together: tuple[str, ...] = ()

    @property
    def ambiguous(self) -> tuple[Pair, ...]:
        """Pairs for which something else would do as well, in place or in layout."""
        return tuple(pair for pair in self.names if not pair.certain)

    @property
    def summed(self) -> frozenset[str]:
        """The reference's tensors that are sums of several of the candidate's, or summands."""
        pairs = [p for p in self.names if len(p.reference) + len(p.candidate) > 2]
        return frozenset(unit.source for pair in pairs for unit in pair.reference)

    @property
    def complete(self) -> bool:
        """Whether every tensor of both has its place."""
        return not (self.missing or self.unexpected)

    def candidate_names(self, name: str) -> tuple[str, ...]:
        """Return the candidate's tensors that hold a tensor of the reference, or parts of it."""
        found: dict[str, None] = {}
        for pair in self.names:
            if any(unit.source == name for unit in pair.reference):
                found |= dict.fromkeys(unit.source for unit in pair.candidate)
        return tuple(found)

    def to_candidate(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state of the reference (or a part of one) in the candidate's names and layouts."""
        moves = ((p.reference, p.candidate, p.transform.apply) for p in self.names)
        return assembled(_moved(moves, state, False), self.candidate.shapes)

    def to_reference(self, state: Mapping[str, Any], gradients: bool = False) -> dict[str, Any]:
        """Return a (partial) state of the candidate in the reference's names and layouts.

        Args:
            gradients: They are gradients: where a bias is the sum of two, the gradient of each is
                its gradient.
        """
        moves = ((p.candidate, p.reference, p.transform.invert) for p in self.names)
        return assembled(_moved(moves, state, gradients), self.reference.shapes)

    @property
    def left_over(self) -> str:
        """What has no counterpart, with the nearest tensors, and how to say what is which."""
        lines = [*_left_over("missing", self.missing), *_left_over("unexpected", self.unexpected)]
        return (
            f"{self.candidate.name} does not match {self.reference.name}: {'; '.join(lines)}. Say "
            'which is which by names={"name in the reference": "name in the candidate"}, or that a '
            'tensor has no counterpart by names={"name": None}'
        )

    @property
    def doubtful(self) -> str:
        """Which pairs are not certain, and what would settle it."""
        pairs = [f"{_shown(p.reference)} as {_shown(p.candidate)}" for p in self.ambiguous]
        return (
            f"It is not certain which tensor is which, and no choice that was tried agrees: "
            f"{', '.join(pairs[:8]) or 'matched by names and shapes alone'}. Say which is which by "
            'names={"name in the reference": "name in the candidate"}'
        )

    @property
    def holds_all(self) -> bool:
        """Whether nothing is left over but constants, such as masks, of one side."""
        left = [(self.reference, self.missing), (self.candidate, self.unexpected)]
        return all(
            not side.tensors[name].is_parameter and role(name) not in STATISTICS
            for side, names in left
            for name in names
        )

    def parameters_left_over(self) -> tuple[str, ...]:
        """The parameters, not the buffers, that have no counterpart."""
        mine = [name for name in self.missing if self.reference.tensors[name].is_parameter]
        theirs = [name for name in self.unexpected if self.candidate.tensors[name].is_parameter]
        return (*mine, *theirs)

    def __str__(self) -> str:
        """Return a table of both names, the layout, and how the pair was decided."""
        rows = [("reference", "candidate", "layout", "decided by")]
        rows += [
            (_shown(p.reference), _shown(p.candidate), str(p.transform), _how(p))
            for p in self.names
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        counts = f"{len(self.names)} pairs, {len(self.ambiguous)} of them not certain"
        left = [*_left_over("missing", self.missing), *_left_over("unexpected", self.unexpected)]
        return "\n".join(
            [f"{self.reference.name} → {self.candidate.name}: {counts}", *lines, *left]
        )


def propose(
    reference: AbstractNetwork,
    candidate: AbstractNetwork,
    corrections: Corrections | None = None,
    called: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Match:
    """Find which parameters and buffers of a candidate are which of a reference.

    Equal names with equal shapes on both sides throughout are taken as they are. Otherwise values
    decide where both hold equal weights in some layout; then shapes, names, kinds of blocks and
    order. Counters (``num_batches_tracked``) are left out.

    Args:
        corrections: Names or paths of blocks in the candidate, by those in the reference; they win.
            A list of names means the parts of one tensor, in this order, and several of the
            reference's may name one of the candidate. None says that a tensor of the reference (or
            of the candidate, if the reference has none of that name) has no counterpart.
        called: The blocks of each side in the order of their calls.

    Raises:
        UnknownName: A correction names what is not there.
        ShapeError: A correction names tensors of which no order of the axes has the same shape.

    Example:
        >>> from deliralike import zoo
        >>> settings = {"backend": "torch", "in_features": 3, "out_features": 2}
        >>> net, port = (zoo.build("mlp", seed=seed, **settings) for seed in (0, 1))
        >>> [(pair.reference[0].name, pair.decided) for pair in propose(net, port).names][:1]
        [('layers.0.weight', 'name')]
    """
    sides = Side.of(reference, called[0]), Side.of(candidate, called[1])
    return propose_between(*sides, dict(corrections or {}))


def propose_between(reference: Side, candidate: Side, corrections: Corrections) -> Match:
    """Find which tensors of one side are which of the other; see `propose`."""
    left_out = [name for name, partner in corrections.items() if partner is None]
    for name in left_out:
        if name not in reference.tensors and name not in candidate.tensors:
            hint = suggestion(name, [*reference.tensors, *candidate.tensors])
            raise UnknownName(f"names={{{name!r}: None}}: neither side has such a tensor. {hint}")
    reference = reference.without(left_out)
    candidate = candidate.without([name for name in left_out if name not in reference.all_names])
    named = {name: partner for name, partner in corrections.items() if partner is not None}
    pairs = search(reference, candidate, named)
    return match_of(reference, candidate, pairs, left_out)


def match_of(
    reference: Side, candidate: Side, pairs: Sequence[Pair], left_out: Sequence[str] = ()
) -> Match:
    """Return the match that has these pairs; all other tensors are missing or unexpected."""
    missing = _not_covered(reference, [unit for pair in pairs for unit in pair.reference])
    unexpected = _not_covered(candidate, [unit for pair in pairs for unit in pair.candidate])
    return Match(
        tuple(pairs),
        {name: _nearest(name, reference, candidate, unexpected) for name in missing},
        {name: _nearest(name, candidate, reference, missing) for name in unexpected},
        block_paths.between(reference, candidate, pairs),
        reference,
        candidate,
        tuple(left_out),
    )


def _moved(
    moves: Iterable[_Move], state: Mapping[str, Any], gradients: bool
) -> Iterator[tuple[Unit, Any]]:
    """The units of one side, from a state of the other; nothing where it lacks one of them."""
    for sources, targets, transform in moves:
        if any(unit.source not in state for unit in sources):
            continue
        parts = [state[unit.source] for unit in sources]
        if any(part is None for part in parts):
            yield from ((unit, None) for unit in targets)
            continue
        values = [unit.read(np.asarray(part)) for unit, part in zip(sources, parts, strict=True)]
        value = transform(values[0] if gradients else sum(values[1:], start=values[0]))
        yield targets[0], value
        for unit in targets[1:]:
            yield unit, value if gradients else np.zeros_like(value)


def _not_covered(side: Side, found: Sequence[Unit]) -> list[str]:
    """Tensors of which not all has a pair."""
    covered: dict[str, int] = defaultdict(int)
    for unit in dict.fromkeys(found):
        covered[unit.source] += math.prod(unit.shape)
    return [
        name
        for name, tensor in side.tensors.items()
        if covered[name] < max(1, math.prod(tensor.shape))
    ]


def _nearest(name: str, side: Side, other: Side, free: Sequence[str]) -> tuple[str, ...]:
    """Return up to three similar tensors of the other side.

    Those of the same shape that are free come first, then the same shape, then a similar name.
    """
    shape = side.tensors[name].shape
    fitting = [each for each, tensor in other.tensors.items() if transforms(shape, tensor.shape)]
    near = get_close_matches(name, [*other.tensors], n=3, cutoff=0.4)
    ordered = [
        *(each for each in fitting if each in free),
        *get_close_matches(name, fitting, n=3, cutoff=0.0),
        *near,
    ]
    return tuple(dict.fromkeys(ordered))[:3]


def _shown(found: Sequence[Unit]) -> str:
    return " + ".join(map(str, found))


def _how(pair: Pair) -> str:
    others = f"; or {', '.join(pair.alternatives)}" if pair.alternatives else ""
    return f"{pair.decided}{others}{'; or another layout' if pair.layouts else ''}"


def _left_over(word: str, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [f"{word}: {name}, nearest {', '.join(near) or 'none'}" for name, near in names.items()]
