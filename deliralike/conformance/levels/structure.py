"""Level L0 (structure): names, shapes, types, ties and start values of two networks.

It also checks that their weights are finite.

Without a match the names must be equal, as those of networks written once are; with one they may
differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    ours, own = look(reference.network), look(candidate.network)
    theirs = own if match is None else _through(match, own)
    kinds = {path: type(block).__name__ for path, block in reference.network.named_blocks()}
    both = [
        name
        for name in ours
        if name in theirs and not _shape_findings(name, ours[name], theirs[name])
    ]
    wanted = _comparable(ours, match)
    summed = _summed(match)
    numbers = [name for name in both if _finite(wanted[name], theirs[name])]
    values = {
        name: _value_difference(wanted[name], theirs[name], name in summed) for name in numbers
    }
    apart = [
        name
        for name, (difference, limit) in values.items()
        if difference > limit
        and _finite(ours[name], theirs[name])
        and not (match is not None and name.endswith(COUNTER))  # each framework counts its own way
    ]
    findings = [
        *_not_numbers(ours, "reference"),
        *_not_numbers(own, "candidate"),
        *_names(ours, theirs, own, match),
    ]
    findings += [
        f
        for name in ours
        if name in theirs
        for f in _properties(name, ours[name], theirs[name], match is None)
    ]
    findings += _ties(ours, theirs)
    findings += _counts(reference.network, candidate.network, findings, match)
    if weights == "judge":
        findings = _explained([*findings, *_start_values(apart, values)], wanted, theirs, explain)
    return Level(
        "L0",
        TITLE,
        FAILED if findings else PASSED,
        max((difference for difference, _ in values.values()), default=None)
        if weights == "judge"
        else None,
        tuple(_with_kinds(findings, kinds)),
        tuple(_notes(ours, theirs, match, apart if weights == "load" else [], values)),
        {
            "parameters": [
                reference.network.count_parameters(),
                candidate.network.count_parameters(),
            ],
            "tensors": [len(ours), len(own)],
        },
    )


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


def _through(match: Match, own: Mapping[str, Weight]) -> dict[str, Weight]:
    """The candidate's weights in the names and layouts of the reference."""
    values = match.to_reference({name: weight.value for name, weight in own.items()})
    straight = {
        pair.reference[0].source: pair.candidate[0].source for pair in match.names if pair.straight
    }
    back = {
        theirs: ours for ours, theirs in reversed(straight.items())
    }  # the first of several names
    found = {}
    for name, value in values.items():
        parts = [own[each] for each in match.candidate_names(name)]
        found[name] = replace(
            parts[0],
            value=value,
            tie=back.get(parts[0].tie, name) if name in straight else name,
            usual=all(part.usual for part in parts),
            trainable=all(part.trainable for part in parts),
        )
    return found | dict(_counters(own, back))


def _summed(match: Match | None) -> set[str]:
    """The reference's tensors that are sums of several, or summands."""
    return set() if match is None else set(match.summed)


def _counters(own: Mapping[str, Weight], back: Mapping[str, str]) -> Iterator[tuple[str, Weight]]:
    """The counters of norms, which no match holds, by the names of the statistics beside them."""
    for theirs, ours in back.items():
        owner, _, leaf = theirs.rpartition(".")
        counter = join(owner, COUNTER)
        if leaf == "running_mean" and counter in own:
            name = join(ours.rpartition(".")[0], COUNTER)
            yield name, replace(own[counter], tie=name)


def _comparable(ours: Mapping[str, Weight], match: Match | None) -> dict[str, Weight]:
    """Return the reference's weights in the units of the candidate.

    Two biases that are one there are summed.
    """
    if match is None:
        return dict(ours)
    values = match.to_reference(
        match.to_candidate({name: weight.value for name, weight in ours.items()})
    )
    return {
        name: replace(weight, value=values.get(name, weight.value)) for name, weight in ours.items()
    }


# Findings
# -----------------------------------------------------------------------------


def _not_numbers(weights: Mapping[str, Weight], side: str) -> Iterator[Finding]:
    for name, weight in weights.items():
        bad = {"NaN": np.isnan(weight.value).sum(), "infinite": np.isinf(weight.value).sum()}
        for word, count in bad.items():
            if count:
                what = f"{count} of {weight.value.size} values are {word} in the {side}"
                yield _finding(name, what, _NOT_THERE)


def _names(
    ours: Mapping[str, Weight],
    theirs: Mapping[str, Weight],
    own: Mapping[str, Weight],
    match: Match | None,
) -> Iterator[Finding]:
    """What is there on one side only; norms' counters aside."""
    missing: list[str] = [name for name in ours if name not in theirs]
    extra: list[str] = [name for name in own if name not in ours]
    if match is not None:  # what a buffer of one side is for shows in the values
        missing = [name for name in match.missing if ours[name].is_parameter]
        extra = [name for name in match.unexpected if own[name].is_parameter]
    missing = [name for name in missing if not name.endswith(COUNTER)]
    extra = [name for name in extra if not name.endswith(COUNTER)]
    for name in missing:
        near = match.missing.get(name, ()) if match else _near(name, ours[name], own, extra)
        yield _finding(name, "missing in the candidate", _NOT_THERE, _nearest(near, "there"))
    for name in extra:
        near = match.unexpected[name] if match else _near(name, own[name], ours, missing)
        yield _finding(
            name, "in the candidate only", _NOT_THERE, _nearest(near, "in the reference")
        )


def _near(
    name: str, weight: Weight, others: Mapping[str, Weight], free: Iterable[str]
) -> tuple[str, ...]:
    """Names of the other side that are free and of the same shape."""
    return tuple(other for other in free if others[other].value.shape == weight.value.shape)[:3]


def _nearest(names: Sequence[str], where: str) -> str:
    return f"Of its shape {where}: {', '.join(names)}." if names else ""


def _properties(name: str, ours: Weight, theirs: Weight, same_names: bool) -> Iterator[Finding]:
    yield from _shape_findings(name, ours, theirs)
    if (ours.usual != theirs.usual and ours.dtype != theirs.dtype) or (
        ours.value.dtype.kind != theirs.value.dtype.kind and same_names
    ):
        yield _finding(name, f"type {theirs.dtype}, in the reference {ours.dtype}", _NOT_THERE)
    if ours.is_parameter != theirs.is_parameter:
        yield _finding(name, f"a {_role(theirs)}, in the reference a {_role(ours)}", _NOT_THERE)
    elif ours.trainable != theirs.trainable:
        yield _finding(name, f"{_state(theirs)}, in the reference {_state(ours)}", _NOT_THERE)


def _shape_findings(name: str, ours: Weight, theirs: Weight) -> list[Finding]:
    shapes = ours.value.shape, theirs.value.shape
    return (
        []
        if shapes[0] == shapes[1]
        else [_finding(name, f"shape {shapes[1]}, in the reference {shapes[0]}", _NOT_THERE)]
    )


def _role(weight: Weight) -> str:
    return "parameter" if weight.is_parameter else "buffer"


def _state(weight: Weight) -> str:
    return "trainable" if weight.trainable else "frozen"


def _ties(ours: Mapping[str, Weight], theirs: Mapping[str, Weight]) -> Iterator[Finding]:
    """Tensors that are one parameter on one side and two on the other."""
    groups = [
        _groups({name: side[name] for name in ours if name in theirs}) for side in (ours, theirs)
    ]
    for name in (name for name in ours if name in theirs):
        lost, new = (groups[a][name] - groups[1 - a][name] for a in (0, 1))
        if later := sorted(other for other in lost if other < name):
            yield _finding(name, f"not tied to {later[0]}, as in the reference", _NOT_THERE)
        if later := sorted(other for other in new if other < name):
            yield _finding(name, f"tied to {later[0]}, in the reference by itself", _NOT_THERE)


def _groups(weights: Mapping[str, Weight]) -> dict[str, frozenset[str]]:
    """All names of the parameter that each name belongs to."""
    members: dict[str, set[str]] = defaultdict(set)
    for name, weight in weights.items():
        members[weight.tie].add(name)
    return {name: frozenset(members[weight.tie]) for name, weight in weights.items()}


def _counts(
    reference: AbstractNetwork,
    candidate: AbstractNetwork,
    found: Sequence[Finding],
    match: Match | None,
) -> list[Finding]:
    """The number of parameters, where nothing found so far says why it differs."""
    counts = reference.count_parameters(), candidate.count_parameters()
    if counts[0] == counts[1] or found or _summed(match):
        return []
    if match is not None and (match.left_out or match.together or not match.complete):
        return []
    return [_finding("", f"{counts[1]:,} parameters, in the reference {counts[0]:,}", _NOT_THERE)]


def _start_values(
    apart: Sequence[str], values: Mapping[str, tuple[float, float]]
) -> Iterator[Finding]:
    for name in apart:
        difference, limit = values[name]
        size = (
            f"Relative difference {difference:.1e} (limit {limit:.0e})."
            if limit
            else f"Relative difference {difference:.1e}."
        )
        yield Finding("L0", name, f"weight of {name}", difference, limit=limit, remarks=(size,))


def _value_difference(ours: Weight, theirs: Weight, is_sum: bool) -> tuple[float, float]:
    """Return the relative difference and its limit.

    The limit is zero in one type, else the rounding of a cast between two types or of a sum.

    Infinite where the reference's values are all zero.
    """
    first, second = (weight.value.astype(np.float64) for weight in (ours, theirs))
    floating = [
        np.finfo(weight.value.dtype).eps
        for weight in (ours, theirs)
        if weight.value.dtype.kind == "f"
    ]
    return relative_difference(first, second), float(max(floating)) if is_sum or len(
        set(floating)
    ) > 1 else 0.0


def _finite(*weights: Weight) -> bool:
    return all(bool(np.isfinite(weight.value).all()) for weight in weights)


def _explained(
    findings: Iterable[Finding],
    ours: Mapping[str, Weight],
    theirs: Mapping[str, Weight],
    explain: Explain | None,
) -> list[Finding]:
    """Findings about values and shapes, with what the hook says of each; the others as they are."""
    found = list(findings)
    about = [finding.place for finding in found if finding.what.startswith(_ABOUT_VALUES)]
    named = [name for name in about if _finite(ours[name], theirs[name])]
    if explain is None or not named:
        return found
    every = {
        name: one.value for name, one in ours.items() if _finite(one)
    }  # what one holds may be another's
    why = dict(explain(every, {name: theirs[name].value for name in named}))
    return [
        replace(finding, explanation=why.get(finding.place))
        if finding.what.startswith(_ABOUT_VALUES)
        else finding
        for finding in found
    ]


# Notes
# -----------------------------------------------------------------------------


def _notes(
    ours: Mapping[str, Weight],
    theirs: Mapping[str, Weight],
    match: Match | None,
    loaded: Sequence[str],
    values: Mapping[str, tuple[float, float]],
) -> Iterator[str]:
    counters = [name for name in ours if name.endswith(COUNTER) and name not in theirs]
    if counters:
        yield f"The candidate has no counters of batches ({_some(counters)}); nothing is computed from them."
    order = [name for name in theirs if name in ours]
    if match is None and order != [name for name in ours if name in theirs]:
        first = next(name for name, other in zip(ours, order, strict=False) if name != other)
        yield f"The names stand in another order in the candidate, from {first} on."
    if match is not None:
        yield f"{len(match.names)} pairs of tensors were matched, {len(match.ambiguous)} of them without certainty."
        yield from (
            f"{_pair(pair.reference)} was taken for {_pair(pair.candidate)}, which is not certain."
            for pair in match.ambiguous[:8]
        )
        if match.left_out:
            yield f"Left out as was asked: {', '.join(match.left_out)}."
        if match.together:
            yield f"Held in another form, and compared by what they compute together: {', '.join(match.together)}."
        buffers = [name for name in match.missing if name not in match.parameters_left_over()]
        if buffers:
            yield f"Buffers of the reference alone, not compared: {_some(buffers)}."
        buffers = [name for name in match.unexpected if name not in match.parameters_left_over()]
        if buffers:
            yield f"Buffers of the candidate alone, not compared: {_some(buffers)}."
    if loaded:
        worst = max(loaded, key=lambda name: values[name][0])
        yield (
            f"Start values differ in {len(loaded)} tensors, most in {worst} "
            f"({values[worst][0]:.1e}); the reference's are loaded into the candidate."
        )


def _pair(units: Sequence[Any]) -> str:
    return " + ".join(map(str, units))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _finding(name: str, what: str, difference: float, remark: str = "") -> Finding:
    return Finding("L0", name, what, difference, limit=0.0, remarks=(remark,) if remark else ())


def _with_kinds(findings: Iterable[Finding], kinds: Mapping[str, str]) -> Iterator[Finding]:
    """Each finding with the class of the block that holds the tensor."""
    return (
        replace(finding, kind=kinds.get(finding.place.rpartition(".")[0], ""))
        for finding in findings
    )
