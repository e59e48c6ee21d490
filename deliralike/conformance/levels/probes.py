"""Level L7: probes, inputs at which right-looking networks go different ways.

Each probe is the batch at hand with something extreme in it. Values and gradients must be the
reference's up to what rounding does at that very place, which is measured: the reference once more
with parameters (and inputs) that are rounded at random, and in float32. Where the reference
refuses, the candidate must refuse too, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import NULL, relative_difference
from deliralike.conformance.explain import probes as explaining
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    PASSED,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.last_bit import MARGIN, SLIGHT, allowed, shaken
from deliralike.conformance.levels.probing import (
    UNIT_FLOAT32,
    UNIT_FLOAT64,
    Arrays,
    Batch,
    Probe,
    Seen,
    Side,
)
from deliralike.conformance.listening import Listener
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.aligning import align
from deliralike.conformance.subject import Subject

TITLE = "probes: extreme numbers, exact ties, nothing at all"
FAR = 1e4  # the mean of far inputs, in standard deviations; also the size of huge outputs
DRAWS = 4  # of that measurement
NOTHING_ELSE = (
    0.1  # a tensor that rounding moves by this much of itself is rounding and nothing else
)
NO_DIGIT = 0.5  # a tensor that float32 is off by this much has no digit in it
LAYERS = 16  # of which the outputs are zero in turn; the first ones
OUT_OF_RANGE = 10**6
IGNORED = (-100, -1, 255)  # labels that losses leave out


def level(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    match: Match | None = None,
    thorough: bool = True,
) -> Level:
    """Run every probe that fits the network and the batch.

    A probe that does not fit, as there are no whole numbers among the inputs or no label that the
    loss ignores, is listed among the notes as not applicable, and counts neither as passed nor as
    failed.

    Networks written once must be equal at each probe. With native ones it is the frameworks' affair
    what they refuse, which of equal numbers gets the gradient, and how exact a norm is far from
    zero: such differences are notes. A single sample is evaluated by all, so that a candidate that
    cannot do that differs.

    Args:
        reference, candidate: In float64, with equal weights; they stay as they are.
        batch: What the losses take, NumPy arrays in any nest.
        match: Of the candidate's names, where they differ.
        thorough: Whether each layer and each kind of input has a probe of its own; else a few
            probes with several extremes each make do, unless one of them differs.
    """
    ours, theirs = Side.of(reference), Side.of(candidate, match=match)
    layout = Layout.of(ours, batch, IGNORED if thorough else IGNORED[:1])
    probes, notes = _probes(layout) if thorough else (list(_few(layout)), [])
    findings: list[Finding] = []
    figures: dict[str, Any] = {}
    for probe in probes:
        found, figure, said = _judge(probe, ours, theirs)
        findings += found
        notes += [f"{probe.name}: {each}" for each in said]
        figures[probe.name] = figure
    if findings and not thorough:
        return level(reference, candidate, batch, match)
    far = next((probe for probe in probes if probe.about == "far"), None)
    if far is not None:
        found, figure, said = _as_notes(_in_float32(far, ours, theirs), ours, theirs)
        findings += found
        notes += said
        figures[f"{far.name}, float32"] = figure
    worst = max(
        (figure["difference"] for figure in figures.values() if "difference" in figure),
        default=None,
    )
    status = FAILED if findings else PASSED if figures else NOT_REACHED
    return Level("L7", TITLE, status, worst, tuple(findings), tuple(notes), figures)


# What is in a batch
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A batch as leaves, and what each of them is.

    Attributes:
        leaves, structure: See `nest.flatten`.
        inputs: The numbers of the leaves that the loss hands to the network; the others are
            targets.
        ignored: The label that the loss leaves out; None without one.
        outputs: The largest output on the batch.
        padding: The token without a gradient; None without one.
        biases: The biases of all layers, and running means.
        layers: The names of weight and bias by the path of their layer.
    """

    leaves: list[Any]
    structure: Any
    inputs: tuple[int, ...]
    ignored: int | None
    outputs: float
    padding: int | None
    biases: tuple[str, ...]
    layers: dict[str, tuple[str, str]]

    @classmethod
    def of(cls, side: Side, batch: Batch, labels: Sequence[int] = IGNORED) -> Layout:
        """Of a batch for a network, found out by letting it run.

        Args:
            labels: Those that the loss may ignore.
        """
        leaves, structure = nest.flatten(batch)
        listener, outputs = _listened(side, batch)
        handed = {id(leaf) for leaf in nest.leaves(listener.arguments)}
        prepared = nest.leaves(listener.batch)
        inputs = tuple(
            i
            for i, leaf in enumerate(prepared)
            if id(leaf) in handed and isinstance(leaves[i], np.ndarray)
        )
        if not inputs:  # the loss changes them first
            inputs = tuple(range(len(nest.leaves(batch[:-1]))))
        paddings = (getattr(block, "padding_idx", None) for _, block in side.network.named_blocks())
        padding = next((each for each in paddings if each is not None), None)
        last = {name: name.rpartition(".") for name in side.state}
        biases = tuple(
            name for name, (_, _, end) in last.items() if "bias" in end or end == "running_mean"
        )
        owners = [
            path
            for path, _, end in last.values()
            if end == "bias" and path and f"{path}.weight" in side.state
        ]
        layers = {path: (f"{path}.weight", f"{path}.bias") for path in owners}
        layout = cls(leaves, structure, inputs, None, outputs, padding, biases, layers)
        return replace(layout, ignored=layout.find_ignored(side, labels))

    def of_kind(self, kind: str) -> list[int]:
        """The leaves of floats or whole numbers among the inputs (f, i) or the targets (t, l)."""
        found = []
        for at, leaf in enumerate(self.leaves):
            if isinstance(leaf, np.ndarray) and leaf.ndim and leaf.dtype.kind in "fiu":
                is_input, is_float = at in self.inputs, leaf.dtype.kind == "f"
                if "tlif"[2 * is_input + (is_float if is_input else not is_float)] == kind:
                    found.append(at)
        return found

    def but(self, which: list[int], change: Callable[[np.ndarray], np.ndarray]) -> Batch:
        """The batch with other leaves."""
        return nest.unflatten(
            self.structure,
            [
                change(leaf).astype(leaf.dtype) if i in which else leaf
                for i, leaf in enumerate(self.leaves)
            ],
        )

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Batch:
        """The batch with every array changed."""
        return nest.unflatten(
            self.structure,
            [
                change(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else leaf
                for leaf in self.leaves
            ],
        )

    def find_ignored(self, side: Side, candidates: Sequence[int]) -> int | None:
        """Return which of some labels a loss ignores, else None.

        Alone, it gives a loss of zero or NaN, and it may stand in the place of any label.
        """
        labels = self.of_kind("l")
        for label in candidates if labels else ():
            probe = Probe(
                "", self.but(labels, partial(np.full_like, fill_value=label)), kind="evaluation"
            )
            seen = side.see(probe)
            if seen.error is None and not np.nan_to_num(float(seen.tensors["loss"])):
                return label
        return None


def _listened(side: Side, batch: Batch) -> tuple[Any, float]:
    """What the loss hands to the network, and the size of its outputs."""
    backend, listener = side.network.backend, Listener(side.network)
    prepared = backend.prepare(batch, side.network)
    listener.batch = prepared
    with side.network.training_mode(False), backend.evaluating(), random.portable():
        side.subject.loss(listener, *prepared)
    outputs = [
        leaf
        for leaf in nest.leaves(backend.to_numpy(listener.outputs))
        if isinstance(leaf, np.ndarray)
    ]
    return listener, max((float(np.abs(leaf).max(initial=0.0)) for leaf in outputs), default=0.0)


# The probes
# -----------------------------------------------------------------------------

Change = Callable[[np.ndarray, Layout], np.ndarray]


@dataclass(frozen=True)
class _Row:
    """A probe as a line of the table.

    Attributes:
        name, about, kind: As of the probe.
        of: What is changed: ``"f"`` floating inputs, ``"i"`` whole ones, ``"t"`` floating targets,
            ``"l"`` labels, ``"*"`` everything.
        change: Of each such array.
        further: Fields of the probe that depend on the batch.
    """

    name: str
    of: str
    change: Change
    about: str
    kind: str = "gradients"
    further: Callable[[Layout], dict[str, Any]] = lambda layout: {}

    def probe(self, layout: Layout) -> Probe:
        """The probe for a batch."""
        change = partial(_on, self.change, layout)
        batch = layout.each(change)
        if self.of != "*":
            batch = layout.but([at for kind in self.of for at in layout.of_kind(kind)], change)
        ties = self.about in _TIES
        return Probe(
            self.name, batch, ties=ties, kind=self.kind, about=self.about, **self.further(layout)
        )


def _on(change: Change, layout: Layout, leaf: np.ndarray) -> np.ndarray:
    return change(leaf, layout)


def _probes(layout: Layout) -> tuple[list[Probe], list[str]]:
    """Those that fit, and a note for each kind that does not."""
    found, missing = [], []
    for what, rows in _TABLE.items():
        if _is_there(what, layout):
            found += [row.probe(layout) for row in rows]
        else:
            missing.append(f"not applicable, there is nothing of the kind: {what}")
    names = {f"label {layout.ignored}"}  # which is one that the loss takes
    of_layers = [
        replace(
            _ZEROS.probe(layout),
            name=f"zeros out of {path}",
            batch=layout.each(np.array),
            zeroed=of,
        )
        for path, of in list(layout.layers.items())[:LAYERS]
    ]
    return [*of_layers, *(probe for probe in found if probe.name not in names)], missing


def _few(layout: Layout) -> Iterator[Probe]:
    """A few probes that hold most of the extremes."""
    if layout.of_kind("f"):
        yield _MIXED.probe(layout)
    for what, rows in _TABLE.items():
        if _is_there(what, layout):
            yield from (row.probe(layout) for row in rows if row.name in _OF_FEW)


def _is_there(what: str, layout: Layout) -> bool:
    return {
        _FLOATS: bool(layout.of_kind("f")),
        _TOKENS: bool(layout.of_kind("i")),
        _LABELS: bool(layout.of_kind("l")),
        _IGNORED: layout.ignored is not None,
        _PADDING: layout.padding is not None and bool(layout.of_kind("i")),
        _OUTPUTS: layout.outputs > 0.0,
    }.get(what, True)


def _mixed(x: np.ndarray, layout: Layout) -> np.ndarray:
    """Some samples replaced by constant ones and whole numbers, where there are enough."""
    changed = x.copy()
    for sample, value in enumerate((0.0, 0.5)):
        if sample < len(x) // 2:
            changed[sample] = value
    if len(x) > 4:
        changed[2] = np.sign(np.rint(x[2]))
    return changed


def _far(x: np.ndarray, layout: Layout) -> np.ndarray:
    return (x - x.mean()) / (x.std() or 1.0) + FAR


def _padded(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    tokens = np.full_like(leaf, layout.padding)
    tokens[..., :1] = leaf[..., :1]  # a sequence without any token is none
    return tokens


def _strided(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.repeat(np.asfortranarray(leaf), 2, -1)[..., ::2]


def _first(value: int) -> Change:
    """The first element replaced."""

    def change(leaf: np.ndarray, layout: Layout) -> np.ndarray:
        changed = leaf.copy()
        changed.flat[0] = value
        return changed

    return change


def _full(value: float) -> Change:
    return lambda leaf, layout: np.full_like(leaf, value)


def _until(count: int) -> Change:
    return lambda leaf, layout: leaf[:count]


def _ignoring(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.full_like(leaf, layout.ignored)


def _as_it_is(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.array(leaf)


def _signs(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.sign(np.rint(leaf))


_TIES = ("ties", "zeros", "outputs")  # where equal numbers are the point
_FLOATS, _TOKENS = "floating inputs", "whole numbers among the inputs"
_LABELS, _IGNORED = "whole numbers among the targets", "a label that the loss ignores"
_PADDING, _OUTPUTS = "a padding token", "outputs that the loss sees"
_MIXED = _Row("some inputs of zeros, ones and signs", "f", _mixed, "ties")
_ZEROS = _Row(
    "zeros at every layer",
    "ft",
    _full(0.0),
    "zeros",
    further=lambda layout: {"zeroed": layout.biases},
)
_TABLE: dict[str, list[_Row]] = {
    _FLOATS: [
        _Row("inputs with a mean of 1e4 deviations", "f", _far, "far"),
        _Row("inputs of zeros", "f", _full(0.0), "ties"),
        _Row("constant inputs", "f", _full(0.5), "ties"),
        _Row("inputs of -1, 0 and 1", "f", _signs, "ties"),
        _ZEROS,
    ],
    _TOKENS: [
        _Row(f"index {index} among the inputs", "i", _first(index), "index", "refusal")
        for index in (OUT_OF_RANGE, -1)
    ],
    _LABELS: [
        _Row(f"label {label}", "l", _first(label), "index", "refusal")
        for label in (OUT_OF_RANGE, -1, -2)
    ],
    _IGNORED: [
        _Row("all labels ignored", "l", _ignoring, "ignored"),
        _Row("all labels ignored, evaluated", "l", _ignoring, "ignored", "evaluation"),
    ],
    _PADDING: [_Row("padding tokens after the first", "i", _padded, "padding")],
    _OUTPUTS: [
        _Row(
            "outputs of 1e4",
            "*",
            _as_it_is,
            "huge",
            further=lambda layout: {"scale": FAR / layout.outputs},
        ),
        _Row(
            "outputs of zero", "t", _full(0.0), "outputs", further=lambda layout: {"taken_off": 1.0}
        ),
    ],
    "batches of other sizes": [
        _Row("batch of one", "*", _until(1), "one"),
        _Row("batch of one, evaluated", "*", _until(1), "one", "evaluation"),
        _Row("empty batch", "*", _until(0), "empty", "refusal"),
        _Row("arrays that are not contiguous", "*", _strided, "strides", "evaluation"),
    ],
}
_OF_FEW = (
    "zeros at every layer",
    "all labels ignored",
    "padding tokens after the first",
    "outputs of 1e4",
    "batch of one",
    "batch of one, evaluated",
)


# Judging
# -----------------------------------------------------------------------------

Judged = tuple[list[Finding], dict[str, Any], list[str]]


def _judge(probe: Probe, ours: Side, theirs: Side) -> Judged:
    """A probe on both sides: findings, figures for tables, and notes."""
    one, two = ours.see(probe), theirs.see(probe)
    mode = "train" if probe.kind == "gradients" else "eval"
    are_native = ours.is_native or theirs.is_native
    if one.error is not None or two.error is not None:
        return _judge_errors(probe, one, two, mode, are_native)
    if are_native:
        two = _in_names_of(one, two)
    if are_native and probe.about in ("far", "ignored"):
        return _as_notes(_judge_values(probe, ours, theirs, one, two, mode), ours, theirs)
    return _judge_values(probe, ours, theirs, one, two, mode)


def _in_names_of(one: Seen, two: Seen) -> Seen:
    """What a native network gave, in the names of the reference; buffers of its own are left out."""
    mine, theirs = (
        {name: value for name, value in seen.tensors.items() if name.startswith("outputs")}
        for seen in (one, two)
    )
    given = align(mine, theirs).back(theirs, mine)
    tensors = {name: given.get(name, two.tensors.get(name)) for name in one.tensors}
    return replace(two, tensors={name: v for name, v in tensors.items() if v is not None})


def _as_notes(judged: Judged, ours: Side, theirs: Side) -> Judged:
    """Findings as notes, where a side is native."""
    findings, figure, notes = judged
    if not (ours.is_native or theirs.is_native):
        return judged
    said = [_short(one) for one in findings]
    return [], {**figure, "difference": 0.0, "failed": []}, [*notes, *said]


def _short(finding: Finding) -> str:
    """A finding of a probe as a note, which names the probe if it was not in float64."""
    where = f"{finding.place}: " if finding.place.endswith("float32") else ""
    why = "" if finding.explanation is None else f". {finding.explanation}"
    return f"{where}{finding.what} is off by {finding.difference:.0e}{why}"


def _judge_values(
    probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen, mode: str
) -> Judged:
    """Judge a probe that gives numbers on both sides."""
    findings, notes = [], []
    are_native = ours.is_native or theirs.is_native
    if probe.about == "ignored" and not are_native and not np.isfinite(one.tensors["loss"]):
        notes.append("the reference gives no number, and is not followed")
        one = Seen(
            {name: np.zeros_like(value) for name, value in one.tensors.items() if name in ("loss",)}
        )
    # A compiled gradient has no labels to look at.
    if probe.kind == "evaluation" and one.warned and not two.warned and not are_native:
        silent = Explanation(f"no warning where the reference says {one.warned[0]!r}", 0.0)
        findings.append(Finding("L7", probe.name, "warning", np.inf, mode=mode, explanation=silent))
    differences = _differences(one.tensors, two.tensors)
    beyond = {name: far for name, far in differences.items() if far > LIMIT}
    limits: dict[str, float] = {}
    if beyond and probe.about not in ("empty", "strides"):
        limits, noise = _allowed(probe, ours, theirs, one, two, beyond)
        notes += [f"decided by rounding, not judged: {', '.join(noise)}"] if noise else []
        differences, beyond = (
            {n: far for n, far in each.items() if n not in noise} for each in (differences, beyond)
        )
    wrong = {name: far for name, far in beyond.items() if far > limits.get(name, LIMIT)}
    notes += [
        f"{name} is off by {beyond[name]:.0e}, as rounding alone may be"
        for name in beyond
        if name not in wrong
    ]
    if wrong and are_native and probe.ties and all(map(_is_gradient, wrong)):
        notes.append(f"gradients go another way at exact ties: {', '.join(sorted(wrong))}")
        differences = {name: far for name, far in differences.items() if name not in wrong}
        wrong = {}
    figure = {"difference": max(differences.values(), default=0.0), "failed": sorted(wrong)}
    if wrong:
        worst = max(wrong, key=wrong.__getitem__)
        limit = limits.get(worst, LIMIT)
        explanation = explaining.values(probe, ours, theirs, one, two)
        others = (f"{len(wrong) - 1} other tensors differ, too.",) if len(wrong) > 1 else ()
        findings.append(
            Finding(
                "L7",
                probe.name,
                worst,
                wrong[worst],
                "",
                mode,
                limit,
                explanation=explanation,
                remarks=others,
            )
        )
    return findings, figure, notes


def _judge_errors(probe: Probe, one: Seen, two: Seen, mode: str, are_native: bool) -> Judged:
    """Judge a probe that one side refuses: the other must refuse it for the same kind of reason.

    For an empty batch, and for native networks, a difference is noted only, unless the candidate
    alone cannot evaluate a single sample.
    """
    if are_native and one.error is not None and two.error is not None:
        return [], {"error": type(one.error).__name__}, []
    kinds = [None if seen.error is None else _kind(seen.error) for seen in (one, two)]
    if kinds[0] == kinds[1]:
        return [], {"error": kinds[0].__name__ if kinds[0] else ""}, []
    # Frameworks differ in what they refuse, and no rule says which one is right. None refuses to
    # evaluate a single sample: that is the candidate's own doing.
    fails_alone = probe.about == "one" and mode == "eval" and one.error is None
    if probe.about == "empty" or (are_native and not fails_alone):
        return [], {"error": ""}, [explaining.refusal(probe, one, two)]
    explanation = Explanation(explaining.refusal(probe, one, two), 0.0)
    finding = Finding("L7", probe.name, "error", np.inf, mode=mode, explanation=explanation)
    return (
        [finding],
        {"error": " and ".join(kind.__name__ if kind else "none" for kind in kinds)},
        [],
    )


def _kind(error: Exception) -> type:
    """Return the standard error that an error is.

    Errors of an index are one kind, those of a value or type another.
    """
    if isinstance(error, LookupError):
        return LookupError
    known = (ArithmeticError, ValueError, TypeError, NotImplementedError)
    return next((kind for kind in known if isinstance(error, kind)), Exception)


def _differences(one: Arrays, two: Arrays) -> dict[str, float]:
    """Return how far each tensor is.

    NaN equals NaN. Tensors that are zero up to rounding on both sides are left out.
    """
    largest = {
        group: max((_size(v) for n, v in one.items() if _is_gradient(n) == group), default=0.0)
        for group in (True, False)
    }
    found = {}
    always = ("loss", "outputs")
    for name in (name for name in one if name in two or name.startswith(always)):
        first, second = one[name], two.get(name)
        floor = max(NULL * largest[_is_gradient(name)], 1e-300)
        if second is not None and (_size(first) <= floor and _size(second) <= floor):
            continue
        if second is not None and np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            found[name] = 0.0
            continue
        found[name] = relative_difference(first, second)
    return found


def _null(tensors: Arrays) -> set[str]:
    """Return the gradients that are zero up to the rounding of float64.

    They differ in float32, which rounds them otherwise.
    """
    sizes = {name: _size(value) for name, value in tensors.items() if _is_gradient(name)}
    return {name for name, size in sizes.items() if size <= NULL * FAR * max(sizes.values())}


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def _size(value: np.ndarray) -> float:
    """The root mean square."""
    value = np.asarray(value, np.float64)
    return float(np.sqrt(np.mean(np.square(value)))) if value.size else 0.0


def _allowed(
    probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen, beyond: dict[str, float]
) -> tuple[dict[str, float], list[str]]:
    """Return how far rounding may move each tensor, and the tensors that are nothing but rounding.

    That is measured at the reference. Equal numbers hide it there where they cancel to the last
    bit, and another order of sums does not: where ties are the point, what rounding does to the
    candidate is allowed as well, if slight. If it is not, no tie is left there: of equal numbers,
    which a product of matrices has rounded differently, another one is the largest, and gradients
    go elsewhere. That says nothing either.

    Nothing else than rounding are, for example, gradients through the batch norms of equal samples,
    each of which magnifies it some 300 times: tensors of a candidate that are nothing else, where
    the reference has such, or zeros.
    """
    moved = _rounding(ours, probe, one, UNIT_FLOAT64)
    limits = {name: max(LIMIT, MARGIN * far) for name, far in moved.items()}
    none = {name for name in moved if moved[name] >= NOTHING_ELSE or not one.tensors[name].any()}
    if all(beyond[name] <= limits[name] and name not in none for name in beyond):
        return limits, []
    own = _rounding(theirs, probe, two, UNIT_FLOAT64)
    noise = [
        name
        for name in beyond
        if name in none and _is_noise(one.tensors[name], two.tensors.get(name), own[name])
    ]
    if probe.ties:
        limits = {name: max(limit, allowed(own.get(name, 0.0))) for name, limit in limits.items()}
        noise += [
            name
            for name in beyond
            if name not in noise and SLIGHT < own.get(name, 0.0) >= beyond[name] / MARGIN
        ]
    return limits, noise


def _is_noise(mine: np.ndarray, other: np.ndarray | None, moved: float) -> bool:
    """Return whether rounding moves a tensor by its own size, or it is below the other's rounding."""
    if other is None or not np.isfinite(other).all():
        return False
    return moved >= NOTHING_ELSE or _size(other) <= _size(mine)


def _rounding(side: Side, probe: Probe, seen: Seen, unit: float) -> dict[str, float]:
    """How far rounding moves each tensor of a side.

    Found by rounding at random, and for float64 by what float32 does, scaled: that rounds in the
    middle of layers, too. Where float32 keeps no digit at exact ties, as of a softmax that is
    saturated, it cannot say how many float64 keeps: slight differences are allowed.
    """
    generator, moved = np.random.default_rng(0), dict.fromkeys(seen.tensors, 0.0)
    others = [side.see(probe, generator, unit) for _ in range(DRAWS)]
    for name, value in seen.tensors.items():
        moved[name] = max(relative_difference(value, other.tensors.get(name)) for other in others)
    if unit == UNIT_FLOAT64 and side.short is not None:
        short = side.short.see(probe)
        for name, far in _differences(seen.tensors, short.tensors).items():
            scaled = min(far, 1.0) * UNIT_FLOAT64 / UNIT_FLOAT32
            moved[name] = max(
                moved[name], SLIGHT / MARGIN if probe.ties and far >= NO_DIGIT else scaled
            )
    return moved


def _own_float32(probe: Probe, exact: Side, short: Side) -> dict[str, float]:
    """The most that a side's float32 is off, of a few batches that differ by a rounding."""
    generator, found = np.random.default_rng(0), dict[str, float]()
    for _ in range(DRAWS):
        moved = replace(
            probe, batch=nest.map(lambda leaf: shaken(leaf, generator, UNIT_FLOAT32), probe.batch)
        )
        for name, far in _differences(exact.see(moved).tensors, short.see(moved).tensors).items():
            found[name] = max(found.get(name, 0.0), far)
    return found


def _in_float32(probe: Probe, ours: Side, theirs: Side) -> Judged:
    """The candidate in float32 far from zero, against the reference in float64.

    From first principles: a rounding of the inputs by 2^-24 is one of ``FAR * 2^-24`` of their
    deviation, and no right algorithm does much worse; a variance in one pass loses ``FAR**2 *
    2^-24``, which is everything. Sums that cancel may lose more of a gradient: what the reference's
    own float32 loses is allowed as well, here or, as it may be lucky here, at inputs that differ by
    a rounding.
    """
    one = ours.see(probe)
    sides = [ours.short, theirs.short]
    if one.error is not None or sides[1] is None:
        return (
            [],
            {},
            [f"{probe.name}: not judged in float32, as the candidate has no network of that type"],
        )
    rounding = _rounding(ours, probe, one, UNIT_FLOAT32)
    two = sides[1].see(probe)
    differences = _differences(one.tensors, two.tensors)
    own = {} if sides[0] is None else _differences(one.tensors, sides[0].see(probe).tensors)
    null = _null(one.tensors)
    limits = {
        name: MARGIN * (max(rounding[name], own.get(name, 0.0)) + UNIT_FLOAT32) for name in rounding
    }
    wrong = {
        name: far for name, far in differences.items() if name not in null and far > limits[name]
    }
    if wrong and sides[0] is not None:
        others = _own_float32(probe, ours, sides[0])
        limits = {
            name: max(limit, MARGIN * others.get(name, 0.0)) for name, limit in limits.items()
        }
        wrong = {name: far for name, far in wrong.items() if far > limits[name]}
    beyond = [
        name
        for name, far in own.items()
        if name not in null and far > MARGIN * (rounding[name] + UNIT_FLOAT32)
    ]
    figure = {
        "difference": 0.0,
        "float32": max(differences.values(), default=0.0),
        "float32 of the reference": max(own.values(), default=None),
        "failed": sorted(wrong),
    }
    notes = (
        [f"{probe.name}, float32: the reference itself is beyond the bound at {', '.join(beyond)}"]
        if beyond
        else []
    )
    if not wrong:
        return [], figure, notes
    worst = max(wrong, key=lambda name: wrong[name] / limits[name])
    remark = f"The reference's own float32 is off by {own.get(worst, np.nan):.0e}."
    explanation = explaining.values(probe, ours, theirs, one, two)
    finding = Finding(
        "L7",
        f"{probe.name}, float32",
        worst,
        wrong[worst],
        "",
        "train",
        limits[worst],
        explanation=explanation,
        remarks=(remark,),
    )
    return [finding], figure, notes
