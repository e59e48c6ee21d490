"""Matching two networks whose names and layouts differ, such as a port and its original.

`propose` finds which tensor is which from values, shapes, names, kinds and order; what is not
certain says so, and can be corrected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.findings import LIMIT
from deliralike.conformance.matching import block_paths
from deliralike.conformance.matching.choosing import choices, in_order
from deliralike.conformance.matching.layouts import NEAR, Layouts, transforms
from deliralike.conformance.matching.pairing import Pair, Side
from deliralike.conformance.matching.parts import Unit, assembled
from deliralike.conformance.matching.searching import Corrections, search
from deliralike.errors import UnknownName
from deliralike.network.base import AbstractNetwork


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
        corrections: What the user said.
    """

    names: tuple[Pair, ...]
    missing: Mapping[str, tuple[str, ...]]
    unexpected: Mapping[str, tuple[str, ...]]
    blocks: Mapping[str, str]
    reference: Side = field(repr=False)
    candidate: Side = field(repr=False)
    corrections: Corrections = field(default_factory=dict, repr=False)

    @property
    def ambiguous(self) -> tuple[Pair, ...]:
        """Pairs for which something else would do as well, in place or in layout."""
        return tuple(pair for pair in self.names if not pair.certain)

    @property
    def complete(self) -> bool:
        """Whether every tensor of both has its place."""
        return not (self.missing or self.unexpected)

    def candidate_names(self, name: str) -> tuple[str, ...]:
        """Return the candidate's tensors that hold a tensor of the reference, or parts of it."""
        found = (
            unit.source
            for pair in self.names
            if name in _sources(pair.reference)
            for unit in pair.candidate
        )
        return tuple(dict.fromkeys(found))

    def to_candidate(self, state: Mapping[str, Any], gradients: bool = False) -> dict[str, Any]:
        """A state of the reference (or a part of one) in the candidate's names and layouts.

        Args:
            gradients: They are gradients: where a bias is the sum of two, the gradient of each is
                its gradient.
        """
        written = (
            (unit, value)
            for pair in self.names
            for unit, value in _moved(pair, state, gradients, to_candidate=True)
        )
        return assembled(written, self.candidate.shapes)

    def to_reference(self, state: Mapping[str, Any], gradients: bool = False) -> dict[str, Any]:
        """Return a (partial) state of the candidate in the reference's names and layouts.

        The arguments are as in `to_candidate`.
        """
        written = (
            (unit, value)
            for pair in self.names
            for unit, value in _moved(pair, state, gradients, to_candidate=False)
        )
        return assembled(written, self.reference.shapes)

    def corrected(self, corrections: Corrections) -> Match:
        """Matched anew, with these corrections beside those given before."""
        return _propose(self.reference, self.candidate, {**self.corrections, **corrections})

    def require_complete(self) -> Match:
        """This match, if nothing is left over.

        Raises:
            UnknownName: Tensors are left over; the message names them and the nearest ones.
        """
        if self.complete:
            return self
        lines = [*_left_over("missing", self.missing), *_left_over("unexpected", self.unexpected)]
        raise UnknownName(
            f"{self.candidate.name} does not match {self.reference.name}: {'; '.join(lines)}. Say "
            "which is which: "
            f'{{"name in the reference": "name in the candidate", …}}, as names= of compare or corrections= of propose'
        )

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
    values: bool = True,
) -> Match:
    """Find which parameters and buffers of a candidate are which of a reference.

    Equal names with equal shapes on both sides throughout are taken as they are. Otherwise values
    decide where both hold equal weights in some layout; then shapes, names, kinds of blocks and
    order. Counters (``num_batches_tracked``) are left out.

    Args:
        corrections: Names or paths of blocks in the candidate, by those in the reference; they win.
            A list of names means the parts of one tensor, in this order, and several of the
            reference's may name one of the candidate.
        values: Whether to look at values.

    Raises:
        UnknownName: A correction names what is not there.
        ShapeError: A correction names tensors of which no order of the axes has the same shape.

    Example:
        >>> from deliralike import zoo
        >>> net, port = (zoo.build("mlp", backend="torch", in_features=3, out_features=2, seed=seed) for seed in (0, 1))
        >>> [(pair.reference[0].name, pair.decided) for pair in propose(net, port).names][:1]
        [('layers.0.weight', 'name')]
    """
    return _propose(Side.of(reference, values), Side.of(candidate, values), dict(corrections or {}))


def by_outputs(
    match: Match,
    reference: AbstractNetwork,
    candidate: AbstractNetwork,
    batch: tuple[Any, ...],
    layouts: Layouts | None = None,
) -> Match:
    """Decide what is ambiguous by running: take the choice whose outputs equal the reference's.

    Each choice gives the candidate the reference's weights; afterwards it has its own again.

    Args:
        batch: Positional inputs in the reference's layout; floating ones should be random, in
            float64.
        layouts: What is known of the candidate's layouts.

    Returns:
        The choice with equal outputs, decided by ``"output"``; the match as it was where no choice
        has them.

    Raises:
        SettingError: There are more than a thousand choices.
    """
    layouts = layouts or Layouts()
    before, state = candidate.neutral_state(), reference.neutral_state()
    wanted = _outputs(reference, batch)
    inputs = layouts.input_for(candidate, batch)
    try:
        for pairs in choices(match.names):
            chosen = replace(match, names=pairs)
            candidate.load_neutral_state(chosen.to_candidate(state), strict=False)
            given = layouts.to_reference(_outputs(candidate, inputs), wanted)
            if compare(_by_path(wanted), _by_path(given)).difference <= LIMIT:
                return replace(
                    chosen, blocks=block_paths.between(match.reference, match.candidate, pairs)
                )
    finally:
        candidate.load_neutral_state(before)
    return match


def by_activations(
    match: Match,
    reference: Mapping[str, np.ndarray],
    candidate: Mapping[str, np.ndarray],
    layouts: Layouts | None = None,
) -> Match:
    """Decide which layer is which by their outputs for one batch with equal weights.

    Values cannot tell fresh norms from each other, whose scales are all ones; what goes through
    them can.

    Args:
        reference, candidate: Outputs by the paths of blocks.
        layouts: What is known of the candidate's layouts.

    Returns:
        The match with layers exchanged where exactly one order of them fits the activations.
    """
    layouts = layouts or Layouts()

    def alike(ours: str, theirs: str) -> bool:
        if ours not in reference or theirs not in candidate:
            return False
        axes = layouts.align(reference[ours], candidate[theirs])
        moved = None if axes is None else np.transpose(candidate[theirs], axes)
        return relative_difference(reference[ours], moved) <= NEAR

    pairs = in_order(match.names, alike)
    return replace(
        match, names=pairs, blocks=block_paths.between(match.reference, match.candidate, pairs)
    )


def _outputs(network: Any, inputs: tuple[Any, ...]) -> Any:
    with network.training_mode(False), network.backend.evaluating():
        return network.backend.to_numpy(network(*network.backend.prepare(inputs, network)))


def _by_path(outputs: Any) -> dict[str, Any]:
    return dict(nest.leaves_with_paths(outputs, "output"))


def _propose(reference: Side, candidate: Side, corrections: Corrections) -> Match:
    pairs = search(reference, candidate, corrections)
    missing = _not_covered(reference, [unit for pair in pairs for unit in pair.reference])
    unexpected = _not_covered(candidate, [unit for pair in pairs for unit in pair.candidate])
    return Match(
        tuple(pairs),
        {name: _nearest(name, reference, candidate, unexpected) for name in missing},
        {name: _nearest(name, candidate, reference, missing) for name in unexpected},
        block_paths.between(reference, candidate, pairs),
        reference,
        candidate,
        dict(corrections),
    )


def _moved(
    pair: Pair, state: Mapping[str, Any], gradients: bool, to_candidate: bool
) -> Iterator[tuple[Unit, Any]]:
    """The units of one side, from a state of the other; nothing where it lacks one of them."""
    sources, targets = (
        (pair.reference, pair.candidate) if to_candidate else (pair.candidate, pair.reference)
    )
    if any(unit.source not in state for unit in sources):
        return
    parts = [state[unit.source] for unit in sources]
    if any(part is None for part in parts):
        yield from ((unit, None) for unit in targets)
        return
    values = [unit.read(np.asarray(part)) for unit, part in zip(sources, parts, strict=True)]
    value = values[0] if gradients or len(values) == 1 else np.sum(values, axis=0)
    value = pair.transform.apply(value) if to_candidate else pair.transform.invert(value)
    yield targets[0], value
    yield from ((unit, value if gradients else np.zeros_like(value)) for unit in targets[1:])


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


def _sources(found: Iterable[Unit]) -> list[str]:
    return [unit.source for unit in found]


def _shown(found: Sequence[Unit]) -> str:
    return " + ".join(map(str, found))


def _how(pair: Pair) -> str:
    others = f"; or {', '.join(pair.alternatives)}" if pair.alternatives else ""
    return f"{pair.decided}{others}{'; or another layout' if pair.layouts else ''}"


def _left_over(word: str, names: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [f"{word}: {name}, nearest {', '.join(near) or 'none'}" for name, near in names.items()]
