"""Level L1 (values): outputs, loss, gradients and running statistics of two networks in float64.

They are compared in training and in evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import ROUNDING, Comparison, compare, relative_difference
from deliralike.conformance.findings import FAILED, LIMIT, NOT_REACHED, PASSED, Finding, Level
from deliralike.conformance.last_bit import fits
from deliralike.conformance.observe import Recording, Unit, watch
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.places import UNIT, Tap
from deliralike.conformance.subject import Subject

TITLE = "semantics in float64"
ELEMENTS = 2**14  # of each layer's output, for the error by layer
_FEW_BITS, _ENOUGH = (
    8,
    4,
)  # numbers of fewer bits come about without rounding; so many others do not by chance
MODES = {"train": True, "eval": False}


@dataclass(frozen=True)
class Look:
    """What one side did in one mode.

    Attributes:
        recording: Outputs of all blocks, gradients, state.
        error: What it raised instead; empty if nothing.
    """

    recording: Recording
    error: str = ""

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
    """

    reference: Look
    candidate: Look
    differences: Mapping[str, Comparison]
    layers: Mapping[Tap, float]
    gradients: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    never: tuple[str, ...] = ()
    is_blind: bool = False
    unmatched: tuple[str, ...] = ()

    @property
    def worst(self) -> float:
        """The largest difference."""
        return max((found.difference for found in self.differences.values()), default=np.inf)

    @property
    def null(self) -> tuple[str, ...]:
        """Parameters whose gradient is zero but for rounding on both sides."""
        return self.differences["gradients"].null

    @property
    def agrees(self) -> bool:
        """Whether nothing differs by more than the limit."""
        return not self.candidate.error and self.worst <= LIMIT


def look(
    subject: Subject,
    batch: tuple[Any, ...],
    training: bool,
    seed: int = 0,
    elements: int | None = None,
) -> Look:
    """Run one side once, forward and backward; an error that it raises is noted."""
    unit = Unit(
        subject.network,
        subject.loss,
        batch,
        training,
        lambda path: None,
        seed=seed,
        functions=False,
    )
    try:
        return Look(watch(unit, elements))
    except Exception as error:  # noqa: BLE001
        return Look(Recording(None), f"{type(error).__name__}: {error}")


def compared(reference: Look, candidate: Look, correspondence: Correspondence = SAME) -> Mode:
    """Both sides of one mode."""
    mine = reference.recording
    theirs = correspondence.to_reference(candidate.recording, mine)
    buffers = [name for name in mine.state if name in theirs.state]
    differences = {
        "output": compare(
            _arrays("output", reference.output), _arrays("output", theirs.calls[Tap()].output)
        )
        if Tap() in theirs.calls
        else Comparison(np.inf, "output"),
        "loss": compare({"loss": mine.output}, {"loss": theirs.output}),
        "gradients": compare(
            {n: mine.parameters[n] for n in mine.parameters if n in theirs.parameters},
            theirs.parameters,
            ROUNDING,
        ),
        "gradient of the input": compare(
            _inputs(mine, correspondence), _inputs(theirs, correspondence), ROUNDING
        ),
        "statistics": compare(
            {n: mine.state[n] for n in buffers}, {n: theirs.state[n] for n in buffers}
        ),
    }
    shared = [name for name in mine.calls if name in theirs.calls]
    layers = {n: _difference(mine.calls[n].output, theirs.calls[n].output) for n in shared}
    is_blind = bool(mine.parameters) and not any(
        np.any(g) for g in mine.parameters.values() if g is not None
    )
    measured = {
        name: (
            relative_difference(gradient, theirs.parameters.get(name)),
            float(np.linalg.norm(gradient)),
        )
        for name, gradient in mine.parameters.items()
        if gradient is not None and name in theirs.parameters
    }
    unmatched = correspondence.unmatched(mine.parameters, candidate.recording.parameters)
    effective = tuple(name for name, gradient in unmatched.items() if np.any(gradient))
    never = tuple(name for name, gradient in mine.parameters.items() if gradient is None)
    candidate = _without_gradients(candidate)
    return Mode(reference, candidate, differences, layers, measured, never, is_blind, effective)


def without_gradients(mode: Mode) -> Mode:
    """A mode that takes less memory: level L2 is the last that needs the reference's gradients."""
    return replace(mode, reference=_without_gradients(mode.reference))


def _inputs(recording: Recording, correspondence: Correspondence) -> dict[str, Any]:
    """The gradients of the arguments that go into the network."""
    found = _arrays("input", recording.inputs)
    return {path: found[path] for path in found if correspondence.is_input(f"args{path[5:]}")}


def _without_gradients(one: Look) -> Look:
    """A look that takes less memory."""
    return replace(one, recording=replace(one.recording, parameters={}, inputs=()))


def level(modes: Mapping[str, Mode]) -> Level:
    """The verdict over both modes."""
    findings = tuple(_findings(modes))
    nulls = sorted({name for mode in modes.values() for name in mode.null})
    figures = {
        "differences": {
            name: {what: c.difference for what, c in m.differences.items()}
            for name, m in modes.items()
        },
        "null": nulls,
        "gradients": [
            {"name": name, "difference": difference, "norm": norm}
            for name, (difference, norm) in (
                modes["train"].gradients.items() if "train" in modes else ()
            )
        ],
    }
    if not modes:
        return Level("L1", TITLE, NOT_REACHED, notes=("Nothing was compared.",))
    worst = max(mode.worst for mode in modes.values())
    return Level("L1", TITLE, FAILED if findings else PASSED, worst, findings, figures=figures)


def unsteady(
    subject: Subject,
    batch: tuple[Any, ...],
    training: bool,
    first: Look,
    seed: int = 0,
    elements: int | None = None,
) -> list[Tap]:
    """Return the calls whose outputs differ between two equal runs of one network, in order.

    It is `UNIT` where only the loss differs.
    """
    again = look(subject, batch, training, seed, elements).recording
    changed = [
        name
        for name, call in first.recording.calls.items()
        if name in again.calls and not _equal(call.output, again.calls[name].output)
    ]
    return changed or ([] if _equal(first.recording.output, again.output) else [UNIT])


def _equal(first: Any, second: Any) -> bool:
    """Whether two nests hold the same numbers, those that are none included."""
    mine, theirs = nest.leaves(first), nest.leaves(second)
    pairs = zip(mine, theirs, strict=False)
    return len(mine) == len(theirs) and all(
        np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        for x, y in pairs
        if isinstance(x, np.ndarray)
    )


def not_finite(recording: Recording) -> str:
    """The first block whose output holds a NaN or an infinity, and how many.

    Empty where nothing is NaN and the loss is finite: infinities within may be meant, as in masks
    of scores.
    """
    found = [
        (name, leaf)
        for name, call in recording.calls.items()
        for leaf in _arrays("output", call.output).values()
    ]
    loss = recording.output
    if (loss is None or np.all(np.isfinite(loss))) and not any(
        np.isnan(leaf).any() for _, leaf in found
    ):
        return ""
    for name, leaf in found:
        if bad := int(np.size(leaf) - np.isfinite(leaf).sum()):
            return f"{name}: {bad} of {np.size(leaf)} elements that were looked at are not finite"
    return "the loss"


def short(recording: Recording) -> str:
    """Return what is of a shorter floating type than float64, by type or by value; else empty."""
    for name, call in recording.calls.items():
        for leaf in (leaf for leaf in nest.leaves(call.output) if isinstance(leaf, np.ndarray)):
            if "float" in str(leaf.dtype) and leaf.dtype != np.float64:
                return f"{name} gives {leaf.dtype}"
    output = recording.calls[Tap()].output if Tap() in recording.calls else None
    if any(isinstance(leaf, np.ndarray) and _is_rounded(leaf) for leaf in nest.leaves(output)):
        return "all numbers that the network gives are numbers of float32"
    return ""


def _is_rounded(array: np.ndarray) -> bool:
    """Return whether an array holds numbers that were rounded to float32.

    Whole numbers, halves, quarters … say nothing about that.
    """
    if array.dtype != np.float64:
        return False
    telling = array[np.isfinite(array) & (array != np.round(array)) & ~fits(array, _FEW_BITS)]
    return telling.size >= _ENOUGH and bool(fits(telling, 24).all())


def _findings(modes: Mapping[str, Mode]) -> Iterator[Finding]:
    for name, mode in modes.items():
        if mode.candidate.error:
            yield Finding("L1", "", f"raises {mode.candidate.error}", np.inf, mode=name)
            continue
        for what, found in mode.differences.items():
            if found.difference > LIMIT:
                where = "" if what in ("output", "loss") else found.worst
                yield Finding("L1", where, what, found.difference, mode=name)


def _arrays(root: str, values: Any) -> dict[str, Any]:
    return {
        path: leaf
        for path, leaf in nest.leaves_with_paths(values, root)
        if isinstance(leaf, np.ndarray | float)
    }


def _difference(mine: Any, theirs: Any) -> float:
    pairs = zip(nest.leaves(mine), nest.leaves(theirs), strict=False)
    return max(
        (relative_difference(x, y) for x, y in pairs if isinstance(x, np.ndarray)), default=0.0
    )
