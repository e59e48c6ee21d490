"""Level L0 (structure): names, shapes, types, ties and start values of two networks.

It also checks that their weights are finite.

Without a match the names must be equal, as those of networks written once are; with one they may
differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.weights import explain_weights
from deliralike.conformance.findings import FAILED, PASSED, Explanation, Finding, Level
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.pairing import COUNTER
from deliralike.conformance.matching.parts import join
from deliralike.conformance.subject import Subject
from deliralike.errors import SettingError, suggestion
from deliralike.network.base import AbstractNetwork

TITLE = "names, shapes, structure"
_ABOUT_VALUES = ("weight of", "shape")  # findings that values may explain
_WEIGHTS = ("judge", "load")
_NOT_THERE = np.inf  # the difference of what cannot be compared

Explain = Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], list[tuple[str, Explanation]]]


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer as level L0 sees it.

    Attributes:
        value: In the neutral layout.
        dtype: Its type's name.
        usual: Whether it is of the network's own floating type, or holds whole numbers.
        is_parameter, trainable: As in `deliralike.network.state.Slot`.
        tie: The first of the names that it has in the network.
    """

    value: np.ndarray
    dtype: str
    usual: bool
    is_parameter: bool
    trainable: bool
    tie: str


def level(
    reference: Subject,
    candidate: Subject,
    match: Match | None = None,
    weights: str = "judge",
    explain: Explain | None = explain_weights,
) -> Level:
    """Compare what two networks are made of.

    Args:
        match: Which tensor of the candidate is which of the reference; equal names are wanted
            without one.
        weights: ``"judge"`` if start values must be equal, ``"load"`` if the candidate is given the
            reference's anyway.
        explain: Says why tensors differ: from both sides' (in the reference's names) to names and
            explanations.

    Raises:
        SettingError: `weights` is neither.
    """
    if weights not in _WEIGHTS:
        raise SettingError(
            f"level L0: weights={weights!r} is unknown. {suggestion(weights, _WEIGHTS)}"
        )
    sides = _Sides.of(reference.network, candidate.network, match)
    judged = weights == "judge"
    values = sides.values()
    apart = [name for name, (difference, limit) in values.items() if difference > limit]
    findings = [*_not_numbers(sides.ours, "reference"), *_not_numbers(sides.own, "candidate")]
    findings += [*_names(sides), *_properties(sides), *_ties(sides)]
    if not findings:
        findings += _counts(reference.network, candidate.network, match)
    if judged:
        findings += [_start_value(name, *values[name]) for name in apart]
        findings = _explained(findings, sides, explain)
    kinds = {path: type(block).__name__ for path, block in reference.network.named_blocks()}
    findings = [replace(one, kind=kinds.get(_owner(one.place), "")) for one in findings]
    notes = [*_notes_of_names(sides), *([] if match is None else _notes_of_match(match))]
    if apart and not judged:
        worst = max(apart, key=lambda name: values[name][0])
        notes.append(
            f"Start values differ in {len(apart)} tensors, most in {worst} "
            f"({values[worst][0]:.1e}); the reference's are loaded into the candidate."
        )
    networks = (reference.network, candidate.network)
    figures = {
        "parameters": [network.count_parameters() for network in networks],
        "tensors": [len(sides.ours), len(sides.own)],
    }
    status = FAILED if findings else PASSED
    worst_of_all = max((difference for difference, _ in values.values()), default=None)
    largest = worst_of_all if judged else None
    return Level("L0", TITLE, status, largest, tuple(findings), tuple(notes), figures)


def look(network: AbstractNetwork) -> dict[str, Weight]:
    """Every parameter and buffer by its neutral name."""
    first: dict[int, str] = {}
    main, found = network.dtype_name, {}
    for name, slot in network.neutral_slots().items():
        value = slot.read()
        tie = first.setdefault(id(slot.native), name) if slot.is_parameter else name
        usual = value.dtype.kind != "f" or value.dtype.name == main
        found[name] = Weight(value, value.dtype.name, usual, slot.is_parameter, slot.trainable, tie)
    return found


@dataclass(frozen=True)
class _Sides:
    """The weights of both networks.

    Attributes:
        ours: The reference's.
        own, theirs: The candidate's by its own names, and by those of the reference.
        match: Of these names; None where they are to be equal.
    """

    ours: Mapping[str, Weight]
    own: Mapping[str, Weight]
    theirs: Mapping[str, Weight]
    match: Match | None

    @classmethod
    def of(
        cls, reference: AbstractNetwork, candidate: AbstractNetwork, match: Match | None
    ) -> _Sides:
        """Look at both."""
        own = look(candidate)
        return cls(look(reference), own, own if match is None else _through(match, own), match)

    @property
    def both(self) -> list[str]:
        """The names that both sides have."""
        return [name for name in self.ours if name in self.theirs]

    def values(self) -> dict[str, tuple[float, float]]:
        """How far each tensor is, and how far it may be, where that can be said.

        Two biases of the reference that are one in the candidate are compared by their sum.
        """
        wanted, summed = self.comparable(), () if self.match is None else self.match.summed
        found = {}
        for name in self.both:
            ours, theirs = wanted[name], self.theirs[name]
            counts = self.match is not None and name.endswith(COUNTER)  # each in its own way
            if ours.value.shape == theirs.value.shape and _finite(ours, theirs) and not counts:
                found[name] = _value_difference(ours, theirs, name in summed)
        return found

    def comparable(self) -> dict[str, Weight]:
        """The reference's weights as they would come back from the candidate."""
        if self.match is None:
            return dict(self.ours)
        values = {name: weight.value for name, weight in self.ours.items()}
        back = self.match.to_reference(self.match.to_candidate(values))
        return {
            name: replace(weight, value=back.get(name, weight.value))
            for name, weight in self.ours.items()
        }


def _through(match: Match, own: Mapping[str, Weight]) -> dict[str, Weight]:
    """The candidate's weights, and the counters of its norms, as those of the reference."""
    values = match.to_reference({name: weight.value for name, weight in own.items()})
    straight = [(p.reference[0].source, p.candidate[0].source) for p in match.names if p.straight]
    back = {theirs: ours for ours, theirs in reversed(straight)}  # the first of several names
    found = {}
    for name, value in values.items():
        parts = [own[each] for each in match.candidate_names(name)]
        found[name] = replace(
            parts[0],
            value=value,
            tie=back.get(parts[0].tie, name) if name in dict(straight) else name,
            usual=all(part.usual for part in parts),
            trainable=all(part.trainable for part in parts),
        )
    for theirs, ours in back.items():
        counter, name = (join(_owner(each), COUNTER) for each in (theirs, ours))
        if theirs.endswith("running_mean") and counter in own:
            found[name] = replace(own[counter], tie=name)
    return found


# Findings
# -----------------------------------------------------------------------------


def _not_numbers(weights: Mapping[str, Weight], side: str) -> Iterator[Finding]:
    for name, weight in weights.items():
        bad = {"NaN": np.isnan(weight.value).sum(), "infinite": np.isinf(weight.value).sum()}
        for word, count in bad.items():
            if count:
                what = f"{count} of {weight.value.size} values are {word} in the {side}"
                yield _finding(name, what)


def _names(sides: _Sides) -> Iterator[Finding]:
    """What is there on one side only; norms' counters aside."""
    match = sides.match
    missing: Mapping[str, tuple[str, ...]]
    extra: Mapping[str, tuple[str, ...]]
    if match is None:
        missing = {name: () for name in sides.ours if name not in sides.theirs}
        extra = {name: () for name in sides.own if name not in sides.ours}
    else:  # what a buffer of one side is for shows in the values
        missing = {n: near for n, near in match.missing.items() if sides.ours[n].is_parameter}
        extra = {n: near for n, near in match.unexpected.items() if sides.own[n].is_parameter}
    for name, near in missing.items():
        near = near or _of_its_shape(sides.ours[name], sides.own, extra)
        if not name.endswith(COUNTER):
            yield _finding(name, "missing in the candidate", _nearest(near, "there"))
    for name, near in extra.items():
        near = near or _of_its_shape(sides.own[name], sides.ours, missing)
        if not name.endswith(COUNTER):
            yield _finding(name, "in the candidate only", _nearest(near, "in the reference"))


def _of_its_shape(
    weight: Weight, others: Mapping[str, Weight], free: Iterable[str]
) -> tuple[str, ...]:
    fitting = (other for other in free if others[other].value.shape == weight.value.shape)
    return tuple(fitting)[:3]


def _nearest(names: Sequence[str], where: str) -> str:
    return f"Of its shape {where}: {', '.join(names)}." if names else ""


def _properties(sides: _Sides) -> Iterator[Finding]:
    """Other shapes, types and roles."""
    for name in sides.both:
        ours, theirs = sides.ours[name], sides.theirs[name]
        shapes = ours.value.shape, theirs.value.shape
        if shapes[0] != shapes[1]:
            yield _finding(name, f"shape {shapes[1]}, in the reference {shapes[0]}")
        other_kind = ours.value.dtype.kind != theirs.value.dtype.kind and sides.match is None
        if other_kind or (ours.usual != theirs.usual and ours.dtype != theirs.dtype):
            yield _finding(name, f"type {theirs.dtype}, in the reference {ours.dtype}")
        if ours.is_parameter != theirs.is_parameter:
            yield _finding(name, f"a {_role(theirs)}, in the reference a {_role(ours)}")
        elif ours.trainable != theirs.trainable:
            yield _finding(name, f"{_state(theirs)}, in the reference {_state(ours)}")


def _role(weight: Weight) -> str:
    return "parameter" if weight.is_parameter else "buffer"


def _state(weight: Weight) -> str:
    return "trainable" if weight.trainable else "frozen"


def _ties(sides: _Sides) -> Iterator[Finding]:
    """Tensors that are one parameter on one side and two on the other."""
    mine, theirs = (_groups(side, sides.both) for side in (sides.ours, sides.theirs))
    for name in sides.both:
        for one, two, words in (
            (mine, theirs, "not tied to {}, as in the reference"),
            (theirs, mine, "tied to {}, in the reference by itself"),
        ):
            before = sorted(other for other in one[name] - two[name] if other < name)
            if before:
                yield _finding(name, words.format(before[0]))


def _groups(weights: Mapping[str, Weight], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """All names of the parameter that each name belongs to."""
    members: dict[str, list[str]] = defaultdict(list)
    for name in names:
        members[weights[name].tie].append(name)
    return {name: frozenset(group) for group in members.values() for name in group}


def _counts(
    reference: AbstractNetwork, candidate: AbstractNetwork, match: Match | None
) -> Iterator[Finding]:
    """The number of parameters, where nothing says why it differs."""
    mine, theirs = reference.count_parameters(), candidate.count_parameters()
    if match is not None and (
        match.summed or match.left_out or match.together or not match.complete
    ):
        return
    if mine != theirs:
        yield _finding("", f"{theirs:,} parameters, in the reference {mine:,}")


def _start_value(name: str, difference: float, limit: float) -> Finding:
    beyond = f" (limit {limit:.0e})" if limit else ""
    size = f"Relative difference {difference:.1e}{beyond}."
    return Finding("L0", name, f"weight of {name}", difference, limit=limit, remarks=(size,))


def _value_difference(ours: Weight, theirs: Weight, is_sum: bool) -> tuple[float, float]:
    """Return the relative difference and its limit.

    The limit is zero in one type, else the rounding of a cast between two types or of a sum.

    Infinite where the reference's values are all zero.
    """
    values = [weight.value for weight in (ours, theirs)]
    roundings = {float(np.finfo(value.dtype).eps) for value in values if value.dtype.kind == "f"}
    limit = max(roundings) if is_sum or len(roundings) > 1 else 0.0
    return relative_difference(*(value.astype(np.float64) for value in values)), limit


def _finite(*weights: Weight) -> bool:
    return all(bool(np.isfinite(weight.value).all()) for weight in weights)


def _explained(
    findings: Sequence[Finding], sides: _Sides, explain: Explain | None
) -> list[Finding]:
    """Findings about values and shapes, with what the hook says of each; the others as they are."""
    wanted = {name: one.value for name, one in sides.comparable().items() if _finite(one)}
    about = [one.place for one in findings if one.what.startswith(_ABOUT_VALUES)]
    came = {n: sides.theirs[n].value for n in about if n in wanted and _finite(sides.theirs[n])}
    if explain is None or not came:
        return list(findings)
    why = dict(explain(wanted, came))  # what one holds may be another's
    return [
        replace(one, explanation=why.get(one.place)) if one.place in about else one
        for one in findings
    ]


# Notes
# -----------------------------------------------------------------------------


def _notes_of_names(sides: _Sides) -> Iterator[str]:
    counters = [name for name in sides.ours if name.endswith(COUNTER) and name not in sides.theirs]
    if counters:
        yield f"The candidate has no counters of batches ({_some(counters)}); nothing is computed from them."
    order = [name for name in sides.theirs if name in sides.ours]
    pairs = zip(sides.both, order, strict=True)
    first = next((name for name, other in pairs if name != other), None)
    if sides.match is None and first is not None:
        yield f"The names stand in another order in the candidate, from {first} on."


def _notes_of_match(match: Match) -> Iterator[str]:
    yield f"{len(match.names)} pairs of tensors were matched, {len(match.ambiguous)} of them without certainty."
    for pair in match.ambiguous[:8]:
        mine, theirs = (" + ".join(map(str, units)) for units in (pair.reference, pair.candidate))
        yield f"{mine} was taken for {theirs}, which is not certain."
    parameters = match.parameters_left_over()
    lists = {
        "Left out as was asked": match.left_out,
        "Held in another form, and compared by what they compute together": match.together,
        "Buffers of the reference alone, not compared": set(match.missing).difference(parameters),
        "Buffers of the candidate alone, not compared": set(match.unexpected).difference(
            parameters
        ),
    }
    for what, names in lists.items():
        if names:
            yield f"{what}: {_some(sorted(names))}."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _finding(name: str, what: str, remark: str = "") -> Finding:
    remarks = (remark,) if remark else ()
    return Finding("L0", name, what, _NOT_THERE, limit=0.0, remarks=remarks)
