"""Level L7: probes, inputs at which right-looking networks go different ways.

Each probe is the batch at hand with something extreme in it. Values and gradients must be the
reference's up to what rounding does at that very place, which is measured: the reference once more
with parameters (and inputs) that are rounded at random, and in float32. Where the reference
refuses, the candidate must refuse too, and the other way round. Far from zero a formula that loses
digits shows in float64 already: a variance in one pass is off by 1e-8 there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import NULL, relative_difference
from deliralike.conformance.by_name import without
from deliralike.conformance.explain import probes as explaining
from deliralike.conformance.findings import (
    LIMIT,
    NOT_REACHED,
    Explanation,
    Finding,
    Level,
    is_array,
)
from deliralike.conformance.freeing import forget_programs
from deliralike.conformance.kinds import Batch, Tensors
from deliralike.conformance.last_bit import MARGIN, SLIGHT, allowed
from deliralike.conformance.levels.probing import (
    UNIT_FLOAT32,
    UNIT_FLOAT64,
    Probe,
    Seen,
    Side,
)
from deliralike.conformance.listening import heard
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.aligning import align
from deliralike.conformance.subject import Subject
from deliralike.weights.matching.distance import wide

TITLE = "probes"
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
    probes, notes = _probes(layout) if thorough else (_few(layout), [])
    findings: list[Finding] = []
    figures: dict[str, Any] = {}
    for probe in probes:
        if probe.about == "one" and probe.kind == "gradients":
            forget_programs(ours.network, theirs.network)  # those for larger batches
        found, figure, said = _judge(probe, ours, theirs)
        findings += found
        notes += [f"{probe.name}: {each}" for each in said]
        figures[probe.name] = figure
    if findings and not thorough:
        return level(reference, candidate, batch, match)
    if not figures:
        return Level("L7", TITLE, NOT_REACHED, notes=tuple(notes))
    differences = [figure["difference"] for figure in figures.values() if "difference" in figure]
    worst = max(differences, default=None)
    return Level.judged("L7", TITLE, worst, findings, notes, **figures)


# What is in a batch
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A batch as leaves, and what each of them is.

    Attributes:
        leaves, structure: See `nest.flatten`.
        kinds: The numbers of the leaves of each kind: floating inputs of the network and whole
            numbers (``"f"``, ``"i"``), floating targets and labels (``"t"``, ``"l"``), and all
            arrays (``"*"``).
        outputs: The largest output on the batch.
        padding: The token without a gradient; None without one.
        names: Of the network's tensors.
        ignored: The label that the loss leaves out; None without one.
    """

    leaves: list[Any]
    structure: Any
    kinds: Mapping[str, list[int]]
    outputs: float
    padding: int | None
    names: tuple[str, ...]
    ignored: int | None = None

    @classmethod
    def of(cls, side: Side, batch: Batch, labels: Sequence[int]) -> Layout:
        """Of a batch for a network, found out by letting it run.

        Args:
            labels: Those that the loss may ignore.
        """
        leaves, structure = nest.flatten(batch)
        given, outputs = _listened(side, batch)
        kinds: dict[str, list[int]] = {kind: [] for kind in "fitl*"}
        for at, leaf in enumerate(leaves):
            if is_array(leaf) and leaf.ndim:
                kinds["*"].append(at)
                here = _INPUTS if at in given else _TARGETS
                if leaf.dtype.kind in here:
                    kinds[here[leaf.dtype.kind]].append(at)
        paddings = (getattr(block, "padding_idx", None) for _, block in side.network.named_blocks())
        padding = next((each for each in paddings if each is not None), None)
        layout = cls(leaves, structure, kinds, outputs, padding, tuple(side.state))
        return replace(layout, ignored=layout._find_ignored(side, labels))

    @property
    def biases(self) -> tuple[str, ...]:
        """The biases of all layers, and running means."""
        found = []
        for name in self.names:
            end = name.rpartition(".")[2]
            if "bias" in end or end == "running_mean":
                found.append(name)
        return tuple(found)

    @property
    def layers(self) -> list[str]:
        """The paths of the layers that have a weight and a bias."""
        paths = [name.removesuffix(".bias") for name in self.names if name.endswith(".bias")]
        return [path for path in paths if f"{path}.weight" in self.names]

    def but(self, kinds: str, change: Callable[[np.ndarray], np.ndarray]) -> Batch:
        """The batch with leaves of some kinds changed."""
        leaves = list(self.leaves)
        for kind in kinds:
            for at in self.kinds[kind]:
                leaves[at] = change(leaves[at]).astype(leaves[at].dtype)
        return nest.unflatten(self.structure, leaves)

    def _find_ignored(self, side: Side, candidates: Sequence[int]) -> int | None:
        """Return which of some labels a loss ignores, else None.

        Alone, it gives a loss of zero or NaN, and it may stand in the place of any label.
        """
        if not self.kinds["l"]:
            return None
        for label in candidates:
            batch = self.but("l", partial(np.full_like, fill_value=label))
            seen = side.see(Probe("", batch, kind="evaluation"))
            if seen.error is None and not np.nan_to_num(float(seen.tensors["loss"])):
                return label
        return None


# The kind of a leaf by that of its type, see `Layout`.
_INPUTS = {"f": "f", "i": "i", "u": "i"}
_TARGETS = {"f": "t", "i": "l", "u": "l"}


def _listened(side: Side, batch: Batch) -> tuple[set[int], float]:
    """The numbers of the leaves that a loss hands to its network, and the size of its outputs."""
    backend = side.network.backend
    prepared = backend.prepare(batch, side.network)
    listener, _ = heard(side.subject, side.network, prepared)
    handed = {id(leaf) for leaf in nest.leaves(listener.arguments) if backend.is_array(leaf)}
    given = {at for at, leaf in enumerate(nest.leaves(prepared)) if id(leaf) in handed}
    if not given:  # the loss changes them first
        given = set(range(len(nest.leaves(batch[:-1]))))
    outputs = nest.leaves(backend.to_numpy(listener.outputs))
    sizes = [np.abs(leaf).max(initial=0.0) for leaf in outputs if is_array(leaf)]
    return given, float(max(sizes, default=0.0))


# The probes
# -----------------------------------------------------------------------------

Change = Callable[[np.ndarray, Layout], np.ndarray]


@dataclass(frozen=True)
class _Row:
    """A probe as a line of the table.

    Attributes:
        needs: What a network and its batch must have.
        name, about, kind: As of the probe.
        of: The kinds of leaves that are changed.
        change: Of each such array.
        is_few: Whether it is among the few that hold most of the extremes.
    """

    needs: str
    name: str
    of: str
    change: Change
    about: str
    kind: str = "gradients"
    is_few: bool = False

    def probe(self, layout: Layout) -> Probe:
        """The probe for a batch."""

        def change(leaf: np.ndarray) -> np.ndarray:
            return self.change(leaf, layout)

        return Probe(
            self.name,
            layout.but(self.of, change),
            scale=FAR / layout.outputs if self.about == "huge" else 1.0,
            zeroed=layout.biases if self.about == "zeros" else (),
            ties=self.about in ("ties", "zeros"),
            kind=self.kind,
            about=self.about,
        )


def _probes(layout: Layout) -> tuple[list[Probe], list[str]]:
    """Those that fit, and a note for each kind that does not."""
    there, taken = _there(layout), f"label {layout.ignored}"  # which is one that the loss takes
    probes = [_zeros_out_of(path, layout) for path in layout.layers[:LAYERS]]
    missing = {}  # in the order of the table
    for row in _TABLE:
        if not there[row.needs]:
            missing[row.needs] = f"not applicable, there is nothing of the kind: {row.needs}"
        elif row is not _MIXED and row.name != taken:
            probes.append(row.probe(layout))
    return probes, list(missing.values())


def _zeros_out_of(path: str, layout: Layout) -> Probe:
    """The batch as it is, with a layer whose outputs are zero."""
    zeroed = (f"{path}.weight", f"{path}.bias")
    batch = layout.but("*", np.array)
    return Probe(f"zeros out of {path}", batch, zeroed=zeroed, ties=True, about="zeros")


def _few(layout: Layout) -> list[Probe]:
    """A few probes that hold most of the extremes."""
    there = _there(layout)
    return [row.probe(layout) for row in _TABLE if row.is_few and there[row.needs]]


def _there(layout: Layout) -> dict[str, bool]:
    kinds = layout.kinds
    return {
        _FLOATS: bool(kinds["f"]),
        _TOKENS: bool(kinds["i"]),
        _LABELS: bool(kinds["l"]),
        _IGNORED: layout.ignored is not None,
        _PADDING: layout.padding is not None and bool(kinds["i"]),
        _OUTPUTS: layout.outputs > 0.0,
        _SAMPLES: True,
    }


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


def _first(value: int) -> Change:
    """The first element replaced."""

    def change(leaf: np.ndarray, layout: Layout) -> np.ndarray:
        changed = leaf.copy()
        changed.flat[0] = value
        return changed

    return change


def _index(value: int) -> _Row:
    name = f"index {value} among the inputs"
    return _Row(_TOKENS, name, "i", _first(value), "index", "refusal")


def _label(value: int) -> _Row:
    return _Row(_LABELS, f"label {value}", "l", _first(value), "index", "refusal")


def _full(value: float) -> Change:
    return lambda leaf, layout: np.full_like(leaf, value)


def _until_one(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return leaf[:1]


def _ignoring(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.full_like(leaf, layout.ignored)


def _as_it_is(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.array(leaf)


def _signs(leaf: np.ndarray, layout: Layout) -> np.ndarray:
    return np.sign(np.rint(leaf))


_FLOATS, _TOKENS = "floating inputs", "whole numbers among the inputs"
_LABELS, _IGNORED = "whole numbers among the targets", "a label that the loss ignores"
_PADDING, _OUTPUTS, _SAMPLES = "a padding token", "outputs that the loss sees", "samples"
_MIXED = _Row(_FLOATS, "some inputs of zeros, ones and signs", "f", _mixed, "ties", is_few=True)
_TABLE = [
    _MIXED,
    _Row(_FLOATS, "inputs with a mean of 1e4 deviations", "f", _far, "far"),
    _Row(_FLOATS, "constant inputs", "f", _full(0.5), "ties"),
    _Row(_FLOATS, "inputs of -1, 0 and 1", "f", _signs, "ties"),
    _Row(_FLOATS, "zeros at every layer", "ft", _full(0.0), "zeros", is_few=True),
    _index(OUT_OF_RANGE),
    _index(-1),
    _label(OUT_OF_RANGE),
    _label(-1),
    _label(-2),
    _Row(_IGNORED, "all labels ignored", "l", _ignoring, "ignored", is_few=True),
    _Row(_PADDING, "padding tokens after the first", "i", _padded, "padding", is_few=True),
    _Row(_OUTPUTS, "outputs of 1e4", "*", _as_it_is, "huge", is_few=True),
    _Row(_SAMPLES, "batch of one", "*", _until_one, "one", is_few=True),
    _Row(_SAMPLES, "batch of one, evaluated", "*", _until_one, "one", "evaluation", is_few=True),
]


# Judging
# -----------------------------------------------------------------------------

Judged = tuple[list[Finding], dict[str, Any], list[str]]


def _judge(probe: Probe, ours: Side, theirs: Side) -> Judged:
    """A probe on both sides: findings, figures for tables, and notes."""
    one, two = ours.see(probe), theirs.see(probe)
    are_native = ours.is_native or theirs.is_native
    if one.error is not None or two.error is not None:
        return _judge_errors(probe, one, two, are_native)
    if are_native:
        two = _in_names_of(one, two)
    judged = _judge_values(probe, ours, theirs, one, two)
    if are_native and probe.about in ("far", "ignored"):
        return _as_notes(judged)
    return judged


def _in_names_of(one: Seen, two: Seen) -> Seen:
    """What a native network gave, in the names of the reference; buffers of its own are left out."""
    mine, theirs = _outputs(one), _outputs(two)
    tensors = two.tensors | align(mine, theirs).back(theirs, mine)
    tensors = {name: tensors[name] for name in one.tensors if tensors.get(name) is not None}
    return replace(two, tensors=tensors)


def _outputs(seen: Seen) -> Tensors:
    return {name: value for name, value in seen.tensors.items() if name.startswith("outputs")}


def _as_notes(judged: Judged) -> Judged:
    """The findings of native networks as notes."""
    findings, figure, notes = judged
    said = [f"{each.what} is off by {each.difference:.0e}" for each in findings]
    return [], {**figure, "difference": 0.0, "failed": []}, [*notes, *said]


def _judge_values(probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen) -> Judged:
    """Judge a probe that gives numbers on both sides."""
    notes: list[str] = []
    are_native = ours.is_native or theirs.is_native
    if probe.about == "ignored" and not are_native and not np.isfinite(one.tensors["loss"]):
        notes.append("the reference gives no number, and is not followed")
        one = Seen({"loss": np.zeros_like(one.tensors["loss"])})
    differences = _differences(one.tensors, two.tensors)
    beyond = {name: far for name, far in differences.items() if far > LIMIT}
    limits: dict[str, float] = {}
    if beyond:
        limits, noise = _allowed(probe, ours, theirs, one, two, beyond)
        if noise:
            notes.append(f"decided by rounding, not judged: {', '.join(noise)}")
        differences, beyond = without(differences, noise), without(beyond, noise)
    wrong = {}
    for name, far in beyond.items():
        if far > limits.get(name, LIMIT):
            wrong[name] = far
        else:
            notes.append(f"{name} is off by {far:.0e}, as rounding alone may be")
    if wrong and are_native and probe.ties and all(map(_is_gradient, wrong)):
        notes.append(f"gradients go another way at exact ties: {', '.join(sorted(wrong))}")
        differences, wrong = without(differences, wrong), {}
    figure = {"difference": max(differences.values(), default=0.0), "failed": sorted(wrong)}
    if not wrong:
        return [], figure, notes
    worst = max(wrong, key=wrong.__getitem__)
    why = explaining.values(probe, ours, theirs, one, two)
    others = len(wrong) - 1
    remarks = (f"{others} other tensors differ, too.",) if others else ()
    finding = Finding(
        "L7",
        probe.name,
        worst,
        wrong[worst],
        mode=probe.mode,
        limit=limits.get(worst, LIMIT),
        explanation=why,
        remarks=remarks,
    )
    return [finding], figure, notes


def _judge_errors(probe: Probe, one: Seen, two: Seen, are_native: bool) -> Judged:
    """Judge a probe that one side refuses: the other must refuse it for the same kind of reason.

    For native networks a difference is noted only, unless the candidate alone cannot evaluate a
    single sample.
    """
    if are_native and one.error is not None and two.error is not None:
        return [], {"error": type(one.error).__name__}, []
    kind, its = _kind(one.error), _kind(two.error)
    if kind == its:
        return [], {"error": kind}, []
    said = explaining.refusal(probe, one, two)
    # Frameworks differ in what they refuse, and no rule says which one is right. None refuses to
    # evaluate a single sample: that is the candidate's own doing.
    fails_alone = probe.about == "one" and probe.mode == "eval" and one.error is None
    if are_native and not fails_alone:
        return [], {"error": ""}, [said]
    explanation = Explanation.seen(said)
    finding = Finding("L7", probe.name, "error", np.inf, mode=probe.mode, explanation=explanation)
    return [finding], {"error": f"{kind} and {its}"}, []


def _kind(error: Exception | None) -> str:
    """Return the name of the standard error that an error is; ``"none"`` without one.

    Errors of an index are one kind, those of a value or type another.
    """
    if error is None:
        return "none"
    for kind in (LookupError, ArithmeticError, ValueError, TypeError, NotImplementedError):
        if isinstance(error, kind):
            return kind.__name__
    return "Exception"


def _differences(one: Tensors, two: Tensors) -> dict[str, float]:
    """Return how far each tensor is.

    NaN equals NaN. Tensors that are zero up to rounding on both sides are left out.
    """
    floors = {group: _floor(one, group) for group in (True, False)}
    found = {}
    for name, first in one.items():
        second = two.get(name)
        if second is None:
            if name.startswith(("loss", "outputs")):
                found[name] = np.inf
            continue
        floor = floors[_is_gradient(name)]
        if _size(first) <= floor and _size(second) <= floor:
            continue
        if np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            found[name] = 0.0
        else:
            found[name] = relative_difference(first, second)
    return found


def _floor(tensors: Tensors, are_gradients: bool) -> float:
    """The size below which one of the gradients, or of the other tensors, is rounding."""
    sizes = [_size(x) for name, x in tensors.items() if _is_gradient(name) == are_gradients]
    return max(NULL * max(sizes, default=0.0), 1e-300)


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient of ")


def _size(value: np.ndarray) -> float:
    """The root mean square."""
    value = np.abs(wide(value))
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
    moved = _rounding(ours, probe, one)
    limits = {name: max(LIMIT, MARGIN * far) for name, far in moved.items()}
    nothing = [n for n in beyond if moved[n] >= NOTHING_ELSE or not one.tensors[n].any()]
    if not nothing and all(far <= limits[name] for name, far in beyond.items()):
        return limits, []
    own = _rounding(theirs, probe, two)
    noise = [n for n in nothing if _is_noise(one.tensors[n], two.tensors.get(n), own.get(n, 0.0))]
    if not probe.ties:
        return limits, noise
    for name, far in own.items():
        if name in limits:
            limits[name] = max(limits[name], allowed(far))
    for name, far in beyond.items():
        by_rounding = own.get(name, 0.0)
        if name not in noise and by_rounding > SLIGHT and by_rounding >= far / MARGIN:
            noise.append(name)
    return limits, noise


def _is_noise(mine: np.ndarray, other: np.ndarray | None, moved: float) -> bool:
    """Return whether rounding moves a tensor by its own size, or it is below the other's rounding."""
    if other is None or not np.isfinite(other).all():
        return False
    return moved >= NOTHING_ELSE or _size(other) <= _size(mine)


def _rounding(side: Side, probe: Probe, seen: Seen) -> dict[str, float]:
    """How far rounding moves each tensor of a side.

    Found by rounding at random, and by what float32 does, scaled: that rounds in the middle of
    layers, too. Where float32 keeps no digit at exact ties, as of a softmax that is
    saturated, it cannot say how many float64 keeps: slight differences are allowed.
    """
    generator, moved = np.random.default_rng(0), dict.fromkeys(seen.tensors, 0.0)
    for _ in range(DRAWS):  # one after the other, as a network may be large
        other = side.see(probe, generator)
        for name, value in seen.tensors.items():
            far = relative_difference(value, other.tensors.get(name))
            moved[name] = max(moved[name], far)
    if side.short is not None:
        short = side.short.see(probe)
        for name, far in _differences(seen.tensors, short.tensors).items():
            scaled = min(far, 1.0) * UNIT_FLOAT64 / UNIT_FLOAT32
            if probe.ties and far >= NO_DIGIT:
                scaled = SLIGHT / MARGIN
            moved[name] = max(moved[name], scaled)
    return moved
