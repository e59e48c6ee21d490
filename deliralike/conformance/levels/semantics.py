"""Level L1 (values): outputs, loss, gradients and running statistics of two networks in float64.

They are compared in training and in evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import (
    ROUNDING,
    Comparison,
    compare,
    largest_difference,
    relative_difference,
)
from deliralike.conformance.by_name import only
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    PASSED,
    Finding,
    Level,
    arrays_in,
    is_array,
)
from deliralike.conformance.kinds import Batch, Named
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.observe.raised import Raised
from deliralike.conformance.observe.recording import watch
from deliralike.conformance.observe.units import Recording, Unit
from deliralike.conformance.places import UNIT, Tap
from deliralike.conformance.subject import Subject
from deliralike.conformance.ulp import allowed, fits, shake_parameters

TITLE = "semantics in float64"
ELEMENTS = 2**14  # of each layer's output, for the error by layer
_FEW_BITS = 8  # numbers of fewer bits come about without rounding
_SHAKES = 3
_OF_FLOAT32 = 2.0**-29  # the rounding of float64 beside that of float32
_ENOUGH = 4  # so many others do not by chance
MODES = {"train": True, "eval": False}


@dataclass(frozen=True)
class Look:
    """What one side did in one mode.

    Attributes:
        recording: Outputs of all blocks, gradients, state.
        error: What it raised instead.
    """

    recording: Recording
    error: Raised | None = None

    @property
    def output(self) -> Any:
        """The network's output."""
        last = self.recording.calls.get(Tap())
        return None if last is None else last.output


@dataclass(frozen=True)
class Mode:
    """Both sides in one mode, and what differs.

    Attributes:
        differences: Of ``"output"``, ``"loss"``, ``"gradients"``, ``"gradient of the input"`` and
            ``"statistics"``.
        layers: The relative difference of each block's output, in the order of the reference's
            calls.
        gradients: Of each parameter the relative difference, and the norm in the reference.
        never: Parameters of the reference that the loss does not depend on.
        is_blind: Whether the reference has parameters, of which none gets a gradient other than
            zero.
        unmatched: Parameters of one side alone that get a gradient other than zero.
        limits: What is allowed, by the names of the differences, where that is more than the limit.
    """

    reference: Look
    candidate: Look
    differences: Mapping[str, Comparison]
    layers: Mapping[Tap, float]
    gradients: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    is_blind: bool = False
    unmatched: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The largest difference."""
        return max(
            (found.difference for found in self.differences.values()), default=np.inf
        )

    @property
    def null(self) -> tuple[str, ...]:
        """Parameters whose gradient is zero but for rounding on both sides."""
        return self.differences["gradients"].null

    @property
    def agrees(self) -> bool:
        """Whether nothing differs by more than what is allowed."""
        return not self.candidate.error and not self.apart

    @property
    def apart(self) -> dict[str, Comparison]:
        """What differs by more than what is allowed."""
        found = {}
        for what, compared in self.differences.items():
            if not compared.difference <= self.limits.get(what, LIMIT):
                found[what] = compared
        return found


def look(
    subject: Subject,
    batch: Batch,
    training: bool,
    elements: int | None = None,
) -> Look:
    """Run one side once, forward and backward; an error that it raises is noted."""
    unit = Unit(
        subject.network,
        subject.loss,
        batch,
        training,
        lambda path: None,
        functions=False,
    )
    try:
        return Look(watch(unit, elements))
    except Exception as error:  # noqa: BLE001
        return Look(Recording(None), Raised.of(error, unit))


def compared(
    reference: Look, candidate: Look, correspondence: Correspondence = SAME
) -> Mode:
    """Both sides of one mode."""
    expected = reference.recording
    actual = correspondence.to_reference(candidate.recording, expected)
    # A loss may call parts of a network only, and a class may have a ``__call__`` of its own.
    output = Comparison(np.inf, "output") if candidate.error else Comparison()
    buffers = only(expected.state, actual.state)
    if Tap() in expected.calls and Tap() in actual.calls:
        output_of_candidate = actual.calls[Tap()].output
        output = compare(
            _arrays("output", reference.output), _arrays("output", output_of_candidate)
        )
    gradients, inputs = (
        only(expected.parameters, actual.parameters),
        _inputs(expected, correspondence),
    )
    differences = {
        "output": output,
        "loss": compare({"loss": expected.output}, {"loss": actual.output}),
        "gradients": compare(gradients, actual.parameters, ROUNDING),
        "gradient of the input": compare(
            inputs, _inputs(actual, correspondence), ROUNDING
        ),
        "statistics": compare(buffers, only(actual.state, buffers)),
    }
    layers, measured = {}, {}
    for tap, call in only(expected.calls, actual.calls).items():
        layers[tap] = largest_difference(call.output, actual.calls[tap].output)
    for name, gradient in gradients.items():
        if gradient is not None:
            apart = relative_difference(gradient, actual.parameters[name])
            measured[name] = apart, float(np.linalg.norm(gradient))
    is_blind = bool(expected.parameters) and not any(
        map(np.any, expected.parameters.values())
    )
    unmatched = correspondence.unmatched(
        expected.parameters, candidate.recording.parameters
    )
    effective = tuple(name for name, gradient in unmatched.items() if np.any(gradient))
    never = tuple(
        name for name, gradient in expected.parameters.items() if gradient is None
    )
    return Mode(
        reference, candidate, differences, layers, measured, never, is_blind, effective
    )


def with_magnified_rounding(
    mode: Mode, subject: Subject, batch: Batch, training: bool
) -> Mode:
    """Allow what rounding alone does, where a network magnifies it, found by experiment.

    Args:
        mode: With a slight difference.
        subject: The reference, which runs a few times more with errors in the last bit of its
            parameters, as one error may cancel out; and in float32, whose rounding is as much
            larger within a function, too, as where a softmax is certain and its gradient what is
            left of a difference.
    """
    limits = dict.fromkeys(mode.differences, LIMIT)

    def allow(other: Subject, times: float) -> None:
        observed = look(other, batch, training, 1)
        moved = {} if observed.error else compared(mode.reference, observed).differences
        for what, found in moved.items():
            far = min(found.difference, 1.0) * times
            limits[what] = max(limits[what], allowed(far))

    for seed in range(_SHAKES):
        other = subject.replace(network=deepcopy(subject.network))
        shake_parameters(other.network, seed)
        allow(other, 1.0)
    allow(subject.in_dtype("float32"), _OF_FLOAT32)
    return replace(mode, limits=limits)


def without_gradients(mode: Mode) -> Mode:
    """A mode that takes less memory."""
    looks = []
    for one in (mode.reference, mode.candidate):
        recording = replace(one.recording, parameters={}, inputs=())
        looks.append(replace(one, recording=recording))
    return replace(mode, reference=looks[0], candidate=looks[1])


def _inputs(recording: Recording, correspondence: Correspondence) -> Named:
    """The gradients of the arguments that go into the network."""
    found = _arrays("input", recording.inputs)
    return {
        path: found[path]
        for path in found
        if correspondence.is_input(f"args{path[5:]}")
    }


def level(modes: Mapping[str, Mode]) -> Level:
    """The verdict over both modes."""
    findings, nulls, gradients = tuple(_findings(modes)), set[str](), []
    differences: dict[str, float] = {}
    for mode_name, mode in modes.items():
        nulls.update(mode.null)
        for what, found in mode.differences.items():
            differences[f"{mode_name}, {what}"] = found.difference
    if "train" in modes:
        for name, (difference, norm) in modes["train"].gradients.items():
            gradients.append({"name": name, "difference": difference, "norm": norm})
    figures = {
        "differences": differences,
        "null": sorted(nulls),
        "gradients": gradients,
    }
    worst = max(mode.worst for mode in modes.values())
    notes = []
    for name, mode in modes.items():
        if mode.agrees and mode.worst > LIMIT:
            notes.append(
                f"Rounding is magnified here, to {mode.worst:.0e} in {name} mode, and as far as by an "
                "error in the last bit of the reference's parameters: that is no difference."
            )
    status = FAILED if findings else PASSED
    return Level("L1", TITLE, status, worst, findings, tuple(notes), figures)


def unsteady(
    subject: Subject,
    batch: Batch,
    training: bool,
    first: Look,
    elements: int | None,
) -> Tap | None:
    """Return the first call whose output differs between two equal runs of one network.

    It is `UNIT` where only the loss differs.
    """
    again = look(subject, batch, training, elements).recording
    for name, call in only(first.recording.calls, again.calls).items():
        if not _equal(call.output, again.calls[name].output):
            return name
    return None if _equal(first.recording.output, again.output) else UNIT


def is_equal(first: Recording, second: Recording) -> bool:
    """Whether two runs gave the same numbers in all calls, and the same loss."""
    expected, actual = (
        [one.output, *(call.output for call in one.calls.values())]
        for one in (first, second)
    )
    return first.calls.keys() == second.calls.keys() and _equal(expected, actual)


def _equal(first: Any, second: Any) -> bool:
    """Whether two nests hold the same numbers, those that are none included."""
    expected, actual = nest.leaves(first), nest.leaves(second)
    if len(expected) != len(actual):
        return False
    for x, y in zip(expected, actual, strict=True):
        if is_array(x) != is_array(y):
            return False
        if is_array(x) and not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
            return False
    return True


def not_finite(recording: Recording) -> str:
    """The first block whose output holds a NaN or an infinity, and how many.

    Empty where nothing is NaN and the loss is finite: infinities within may be meant, as in masks
    of scores.
    """
    found, loss = [], recording.output
    for name, call in recording.calls.items():
        found += [(name, leaf) for leaf in _arrays("output", call.output).values()]
    is_finite = loss is None or np.all(np.isfinite(loss))
    if is_finite and not any(np.isnan(leaf).any() for _, leaf in found):
        return ""
    for name, leaf in found:
        bad = int(np.size(leaf) - np.isfinite(leaf).sum())
        if bad:
            return f"{name}: {bad} of {np.size(leaf)} elements that were looked at are not finite"
    return "the loss"


def short(recording: Recording, batch: Batch) -> str:
    """Return what is of a shorter floating type than float64, by type or by value; else empty.

    What is handed back as it came in the batch says nothing.
    """
    for name, call in recording.calls.items():
        for leaf in arrays_in(call.output):
            if "float" in str(leaf.dtype) and leaf.dtype != np.float64:
                return f"{name} gives {leaf.dtype}"
    if Tap() not in recording.calls:
        return ""
    inputs = arrays_in(batch)
    found = arrays_in(recording.calls[Tap()].output)
    outputs = [leaf for leaf in found if leaf.dtype == np.float64]
    if not all(fits(leaf[np.isfinite(leaf)], 24).all() for leaf in outputs):
        return ""  # another output may hold weights as they are, which began in float32
    for leaf in outputs:
        if _is_rounded(leaf) and not any(np.array_equal(leaf, one) for one in inputs):
            return "all numbers that the network gives are numbers of float32"
    return ""


def _is_rounded(array: np.ndarray) -> bool:
    """Return whether an array holds numbers that were rounded to float32.

    Whole numbers, halves, quarters … say nothing about that.
    """
    telling = array[
        np.isfinite(array) & (array != np.round(array)) & ~fits(array, _FEW_BITS)
    ]
    return telling.size >= _ENOUGH and bool(fits(telling, 24).all())


def _findings(modes: Mapping[str, Mode]) -> Iterator[Finding]:
    for name, mode in modes.items():
        if mode.candidate.error:
            yield mode.candidate.error.finding(name)
            continue
        for what, found in mode.apart.items():
            where = "" if what in ("output", "loss") else found.worst
            limit = mode.limits.get(what, LIMIT)
            yield Finding("L1", where, what, found.difference, mode=name, limit=limit)


def _arrays(root: str, values: Any) -> Named:
    return {
        path: leaf
        for path, leaf in nest.leaves_with_paths(values, root)
        if isinstance(leaf, np.ndarray | float)
    }
