"""Level L0 (structure): names, shapes, types, ties and start values of two networks.

Without a match the names must be equal, as those of networks written once are; with one they may
differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import block_kinds, only, owner, without
from deliralike.conformance.causes import in_words
from deliralike.conformance.explain.weights import explain_weights
from deliralike.conformance.findings import FAILED, Explanation, Finding, Level
from deliralike.conformance.kinds import Shape, Tensors
from deliralike.conformance.matching import Match
from deliralike.conformance.subject import Subject
from deliralike.errors import listed
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import count_parameters
from deliralike.weights.matching.distance import wide
from deliralike.weights.matching.pairing import COUNTER

TITLE = "names, shapes, structure"
_ABOUT_VALUES = ("weight of", "shape")  # findings that values may explain
_NOT_THERE = np.inf  # the difference of what cannot be compared


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer as level L0 sees it.

    Attributes:
        value: In the neutral layout.
        is_parameter, trainable: As in `deliralike.network.state.Slot`.
        tie: The first of the names that it has in the network.
    """

    value: np.ndarray
    is_parameter: bool
    trainable: bool
    tie: str


def level(
    reference: Subject,
    candidate: Subject,
    match: Match | None = None,
    weights: str = "judge",
) -> Level:
    """Compare what two networks are made of.

    Args:
        match: Which tensor of the candidate is which of the reference; equal names are wanted
            without one.
        weights: ``"judge"`` if start values must be equal, ``"load"`` if the candidate is given the
            reference's anyway.
    """
    networks = (reference.network, candidate.network)
    sides = _Sides.of(*networks, match)
    judged = weights == "judge"
    values = sides.values()
    apart = [name for name, (difference, limit) in values.items() if difference > limit]
    findings = [*_names(sides), *_properties(sides, *networks), *_ties(sides)]
    if judged:
        findings += [_start_value(name, *values[name]) for name in apart]
        findings = _explained(findings, sides)
    kinds = block_kinds(reference.network)
    findings = [replace(one, kind=kinds.get(owner(one.place), "")) for one in findings]
    notes = [] if match is None else list(_notes_of_match(match))
    if apart and not judged:
        worst = max(apart, key=lambda name: values[name][0])
        notes.append(
            f"Start values differ in {len(apart)} tensors, most in {worst} "
            f"({values[worst][0]:.1e}); the reference's are loaded into the candidate."
        )
    worst_of_all = max((difference for difference, _ in values.values()), default=None)
    return Level.judged(
        "L0",
        TITLE,
        worst_of_all if judged else None,
        findings,
        notes,
        parameters=[count_parameters(network) for network in networks],
        tensors=[len(sides.reference), len(sides.untranslated)],
    )


def reshaped(
    reference: AbstractNetwork, candidate: AbstractNetwork, match: Match | None
) -> list[Finding]:
    """Findings of tensors that have one name and two shapes, where both sides compute otherwise.

    Where they compute the same, they hold it in two forms.
    """
    if match is None:
        return []
    found, kinds = [], block_kinds(reference)
    for name, weight in match.candidate.tensors.items():
        ours = match.reference.tensors.get(name)
        is_left = name in match.missing and name in match.unexpected
        if ours is not None and ours.shape != weight.shape and is_left:
            finding = _of_shape(name, ours.shape, weight.shape, reference, candidate)
            found.append(replace(finding, kind=kinds[owner(name)]))
    return found


def _of_shape(
    name: str,
    shape: Shape,
    actual: Shape,
    reference: AbstractNetwork,
    candidate: AbstractNetwork,
) -> Finding:
    """A tensor of another shape, which the groups of its convolutions may explain."""
    finding = _finding(name, f"shape {actual}, in the reference {shape}")
    expected, other = (
        _groups_of(network, owner(name)) for network in (reference, candidate)
    )
    if expected == other or None in (expected, other):
        return finding
    return replace(
        finding,
        explanation=Explanation.from_observation(in_words("groups", other, expected)),
    )


def _groups_of(network: AbstractNetwork, path: str) -> int | None:
    """The groups of a convolution; None for another block."""
    block = dict(network.named_blocks()).get(path)
    known = network.backend.neutral_layer(block)
    return (known[1] if known else getattr(block, "__dict__", {})).get("groups")


def with_shapes(level: Level, found: Sequence[Finding]) -> Level:
    """The level with these findings in the place of others about the same tensors."""
    names = {one.place for one in found}
    others = [one for one in level.findings if one.place not in names]
    return replace(level, status=FAILED, findings=(*found, *others))


def look(network: AbstractNetwork) -> dict[str, Weight]:
    """Every parameter and buffer by its neutral name."""
    first: dict[int, str] = {}
    found = {}
    for name, slot in network.neutral_slots().items():
        value = slot.read()
        tie = first.setdefault(id(slot.native), name) if slot.is_parameter else name
        found[name] = Weight(value, slot.is_parameter, slot.trainable, tie)
    return found


@dataclass(frozen=True)
class _Sides:
    """The weights of both networks.

    Attributes:
        reference: The reference's.
        untranslated, candidate: The candidate's by its own names, and by those of the reference.
        match: Of these names; None where they are to be equal.
    """

    reference: Mapping[str, Weight]
    untranslated: Mapping[str, Weight]
    candidate: Mapping[str, Weight]
    match: Match | None

    @classmethod
    def of(
        cls, reference: AbstractNetwork, candidate: AbstractNetwork, match: Match | None
    ) -> _Sides:
        """Look at both."""
        own = look(candidate)
        return cls(
            look(reference), own, own if match is None else _through(match, own), match
        )

    @property
    def both(self) -> list[str]:
        """The names that both sides have."""
        return [name for name in self.reference if name in self.candidate]

    def is_fused(self, name: str) -> bool:
        """Whether the candidate's layer of a tensor holds what is of several of the reference's."""
        if self.match is None:
            return False
        owners = set(map(owner, self.match.candidate_names(name)))
        beside = set()
        for pair in self.match.names:
            if owners & {owner(unit.source) for unit in pair.candidate}:
                beside.add(owner(pair.reference[0].source))
        return len(beside) > 1

    def values(self) -> dict[str, tuple[float, float]]:
        """How far each tensor is, and how far it may be, where that can be said.

        Two biases of the reference that are one in the candidate are compared by their sum.
        """
        wanted = self.comparable()
        summed = () if self.match is None else self.match.summed
        found = {}
        for name in self.both:
            expected, actual = wanted[name], self.candidate[name]
            if expected.value.shape == actual.value.shape and _finite(expected, actual):
                found[name] = _value_difference(expected, actual, name in summed)
        return found

    def comparable(self) -> dict[str, Weight]:
        """The reference's weights as they would come back from the candidate."""
        if self.match is None:
            return dict(self.reference)
        back = self.match.to_reference(self.match.to_candidate(_values(self.reference)))
        found = dict(self.reference)
        for name, value in only(back, self.reference).items():
            found[name] = replace(self.reference[name], value=value)
        return found


def _through(match: Match, own: Mapping[str, Weight]) -> dict[str, Weight]:
    """The candidate's weights as those of the reference."""
    back: dict[str, str] = {}  # the first of several names
    straight = [pair for pair in match.names if pair.straight]
    for pair in straight:
        back.setdefault(pair.candidate[0].source, pair.reference[0].source)
    alone = {pair.reference[0].source for pair in straight}
    found = {}
    for name, value in match.to_reference(_values(own)).items():
        parts = [own[each] for each in match.candidate_names(name)]
        tie = name
        if name in alone:
            tie = back.get(parts[0].tie, name)
        trainable = all(part.trainable for part in parts)
        found[name] = replace(parts[0], value=value, tie=tie, trainable=trainable)
    return found


def _values(weights: Mapping[str, Weight]) -> Tensors:
    return {name: weight.value for name, weight in weights.items()}


# Findings
# -----------------------------------------------------------------------------


def _names(sides: _Sides) -> Iterator[Finding]:
    """What is there on one side only; norms' counters aside."""
    match = sides.match
    if match is None:
        missing = [name for name in sides.reference if name not in sides.candidate]
        extra = [name for name in sides.untranslated if name not in sides.reference]
    else:  # what a buffer of one side is for shows in the values
        missing = [name for name in match.missing if sides.reference[name].is_parameter]
        extra = [
            name for name in match.unexpected if sides.untranslated[name].is_parameter
        ]
    for names, what in (
        (missing, "missing in the candidate"),
        (extra, "in the candidate only"),
    ):
        for name in names:
            if not name.endswith(COUNTER):
                yield _finding(name, what)


def _properties(
    sides: _Sides, reference: AbstractNetwork, candidate: AbstractNetwork
) -> Iterator[Finding]:
    """Other shapes, types and roles."""
    for name in sides.both:
        expected, actual = sides.reference[name], sides.candidate[name]
        shape, actual_shape = expected.value.shape, actual.value.shape
        if shape != actual_shape:
            yield _of_shape(name, shape, actual_shape, reference, candidate)
        if sides.is_fused(name):
            continue  # what was constant may be part of what is trained
        are_trained = (
            expected.trainable or actual.trainable
        )  # a frozen parameter is as good as a buffer
        if expected.is_parameter != actual.is_parameter and are_trained:
            yield _finding(name, _ROLES[actual.is_parameter])
        elif expected.trainable != actual.trainable:
            yield _finding(name, _STATES[actual.trainable])


# by what the candidate has
_ROLES = (
    "a buffer, in the reference a parameter",
    "a parameter, in the reference a buffer",
)
_STATES = ("frozen, in the reference trainable", "trainable, in the reference frozen")


def _ties(sides: _Sides) -> Iterator[Finding]:
    """Tensors that are one parameter on one side and two on the other."""
    expected, actual = (
        _groups(side, sides.both) for side in (sides.reference, sides.candidate)
    )
    for name in sides.both:
        for more, words in (
            (expected[name] - actual[name], "not tied to {}, as in the reference"),
            (actual[name] - expected[name], "tied to {}, in the reference by itself"),
        ):
            first = min({*more, name})
            if first < name:
                yield _finding(name, words.format(first))


def _groups(
    weights: Mapping[str, Weight], names: Iterable[str]
) -> dict[str, frozenset[str]]:
    """All names of the parameter that each name belongs to."""
    members: dict[str, list[str]] = defaultdict(list)
    for name in names:
        members[weights[name].tie].append(name)
    found: dict[str, frozenset[str]] = {}
    for group in members.values():
        found |= dict.fromkeys(group, frozenset(group))
    return found


def _start_value(name: str, difference: float, limit: float) -> Finding:
    beyond = f" (limit {limit:.0e})" if limit else ""
    size = f"Relative difference {difference:.1e}{beyond}."
    return Finding(
        "L0", name, f"weight of {name}", difference, limit=limit, remarks=(size,)
    )


def _value_difference(
    expected: Weight, actual: Weight, is_sum: bool
) -> tuple[float, float]:
    """Return the relative difference and its limit.

    The limit is zero in one type, else the rounding of a cast between two types or of a sum.

    Infinite where the reference's values are all zero.
    """
    values = (expected.value, actual.value)
    roundings = {
        float(np.finfo(value.dtype).eps) for value in values if value.dtype.kind == "f"
    }
    limit = max(roundings) if is_sum or len(roundings) > 1 else 0.0
    return relative_difference(*map(wide, values)), limit


def _finite(*weights: Weight) -> bool:
    return all(bool(np.isfinite(weight.value).all()) for weight in weights)


def _explained(findings: Sequence[Finding], sides: _Sides) -> list[Finding]:
    """Findings about values and shapes with their explanation; the others as they are."""
    wanted = {
        name: one.value for name, one in sides.comparable().items() if _finite(one)
    }
    about = [one.place for one in findings if one.what.startswith(_ABOUT_VALUES)]
    came = {
        n: sides.candidate[n].value
        for n in about
        if n in wanted and _finite(sides.candidate[n])
    }
    why = (
        dict(explain_weights(wanted, came)) if came else {}
    )  # what one holds may be another's
    found = []
    for one in findings:
        if one.place in about and one.explanation is None:
            one = replace(one, explanation=why.get(one.place))
        found.append(one)
    return found


# Notes
# -----------------------------------------------------------------------------


def _notes_of_match(match: Match) -> Iterator[str]:
    parameters = match.parameters_left_over()
    lists = {
        "Left out as was asked": match.left_out,
        "Buffers of the reference alone, not compared": without(
            dict.fromkeys(match.missing), parameters
        ),
        "Buffers of the candidate alone, not compared": without(
            dict.fromkeys(match.unexpected), parameters
        ),
    }
    for what, names in lists.items():
        if names:
            yield f"{what}: {listed(sorted(names))}."


def _finding(name: str, what: str) -> Finding:
    return Finding("L0", name, what, _NOT_THERE, limit=0.0)
