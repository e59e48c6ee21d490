"""Why a loss differs: its known formulas are executed on the network's outputs and the targets.

The whole loss is known on both sides: its value, and its gradient with respect to the network's
outputs. A loss of several terms is taken apart: what the candidate has in the place of one term is
what is left when all the others are subtracted. A term whose formula is not known (one of a
framework's own, or written out) is recognised first, by the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np

from deliralike.conformance.agreement import compare, differences, relative_difference
from deliralike.conformance.explain import types
from deliralike.conformance.explain.convention import Arguments, Convention, Formula, values
from deliralike.conformance.explain.loss_table import (
    ACTIVATIONS,
    Family,
    Path,
    family,
)
from deliralike.conformance.explain.trials import (
    EXACT,
    Trial,
    Vectors,
    combined,
    divided,
    run,
    until_met,
)
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Arrays, Named, Shape, Tensors

Array = np.ndarray

STEP = 1e-30  # f(x + ih d) = f(x) + ih f'(x) d: derivatives without cancellation
DIRECTIONS = 8
_ROUNDING = 1e-7  # of the whole loss: a term that is smaller is known to eight digits no more
_NEAR = 1e-3  # of the difference itself: what leaves more of it says nothing
_FEW = 3  # digits of a factor that somebody may have written
_CAUSES = 3  # that fit equally and are named


@dataclass(frozen=True)
class Total:
    """What a loss function gave, and its gradients.

    Attributes:
        value: The loss.
        outputs: Its gradient with respect to each output of the network, by name.
        parameters: Its gradient with respect to each parameter; also that through the network's
            given output.
    """

    value: float
    outputs: Arrays
    parameters: Mapping[str, Array | None] = field(default_factory=dict)

    @property
    def numbers(self) -> Tensors:
        """The loss and its gradients with respect to the outputs."""
        return {"value": np.array([self.value]), **self.outputs}


@dataclass(frozen=True)
class Term:
    """A number that the reference's loss computes by a call of a function, and adds to the rest.

    Attributes:
        name: ``"dice_loss"``, ``"sum"``.
        settings: Its arguments by name: NumPy arrays and plain values; the first is the prediction.
        output: What it gave.
        factor: The derivative of the whole loss with respect to that.
        outputs: The part of the loss's gradient that comes through it; None where it was not run.
    """

    name: str
    settings: Named
    output: float
    factor: float
    outputs: Mapping[str, Array] | None = None

    @property
    def shape(self) -> Shape:
        """That of the prediction."""
        return np.shape(next(iter(self.settings.values()), 0.0))


@dataclass(frozen=True)
class Composition:
    """A loss function on both sides, at the same outputs of the network.

    Attributes:
        outputs: Of the network, by name.
        parameters: Of the network, by name.
        terms: What the reference calls.
        reference, candidate: What both gave.
        targets: Arrays that the loss may compare outputs with.
    """

    outputs: Arrays
    parameters: Arrays
    terms: tuple[Term, ...]
    reference: Total
    candidate: Total
    targets: tuple[Array, ...] = ()


# Losses as vectors
# -----------------------------------------------------------------------------


class Point:
    """Losses at one prediction as vectors: the value, then derivatives along fixed directions.

    Args:
        prediction: All outputs in a row.
    """

    def __init__(self, prediction: Array) -> None:
        self.prediction, self.least = prediction, 0.0
        shape = (DIRECTIONS, prediction.size)
        self.directions = np.random.default_rng(0).standard_normal(shape)

    @property
    def data(self) -> int:
        """How many independent numbers a vector holds."""
        return 1 + min(DIRECTIONS, self.prediction.size)

    def seen(self, value: float, gradient: Array) -> Array:
        """The vector of a loss that was run."""
        return np.array([value, *self.directions @ gradient])

    def of(self, loss: Callable[[Array], Any]) -> Array:
        """The vector of a formula."""
        with np.errstate(all="ignore"):
            found = [loss(self.prediction + 1j * STEP * way) for way in self.directions]
        return np.array([np.real(found[0]), *(np.imag(one) / STEP for one in found)], np.float64)

    def apart(self, vector: Array, wanted: Array) -> float:
        """The larger one of the value's and the gradient's relative distance."""
        return distance(self.relative(vector, wanted))

    def relative(self, vector: Array, wanted: Array) -> Array:
        """The difference from a vector, in units of its value and of its gradient's length."""
        value = max(abs(float(wanted[0])), self.least) or 1.0
        slope = float(np.linalg.norm(wanted[1:]))
        if not slope > self.least:  # also where it is no number
            slope = 1.0
        return (vector - wanted) / np.array([value, *[slope] * (len(wanted) - 1)])


def distance(relative: Array) -> float:
    """The larger one of the value's and the gradient's distance."""
    if not np.isfinite(relative).all():
        return np.inf
    return max(float(abs(relative[0])), float(np.linalg.norm(relative[1:])))


@dataclass(frozen=True)
class Part:
    """A term of a loss.

    Attributes:
        name: Of its function; empty where the loss has one term.
        own: What it gives to the whole, as a vector.
        shape: Of what it reduces to one number.
        formula: From all outputs to what it gives to the whole; None where that is not known.
        given: What the formula is given.
        table: What the formula may be given instead.
    """

    name: str
    own: Array
    shape: Shape
    formula: Formula | None = None
    given: Arguments = field(default_factory=dict)
    table: Callable[[Arguments], Iterable[Convention]] = lambda given: ()

    @property
    def subject(self) -> str:
        """What a report says of it."""
        return self.name or "loss"


@dataclass(frozen=True)
class _Bench(Vectors):
    """Formulas in the place of one term, against what the candidate has there."""

    point: Point
    given: Arguments
    wanted: Array

    @property
    def data(self) -> int:
        return self.point.data

    def vector(self, formula: Formula) -> Array:
        return self.point.of(lambda z: formula(np, {**self.given, "z": z}))

    def residual(self, formula: Formula) -> Array:
        return self.point.relative(self.vector(formula), self.wanted)

    def distance(self, residual: Array) -> float:
        return distance(residual)


# Formulas of terms
# -----------------------------------------------------------------------------


def _through(known: Family, view: Path, activation: str, nn: Any, given: Arguments) -> Any:
    """A formula of the network's outputs: of a view of them, after a function."""
    z = given.get("activation", ACTIVATIONS[activation])(view(given["z"]))
    return given.get("factor", 1.0) * known.formula(nn, {**given, "z": z})


def _table(known: Family, activation: str, given: Arguments) -> Iterator[Convention]:
    """Conventions of a family, and other functions before it."""
    yield from known.table(given)
    if np.ndim(given.get("target", 0)) != 1:  # they go along the second axis
        yield values("activation", dict(_activations(activation)))


def _activations(usual: str) -> Iterator[tuple[str, Path]]:
    """Other functions before the loss."""
    for name, other in ACTIVATIONS.items():
        words = f"{name} instead of {usual}"
        if not usual:
            words = f"{name} of the scores first ({name} twice, where the loss has its own)"
        elif not name:
            words = f"{usual} missing: of the scores"
        if name != usual:
            yield words, other
    if usual:
        own = ACTIVATIONS[usual]
        yield f"{usual} twice", partial(_then, own, own)


def _recognised(known: Family, view: Path, point: Point, part: Part) -> Part | None:
    """The term with the settings that give what it gave, up to a factor; None where none do."""
    formula = partial(_through, known, view, "")
    bench, table = _Bench(point, known.given, part.own), partial(_table, known, "")
    _, fixed = divided(table(known.given))
    for trial in (Trial("", 0.0), *run(fixed, bench, formula)):
        factor = _factor(point, bench.vector(combined(trial.choices, formula)), part.own)
        if factor is not None:
            given = combined(trial.choices, _given)(np, {**known.given, "factor": factor})
            return replace(part, formula=formula, given=given, table=table)
    return None


def _given(nn: Any, given: Arguments) -> Arguments:
    return given


def _factor(point: Point, vector: Array, wanted: Array) -> float | None:
    """The number that a vector has to be multiplied by; None where none will do."""
    factor, slope = 1.0, vector[1:]
    if np.isfinite(vector).all() and slope.any():
        factor = float(slope @ wanted[1:] / (slope @ slope))
    is_met = point.apart(factor * vector, wanted) <= MATCH
    return factor if factor and is_met else None


# Factors and constants
# -----------------------------------------------------------------------------


def _relations(point: Point, part: Part, wanted: Array) -> Iterator[Trial]:
    """What a value and a gradient show without a formula: factors that somebody may have written."""
    value, slope = part.own[:1], part.own[1:]
    square = float(slope @ slope)
    if not square:
        return

    def trial(words: str, value: Array, slope: Array) -> Trial:
        return Trial(words, point.apart(np.append(value, slope), wanted))

    ratio = float(slope @ wanted[1:]) / square
    said = factor_in_words(ratio, sizes_in_words(part.shape))
    if said is not None and abs(ratio) > LIMIT:
        words, factor = said
        yield trial(f"{part.subject} {words}", factor * value, factor * slope)
        alone = f"gradient of the loss {words}, its value as it should be"
        yield trial(alone, value, factor * slope)
    yield trial(f"{part.subject} without a gradient (detached)", value, 0.0 * slope)
    shift = tidy(float(wanted[0] - value[0]))
    words = f"loss plus {shift:.6g}, which does not depend on the prediction"
    yield trial(words, value + shift, slope)


def factor_in_words(factor: float, names: Mapping[str, float]) -> tuple[str, float] | None:
    """Return ``("times 0.5", 0.5)``; None for a number that nobody would write.

    Example:
        >>> factor_in_words(0.30000000000000004, {}), factor_in_words(0.9134731, {})
        (('times 0.3', 0.3), None)
    """
    known = [word for word, value in names.items() if abs(factor / value - 1.0) <= 1e-9]
    written = tidy(factor)
    if known:
        return f"times {written:.6g} ({', or '.join(known[:2])})", written
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


# One term
# -----------------------------------------------------------------------------


def _explained(
    parts: Sequence[Part], point: Point, usual: Array, wanted: Array
) -> Explanation | None:
    """The first way in which a term, or the weight of each term, explains the whole."""
    apart = point.apart(usual, wanted)
    if apart <= LIMIT:
        return None
    places = [_Place(part, point, wanted - usual + part.own, len(parts) > 1) for part in parts]
    trials = until_met(
        *(place.plain() for place in places),
        *(_relations(point, place.part, place.left) for place in places),
        _weights_of_terms(parts, point, usual, wanted),
        *(place.numbers() for place in places),
    )
    return _nearest(trials, apart) or _unknown(usual, wanted)


class _Place:
    """What one term may be instead while all others are right."""

    def __init__(self, part: Part, point: Point, left: Array, is_named: bool) -> None:
        self.part, self.point, self.left = part, point, left
        self.start = f"{part.subject}: " if is_named else ""
        self.bench = _Bench(point, part.given, left)
        self.free, self.without_number = divided(part.table(part.given))

    def plain(self) -> Iterator[Trial]:
        """One convention without a number; of those that fit, with the factor that they come to."""
        met = [trial for trial in self.fixed if trial.is_met]
        if met:
            yield Trial(self._causes(met), min(trial.distance for trial in met))
        for trial in self.fixed:
            if not trial.is_met:
                yield replace(trial, cause=self.start + trial.cause)

    def _causes(self, met: Sequence[Trial]) -> str:
        """All that fit equally; the plainest one, a factor, first."""
        said = ", or ".join(list(dict.fromkeys(trial.cause for trial in met))[:_CAUSES])
        factor = _factor(self.point, self.part.own, self.left)
        if factor is None:
            return f"{self.start}{said}"
        return f"{self.part.subject} times {tidy(factor):.6g} ({said})"

    def numbers(self) -> Iterator[Trial]:
        """One number that is searched for."""
        for trial in self._run(self.free):
            yield replace(trial, cause=self.start + trial.cause)

    @cached_property
    def fixed(self) -> list[Trial]:
        """Each convention without a number, executed."""
        return self._run(self.without_number)

    @property
    def _formula(self) -> Formula:
        assert self.part.formula is not None
        return self.part.formula

    def _run(self, conventions: Sequence[Convention]) -> list[Trial]:
        return list(run(conventions, self.bench, self._formula)) if conventions else []


def _nearest(trials: Sequence[Trial], apart: float) -> Explanation | None:
    """The nearest trial; None where none comes much nearer than the reference itself.

    Of causes that match as well, the first ones are the simpler ones.
    """
    best = min(trials, key=lambda trial: max(trial.distance, EXACT), default=None)
    if best is None or best.distance > max(_NEAR * apart, EXACT):
        return None
    others = [trial.distance for trial in trials if trial.distance > max(best.distance, EXACT)]
    return Explanation(best.cause, best.distance, min([*others, apart]))


def _unknown(usual: Array, wanted: Array) -> Explanation:
    """What there is to look at where nothing fits: both values, both gradients."""
    said = f"the loss is {wanted[0]:.6g} instead of {usual[0]:.6g}"
    one, two = np.linalg.norm(usual[1:]), np.linalg.norm(wanted[1:])
    if one and two:
        cosine = float(usual[1:] @ wanted[1:]) / (one * two)
        said += f", its gradient {two / one:.4g} times as long, with a cosine of {cosine:.4f}"
    return Explanation(said, np.inf)


# Several terms
# -----------------------------------------------------------------------------


def explain(loss: Composition) -> Explanation | None:
    """The most likely cause of another loss function; None where both agree."""
    if not np.isfinite(loss.candidate.value):
        return Explanation.seen("overflow or an undefined operation: the loss is not finite")
    if (penalty := _penalty(loss)) is not None:
        return penalty
    short = types.explain(loss.reference.numbers, loss.candidate.numbers)
    if short is not None:
        return short
    point = Point(_joined(loss, loss.outputs))
    totals = (loss.reference, loss.candidate)
    usual, wanted = (point.seen(one.value, _joined(loss, one.outputs)) for one in totals)
    point.least = _ROUNDING * float(max(np.linalg.norm(usual[1:]), abs(usual[0])))
    return _explained(list(_parts(loss, point, usual)), point, usual, wanted)


def _joined(loss: Composition, gradients: Arrays) -> Array:
    return np.concatenate([gradients[name].ravel() for name in loss.outputs])


def _parts(loss: Composition, point: Point, usual: Array) -> Iterator[Part]:
    """The terms of a loss, and what is left of it beside them; each with its formula if known."""
    left, found = usual, []
    for term in loss.terms:
        part = _part(loss, point, term)
        if part is not None:
            found.append(part)
            left = left - part.own
    if not found or point.apart(usual - left, usual) > MATCH:
        shape = next(iter(loss.outputs.values())).shape
        found.append(Part("the rest of the loss", left, shape))
    if len(found) == 1:
        found = [replace(found[0], name="")]
    for part in found:
        if part.formula is None:
            part = _native(loss, point, part)
        yield part


def _part(loss: Composition, point: Point, term: Term) -> Part | None:
    """A term with the formula that gives what it gave; None where nothing is known of it."""
    own = None
    if term.outputs is not None:
        own = point.seen(term.factor * term.output, _joined(loss, term.outputs))
    found = None
    if len(term.settings) > 1:
        prediction, target = map(np.asarray, list(term.settings.values())[:2])
        known = family(prediction, target, term.settings, term.name)
        if known is not None:
            found = _of_family(known, point, term, _ways(loss, prediction), own)
    if found is not None or own is None:
        return found
    return Part(f"{term.name}() of {term.shape}", own, term.shape)


def _of_family(
    known: Family,
    point: Point,
    term: Term,
    ways: Iterable[tuple[str, Path]],
    own: Array | None,
) -> Part | None:
    """A term with the formula of its family, of the view and function that give what it gave."""
    given = {**known.given, "factor": term.factor}
    for activation, view in ways:
        formula = partial(_through, known, view, activation)
        made = _Bench(point, given, point.prediction).vector(formula)
        wanted = np.append(term.factor * term.output, made[1:]) if own is None else own
        if point.apart(made, wanted) <= MATCH:
            table = partial(_table, known, activation)
            return Part(term.name, made, term.shape, formula, given, table)
    return None


def _native(loss: Composition, point: Point, part: Part) -> Part:
    """A term that is no function of `nn`, with the formula that gives the reference's numbers."""
    for output, whole in _outputs(loss):
        for target, view in product(loss.targets, (_unchanged, _classes_last, np.ravel)):
            given = view(output)
            truth = target.reshape(given.shape) if target.size == given.size else target
            known = family(given, truth, {})
            if known is not None and truth.shape in (
                given.shape,
                given.shape[:1] + given.shape[2:],
            ):
                found = _recognised(known, partial(_then, view, whole), point, part)
                if found is not None:
                    return found
    return part


def _unchanged(z: Array) -> Array:
    return z


def _classes_last(z: Array) -> Array:
    return np.moveaxis(z, -1, min(1, z.ndim - 1))


def _then(second: Path, first: Path, z: Array) -> Array:
    return second(first(z))


def _ways(loss: Composition, given: Array) -> Iterator[tuple[str, Path]]:
    """The ways in which the network's output becomes the input of a function.

    The output is taken whole or in part, with an activation or without.
    """
    flat = _joined(loss, loss.outputs).astype(complex)
    for output, whole in _outputs(loss):
        for name, activation in ACTIVATIONS.items():
            if name and output.ndim < 2:
                continue
            with np.errstate(all="ignore"):
                made = activation(output.astype(complex)).real
            for view in _ranges(made, given):
                path = partial(_then, view, whole)
                if relative_difference(given, activation(path(flat)).real) <= LIMIT:
                    yield name, path


def _outputs(loss: Composition) -> Iterator[tuple[Array, Path]]:
    """Each output, with the path to it from all outputs in a row."""
    start = 0
    for output in loss.outputs.values():
        yield output, partial(_whole, start, output.shape)
        start += output.size


def _whole(start: int, shape: Shape, z: Array) -> Array:
    return z[start : start + int(np.prod(shape))].reshape(shape)


def _ranges(whole: Array, given: Array) -> Iterator[Path]:
    """Views of the output that equal a given array, found by comparing values."""
    if whole.size == given.size:
        yield lambda x: x.reshape(given.shape)
    if whole.ndim != given.ndim:
        return
    axes = np.flatnonzero(np.not_equal(whole.shape, given.shape))
    if len(axes) != 1:
        return
    axis = int(axes[0])
    for start in range(whole.shape[axis] - given.shape[axis] + 1):
        index = (*(slice(None),) * axis, slice(start, start + given.shape[axis]))
        if relative_difference(given, whole[index]) <= LIMIT:
            yield itemgetter(index)


def _weights_of_terms(
    parts: Sequence[Part], point: Point, usual: Array, wanted: Array
) -> Iterator[Trial]:
    """Other weights of the terms: zero, half, or all scaled."""
    if not 1 < len(parts) < point.data - 1:
        return
    terms = np.stack([part.own for part in parts], 1)
    rest = usual - terms.sum(1)
    matrix = point.relative(terms.T + wanted, wanted).T
    factors, *_ = np.linalg.lstsq(matrix, point.relative(2 * wanted - rest, wanted), rcond=1e-12)
    words = list(map(_weight, parts, factors))
    if None not in words:
        cause = "; ".join(filter(None, words))
        yield Trial(cause, point.apart(rest + terms @ factors, wanted))


def _weight(part: Part, factor: float) -> str | None:
    """Empty where it is as it should be, None for a number that nobody would write."""
    if abs(factor - 1.0) <= 1e-9:
        return ""
    if abs(factor) <= 1e-9:
        return f"{part.name} left out (weight 0)"
    words = factor_in_words(factor, sizes_in_words(part.shape))
    return None if words is None else f"weight of {part.name} {words[0]}"


def _penalty(loss: Composition) -> Explanation | None:
    """A term of the parameters alone: their squares."""
    mine, theirs = loss.reference, loss.candidate
    if compare(mine.outputs, theirs.outputs).difference > LIMIT:
        return None
    apart_by = differences(mine.parameters, theirs.parameters)
    names = [name for name, difference in apart_by.items() if difference > LIMIT]
    right, wrong = _flat(mine.parameters, names), _flat(theirs.parameters, names)
    weights = _flat(loss.parameters, names)
    if not names or right is None or wrong is None or weights is None:
        return None
    square = float(weights @ weights) or 1.0
    factor = float(f"{0.5 * ((wrong - right) @ weights) / square:.6g}")
    added = np.append(wrong - right, theirs.value - mine.value)
    away = relative_difference(added, factor * np.append(2.0 * weights, square))
    cause = f"a penalty on {', '.join(names)} added: {factor:g} times their squares"
    return Explanation(cause, away) if away <= MATCH else None


def _flat(parameters: Mapping[str, Array | None], names: Sequence[str]) -> Array | None:
    """Some parameters in a row; None where one is absent."""
    arrays = [np.zeros(0)]
    for name in names:
        array = parameters.get(name)
        if array is None:
            return None
        arrays.append(np.ravel(array))
    return np.concatenate(arrays)
