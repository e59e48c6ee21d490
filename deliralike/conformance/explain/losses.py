"""Why a loss differs: its known conventions are executed on the network's outputs and the targets.

The whole loss is known on both sides: its value, and its gradient with respect to the network's
outputs. A loss of several terms is taken apart: what the candidate has in the place of one term is
what is left when all the others are subtracted. A term whose formula is not known (one of a
framework's own, or written out) is recognised first, by the same functions of `nn`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.by_name import without
from deliralike.conformance.explain import changes, types
from deliralike.conformance.explain.arguments import called, names
from deliralike.conformance.explain.convention import Arguments, Change, Formula, told
from deliralike.conformance.explain.execute_variant import Bench
from deliralike.conformance.explain.loss_table import (
    BEFORE,
    LOSSES,
    OF_ELEMENTS,
    conventions,
)
from deliralike.conformance.explain.trials import EXACT, Trial, run, until_met
from deliralike.conformance.findings import (
    LIMIT,
    MATCH,
    Explanation,
    FailingBlock,
    Observed,
    is_array,
)
from deliralike.conformance.kinds import Arrays, Named, Shape, Tensors
from deliralike.conformance.places import ARGUMENT, Quantity

Array = np.ndarray

_PATIENCE = 6.0  # seconds of computing
_ROUNDING = 4e-15  # of the whole loss
_LEAST = 1e-7  # of a term: what is left of it is known to eight digits no more
_NEAR = 1e-3  # of the difference itself: what leaves more of it says nothing
_FEW = 3  # digits of a factor that somebody may have written
_PARTS = 64  # of an axis that are tried
_CAUSES = 3  # that fit equally and are named


@dataclass(frozen=True)
class Total:
    """What a loss function gave, and its gradient with respect to each output of the network."""

    value: float
    outputs: Arrays

    @property
    def numbers(self) -> Tensors:
        """The loss and its gradients."""
        return {"value": np.array([self.value]), **self.outputs}

    @property
    def slope(self) -> Array:
        """All gradients in a row."""
        return np.concatenate([one.ravel() for one in self.outputs.values()])

    @property
    def size(self) -> float:
        """The loss and the length of its gradient."""
        return abs(self.value) + _norm(self.slope)

    def plus(self, other: Total, factor: float = 1.0) -> Total:
        """The sum with another one times a factor."""
        value = self.value + factor * other.value
        return Total(value, {n: g + factor * other.outputs[n] for n, g in self.outputs.items()})

    def scaled(self, factor: float, of_slope: float | None = None) -> Total:
        """That times a number; the gradient times another one, if it is given."""
        times = factor if of_slope is None else of_slope
        return Total(factor * self.value, {n: times * g for n, g in self.outputs.items()})

    def apart(self, other: Total, least: float = 1e-300) -> float:
        """The larger one of the value's and the gradients' relative distance, or to `least`."""
        mine, its = self.slope, other.slope
        value = abs(self.value - other.value) / max(abs(self.value), abs(other.value), least)
        return max(value, _norm(mine - its) / max(_norm(mine), _norm(its), least))

    def factor_of(self, other: Total) -> float:
        """What the gradient has to be multiplied by to come near to another one's."""
        square = float(self.slope @ self.slope)
        return float(self.slope @ other.slope) / square if square else 0.0


@dataclass(frozen=True)
class Term:
    """A number that the reference's loss computes by a call of a function, and adds to the rest.

    Attributes:
        name: ``"dice_loss"``, ``"sum"``.
        settings: Its arguments by name: NumPy arrays and plain values; the first is the prediction.
        own: What it gives to the whole.
        factor: The derivative of the whole loss with respect to what it gave.
    """

    name: str
    settings: Named
    own: Total
    factor: float = 1.0

    @property
    def shape(self) -> Shape:
        """That of the prediction."""
        return np.shape(next(iter(self.settings.values()), 0.0))


@dataclass(frozen=True)
class Composition:
    """A loss function on both sides, at the same outputs of the network.

    Attributes:
        backend: What conventions are executed on.
        outputs: Of the network, by name.
        terms: What the reference calls.
        reference, candidate: What both gave.
        targets: Arrays that the loss may compare outputs with.
    """

    backend: Backend
    outputs: Arrays
    terms: tuple[Term, ...]
    reference: Total
    candidate: Total
    targets: tuple[Array, ...] = ()


class _Bench(Bench):
    """Losses as functions of one output of the network: the value and the gradient decide."""

    digits = 6

    def __init__(self, accused: FailingBlock, backend: Backend) -> None:
        super().__init__(accused, backend)
        self.outputs, self.gradients = (*self.outputs, *self.gradients), ()

    def forward(self, formula: Formula) -> Tensors | None:
        """The value and the gradient; so many formulas run that programs of them cost too much."""
        with self.backend.op_by_op():
            return self.everything(formula)


# Terms with their formulas
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """A term whose formula is known.

    Attributes:
        kind: The function of `nn`.
        given: What it takes beside the prediction.
        output: The network's output that the prediction is made of.
        view, before: How.
        factor: What the function's result is multiplied by.
    """

    kind: str
    given: Named
    output: str
    view: Change
    before: str
    factor: float = 1.0

    @property
    def formula(self) -> Formula:
        """From an output of the network to what the term gives to the whole."""
        usual = {"own": partial(called, self.kind), "before": BEFORE[self.before]}
        return told(self._run, usual)

    def _run(self, nn: Any, given: Arguments) -> Any:
        first = names(self.kind)[0]
        x = given["before"](nn, self.view(nn, given[first]))
        return given["own"](nn, {**given, first: x}) * self.factor

    def bench(self, loss: Composition, own: Total, wanted: Total) -> _Bench:
        """Where it is executed, against what the candidate has in its place."""
        mine, its = (
            Observed(
                np.asarray(side.value),
                {Quantity(ARGUMENT, "args[0]"): side.outputs[self.output]},
            )
            for side in (own, wanted)
        )
        arrays = {name: value for name, value in self.given.items() if is_array(value)}
        settings, noise = without(self.given, arrays), {}
        for name, size in (("output", abs(own.value)), ("gradient of args[0]", _norm(own.slope))):
            noise[name] = _ROUNDING * loss.reference.size / (size or 1.0)
        one, z = np.asarray(1.0), loss.outputs[self.output]
        accused = FailingBlock(
            "loss", self.kind, settings, {}, (z,), arrays, one, True, mine, its, noise
        )
        return _Bench(accused, loss.backend)


def _norm(array: Any) -> float:
    return float(np.linalg.norm(array))


def _known(loss: Composition, term: Term) -> _Known | None:
    """A term of `nn`, by the output that its prediction is a view of; None where nothing tells."""
    if term.name not in LOSSES:
        return None
    prediction, *_ = term.settings.values()
    given = dict(list(term.settings.items())[1:])
    for output, array in loss.outputs.items():
        for view in _views(array, np.shape(prediction)):
            for before in BEFORE:
                found = _Known(term.name, given, output, view, before, term.factor)
                bench = found.bench(loss, term.own, term.own)
                tensors = bench.forward(found.formula)
                if tensors is not None and max(bench.distances(tensors).values()) <= MATCH:
                    return found
    return None


def _views(output: Array, shape: Shape) -> Iterator[Change]:
    """The output in a given shape: reshaped, its classes moved to axis 1, or a part of an axis."""
    if output.size == math.prod(shape):
        if output.shape != shape and output.ndim == len(shape) > 2:
            order = (0, output.ndim - 1, *range(1, output.ndim - 1))
            if tuple(output.shape[axis] for axis in order) == shape:
                yield changes.permuted(order)
        yield changes.reshaped(shape)
    axes = [
        at for at, (one, other) in enumerate(zip(output.shape, shape, strict=False)) if one > other
    ]
    if output.ndim == len(shape) and len(axes) == 1:
        axis = axes[0]
        for start in range(min(output.shape[axis] - shape[axis] + 1, _PARTS)):
            part = slice(start, start + shape[axis])
            yield partial(_part, (*(slice(None),) * axis, part))


def _part(index: tuple[slice, ...], nn: Any, x: Any) -> Any:
    return x[index]


def _native(loss: Composition, own: Total) -> _Known | None:
    """A term that is no call of `nn`, as the function of `nn` that gives its numbers."""
    for (output, array), target in itertools.product(loss.outputs.items(), loss.targets):
        for shape in {array.shape, (array.shape[0], array.shape[-1], *array.shape[1:-1])}:
            is_labels = target.dtype.kind in "iu" and target.shape == (shape[0], *shape[2:])
            if not is_labels and target.size != array.size:
                continue
            kinds = ("cross_entropy",) if is_labels else ("cross_entropy", *OF_ELEMENTS)
            truth = target if is_labels else target.reshape(shape).astype(float)
            usual = {"target": truth, "ignore_index": -100}
            for kind, view in itertools.product(kinds, _views(array, shape)):
                found = _Known(kind, usual, output, view, "")
                factor = _factor(found.bench(loss, own, own), found, own)
                if factor is not None:
                    return replace(found, factor=factor)
    return None


def _factor(bench: _Bench, known: _Known, own: Total) -> float | None:
    """What a formula is to be multiplied by to give a term; None where nothing will do."""
    tensors = bench.forward(known.formula)
    if tensors is None:
        return None
    slope = Total(0.0, {known.output: tensors["gradient of args[0]"]})
    factor = slope.factor_of(Total(0.0, {known.output: own.outputs[known.output]}))
    scaled = {name: factor * value for name, value in tensors.items()}
    is_met = bool(factor) and max(bench.distances(scaled).values()) <= MATCH
    return factor if is_met else None


# One term that differs
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A term with what the candidate has in its place while all others are right.

    Attributes:
        name: Of its function; empty where the loss has one term.
        own, left: What it gives to the whole, and what the candidate has there.
        shape: Of what it reduces to one number.
        known: Its formula, if that is known.
    """

    name: str
    own: Total
    left: Total
    shape: Shape
    known: _Known | None

    @property
    def subject(self) -> str:
        """What a report says of it."""
        return self.name or "loss"

    def relations(self) -> Iterator[Trial]:
        """What a value and a gradient show without a formula: factors that somebody may write."""
        own, left = self.own, self.left
        ratio, shift = own.factor_of(left), tidy(left.value - own.value)
        said = factor_in_words(ratio, sizes_in_words(self.shape))
        ways = {f"{self.subject} without a gradient (detached)": own.scaled(1.0, 0.0)}
        if self.name:
            ways[f"{self.name} left out (weight 0)"] = own.scaled(0.0)
        if said is not None and abs(ratio) > LIMIT:
            words, factor = said
            ways[f"{self.subject} {words}"] = own.scaled(factor)
            alone = f"gradient of the {self.subject} {words}, its value as it should be"
            ways[alone] = own.scaled(1.0, factor)
        words = f"loss plus {shift:.6g}, which does not depend on the prediction"
        ways[words] = Total(own.value + shift, own.outputs)
        for words, total in ways.items():
            yield Trial(words, total.apart(left, _LEAST * own.size))

    def trials(self, loss: Composition, free: bool, end: float) -> Iterator[Trial]:
        """Conventions of its formula: those with a number that is searched for, or the others.

        None are tried after `end`, in seconds of computing.
        """
        known = self.known
        if known is None or self._differs_elsewhere(known.output):
            return
        bench = known.bench(loss, self.own, self.left)
        table = conventions(known.kind, bench.given, known.before)
        some = [one for one in table if one.free == free]
        start = f"{self.name}: " if self.name else ""
        met = []
        for trial in run(some, bench, known.formula):
            named = replace(trial, cause=f"{start}{trial.cause}")
            if trial.is_met and not free:
                met.append(named)
            else:
                yield named
            if time.process_time() > end:
                break
        if met:
            yield replace(met[0], cause=self._together([one.cause for one in met]))

    def _together(self, causes: Sequence[str]) -> str:
        """All that fit equally, with the factor that they come to."""
        said = ", or ".join(list(dict.fromkeys(causes))[:_CAUSES])
        factor = self.own.factor_of(self.left)
        if self.own.scaled(factor).apart(self.left) > MATCH:
            return said
        return f"{self.subject} times {tidy(factor):.6g} ({said})"

    def _differs_elsewhere(self, output: str) -> bool:
        """Whether the candidate's gradient of another output is another one."""
        others = without(self.own.outputs, (output,))
        whole = self.own.size + self.left.size
        return any(_norm(self.left.outputs[n] - g) > LIMIT * whole for n, g in others.items())


def factor_in_words(factor: float, known: Mapping[str, float]) -> tuple[str, float] | None:
    """Return ``("times 0.5", 0.5)``; None for a number that nobody would write.

    Example:
        >>> factor_in_words(0.30000000000000004, {}), factor_in_words(0.9134731, {})
        (('times 0.3', 0.3), None)
    """
    words = [word for word, value in known.items() if abs(factor / value - 1.0) <= 1e-9]
    written = tidy(factor)
    if words:
        return f"times {written:.6g} ({', or '.join(words[:2])})", written
    is_short = math.isfinite(written) and float(f"{written:.{_FEW - 1}e}") == written
    return (f"times {written:.6g}", written) if is_short else None


def tidy(value: float) -> float:
    """A number without the rounding errors of its fit."""
    short = float(f"{value:.9e}")
    return short if abs(short - value) <= 1e-10 * abs(value) else float(value)


def sizes_in_words(shape: Shape) -> dict[str, float]:
    """Factors that come of a prediction's shape (batch, classes, ...), and a few by name."""
    counts = {"the batch size": shape[0] if shape else 1}
    counts["the number of elements"] = math.prod(shape)
    if len(shape) > 1:
        counts["the size of axis 1"] = shape[1]
    if len(shape) > 2:
        counts["the number of labels"] = math.prod(shape) // shape[1]
    found = {"halved": 0.5, "doubled": 2.0, "negated": -1.0}
    for name, count in counts.items():
        if count > 1:
            found[name], found[f"1 / {name}"] = float(count), 1.0 / count
    return found


# The whole loss
# -----------------------------------------------------------------------------


def explain(loss: Composition) -> Explanation | None:
    """The most likely cause of another loss function; None where both agree."""
    mine, its = loss.reference, loss.candidate
    if not np.isfinite(its.value):
        return Explanation.seen("overflow or an undefined operation: the loss is not finite")
    short = types.explain(mine.numbers, its.numbers)
    if short is not None:
        return short
    apart, end = mine.apart(its), time.process_time() + _PATIENCE
    if apart <= LIMIT:
        return None
    parts = list(_parts(loss))
    trials = until_met(
        itertools.chain.from_iterable(part.trials(loss, False, end) for part in parts),
        itertools.chain.from_iterable(part.relations() for part in parts),
        itertools.chain.from_iterable(part.trials(loss, True, end) for part in parts),
    )
    return _nearest(trials, apart) or _unknown(mine, its)


def _parts(loss: Composition) -> Iterator[_Part]:
    """The terms of a loss, and what is left of it beside them; each with its formula if known."""
    left, terms = loss.reference, [*loss.terms]
    for term in terms:
        left = left.plus(term.own, -1.0)
    if not terms or left.plus(loss.reference).apart(loss.reference) > MATCH:
        shape = next(iter(loss.outputs.values())).shape
        terms.append(Term("the rest of the loss", {"x": np.zeros(shape)}, left))
    difference = loss.candidate.plus(loss.reference, -1.0)
    for term in terms:
        known = _known(loss, term) or _native(loss, term.own)
        name = term.name if len(terms) > 1 else ""
        if known is None and term in loss.terms and name:
            name = f"{name}() of {term.shape}"
        yield _Part(name, term.own, term.own.plus(difference), term.shape, known)


def _nearest(trials: Sequence[Trial], apart: float) -> Explanation | None:
    """The nearest trial; None where none comes much nearer than the reference itself.

    Of causes that match as well, the first ones are the simpler ones.
    """
    best = min(trials, key=lambda trial: max(trial.distance, EXACT), default=None)
    if best is None or best.distance > max(_NEAR * apart, EXACT):
        return None
    others = [trial.distance for trial in trials if trial.distance > max(best.distance, EXACT)]
    return Explanation(best.cause, best.distance, min([*others, apart]))


def _unknown(mine: Total, its: Total) -> Explanation:
    """What there is to look at where nothing fits: both values, both gradients."""
    said = f"the loss is {its.value:.6g} instead of {mine.value:.6g}"
    one, two = _norm(mine.slope), _norm(its.slope)
    if one and two:
        cosine = float(mine.slope @ its.slope) / (one * two)
        said += f", its gradient {two / one:.4g} times as long, with a cosine of {cosine:.4f}"
    return Explanation(said, np.inf)
