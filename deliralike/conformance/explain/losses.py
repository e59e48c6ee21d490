"""Why a loss differs: its known formulas are executed on the network's outputs and the targets.

The whole loss is known on both sides: its value, and its gradient with respect to the network's
outputs. A sum of several functions is taken apart into its terms; what the candidate has in the
place of one term is what is left when all the others are subtracted. A reference whose functions
are not known (one of a framework's own) is recognised first, by the same formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike.conformance.agreement import compare, differences, relative_difference
from deliralike.conformance.explain import types
from deliralike.conformance.explain.conventions import (
    EXACT,
    LOG,
    Changes,
    Convention,
    Trial,
    explanation,
    search,
    shown,
    tidy,
)
from deliralike.conformance.explain.loss_table import ACTIVATIONS, Family, family
from deliralike.conformance.explain.relations import rounded
from deliralike.conformance.findings import LIMIT, MATCH, Explanation

Array = np.ndarray
Path = Callable[[Array], Array]

STEP = 1e-30  # f(x + ih d) = f(x) + ih f'(x) d: derivatives without cancellation
DIRECTIONS = 8
_ROUNDING = 1e-7  # of the whole loss: a term that is smaller is known to eight digits no more
_FEW = 3  # digits of a factor that somebody may have written


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
    outputs: Mapping[str, Array]
    parameters: Mapping[str, Array | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Term:
    """A call of a function of `nn` within the reference's loss.

    Attributes:
        name: ``"dice_loss"``.
        settings: Its arguments by name: NumPy arrays and plain values; the first is the prediction.
        output: What it gave.
        factor: The derivative of the whole loss with respect to that.
    """

    name: str
    settings: Mapping[str, Any]
    output: float
    factor: float


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

    outputs: Mapping[str, Array]
    parameters: Mapping[str, Array]
    terms: tuple[Term, ...]
    reference: Total
    candidate: Total
    targets: tuple[Array, ...] = ()


# Losses as vectors
# -----------------------------------------------------------------------------


class Point:
    """Losses at one prediction as vectors: the value, then derivatives along fixed directions.

    Args:
        prediction: All outputs in a row, or one array.
        with_gradient: Whether gradients are known.
        least: What is smaller is rounding.
    """

    def __init__(self, prediction: Array, with_gradient: bool = True) -> None:
        generator = np.random.default_rng(0)
        self.prediction, self.least = prediction, 0.0
        count = DIRECTIONS if with_gradient else 0
        self.directions = [generator.standard_normal(prediction.shape) for _ in range(count)]

    @property
    def data(self) -> int:
        """How many independent numbers a vector holds."""
        return 1 + min(len(self.directions), self.prediction.size)

    def seen(self, value: float, gradient: Array | None) -> Array:
        """The vector of a loss that was run."""
        given = 0.0 if gradient is None else gradient
        slopes = [float((given * direction).sum()) for direction in self.directions]
        return np.array([float(value), *slopes])

    def of(self, loss: Callable[[Array], Any]) -> Array:
        """The vector of a formula."""
        if not self.directions:
            return np.array([float(np.real(loss(self.prediction.astype(complex))))])
        found = [loss(self.prediction + 1j * STEP * direction) for direction in self.directions]
        return np.array([np.real(found[0]), *(np.imag(one) / STEP for one in found)], np.float64)

    def sizes(self, wanted: Array) -> Array:
        """What makes numbers of size one of a vector."""
        value = max(abs(float(wanted[0])), self.least) or 1.0
        slope = float(np.linalg.norm(wanted[1:])) or 1.0
        slope = slope if slope > self.least else 1.0
        return np.array([value, *[slope] * (len(wanted) - 1)])


def apart(residual: Array) -> float:
    """The larger one of the value's and the gradient's relative distance."""
    if not np.isfinite(residual).all():
        return np.inf
    return max(float(abs(residual[0])), float(np.linalg.norm(residual[1:])))


@dataclass(frozen=True)
class Part:
    """A term of a loss: a family of formulas, and the way from the network's outputs to it.

    Attributes:
        name: Of the function; empty where the loss has one term.
        family: With the reference's settings.
        view: From all outputs to what the activation is given.
        activation: The name of the function before the loss; empty for none.
        factor: Of this term in the whole.
    """

    name: str
    family: Family
    view: Path
    activation: str = ""
    factor: float = 1.0

    def vector(self, point: Point, changes: Changes) -> Array:
        """The term under other settings.

        Some are of every family: `activation` before the formula; a `factor` of all, a `slope` of
        the gradient alone, a `shift` of the value.
        """
        settings = {**self.family.usual, **changes}
        activation = settings.pop("activation", ACTIVATIONS[self.activation])
        if "temperature" in settings:
            activation = partial(_divided, activation, settings.pop("temperature"))
        if "most" in settings:
            activation = partial(_clipped, activation, settings.pop("most"))
        numbers = {name: settings.pop(name) for name in _NUMBERS if name in settings}
        with np.errstate(all="ignore"):
            found = point.of(lambda z: self.family.formula(activation(self.view(z)), **settings))
        return _adjusted(found, **numbers)

    @property
    def conventions(self) -> list[Convention]:
        """Those of its family, and other functions before it."""
        return [*self.family.table(self.family.usual), *_activations(self.activation)]


_NUMBERS = ("factor", "slope", "shift")


def _adjusted(vector: Array, factor: float = 1.0, slope: float = 1.0, shift: float = 0.0) -> Array:
    """The vector of a loss that is multiplied, in its gradient alone too, and moved."""
    return np.append(factor * vector[:1] + shift, factor * slope * vector[1:])


@dataclass(frozen=True)
class _Whole(Part):
    """A loss of which nothing is known but what it gave."""

    given: Array = field(default_factory=lambda: np.zeros(0))

    def vector(self, point: Point, changes: Changes) -> Array:
        return _adjusted(self.given[: len(point.directions) + 1], **changes)

    @property
    def conventions(self) -> list[Convention]:
        return []


def _divided(activation: Path, temperature: float, z: Array) -> Array:
    return activation(z / temperature)


def _clipped(activation: Path, most: float, z: Array) -> Array:
    return activation(np.where(np.abs(z.real) > most, np.sign(z.real) * most, z))


@dataclass(frozen=True)
class _Judge:
    """One term against what the candidate has in its place.

    Attributes:
        only: The half that is compared, where the other half is the reference's: from
            one place of the vector to another.
    """

    part: Part
    point: Point
    wanted: Array
    usual: Array
    only: tuple[int, int | None] = (0, None)

    @property
    def data(self) -> int:
        return self.point.data

    def residual(self, changes: Changes) -> Array:
        made = self.usual.copy()
        half = slice(*self.only)
        made[half] = self.part.vector(self.point, changes)[half]
        return (made - self.wanted) / self.point.sizes(self.wanted)

    def distance(self, residual: Array) -> float:
        return apart(residual)

    def bound(self, changes: Changes) -> float:
        if self.only[0]:
            return 0.0
        value = self.part.vector(self.value, changes)[0]
        away = abs(value - self.wanted[0]) / self.point.sizes(self.wanted)[0]
        return away if np.isfinite(away) else np.inf

    @cached_property
    def value(self) -> Point:
        """The point without gradients."""
        return Point(self.point.prediction, with_gradient=False)


# Conventions of every loss
# -----------------------------------------------------------------------------


def _activations(usual: str) -> Iterator[Convention]:
    """Other functions before the loss, and scores that were scaled or rounded."""
    own = ACTIVATIONS[usual]
    for name, other in ACTIVATIONS.items():
        if name == usual:
            continue
        if not usual:
            words = f"{name} of the scores first ({name} twice, where the loss has its own)"
        else:
            words = f"{name} instead of {usual}" if name else f"{usual} missing: of the scores"
        yield Convention(words, {"activation": other})
    if usual:
        yield Convention(f"{usual} twice", {"activation": lambda z: own(own(z))})
    for kind in ("float32", "float16", "bfloat16"):
        short = partial(_rounded, own, kind)
        yield Convention(f"scores rounded to {kind}", {"activation": short})
    scaled = "temperature={} instead of 1 (the scores divided by it)"
    yield Convention(scaled, {}, "temperature", (2.0, 0.5, 4.0), LOG)
    yield Convention("scores clipped to +-{}", {}, "most", (1.0, 5.0, 50.0), LOG)


def _rounded(activation: Path, kind: str, z: Array) -> Array:
    return activation(z + (rounded(z.real, kind) - z.real))


def _gradients(usual: Array, wanted: Array) -> Iterator[Convention]:
    """What becomes of a gradient whose loss is right."""
    if len(usual) < 2:
        return
    yield Convention("loss without a gradient", {"slope": 0.0})
    for slope in (0.5, 2.0):
        yield _of_slope(f"times {slope:g}", slope)


def _of_slope(words: str, slope: float) -> Convention:
    return Convention(f"gradient of the loss {words}, its value as it should be", {"slope": slope})


def _factors(usual: Array, wanted: Array, shape: tuple[int, ...]) -> Iterator[Convention]:
    """Factors that have a name or that somebody may have written; a constant."""
    if len(usual) < 2:
        return
    for words, value in sizes_in_words(shape).items():
        yield Convention(f"loss times {shown(tidy(value))} ({words})", {"factor": value})
    for words, value in {"halved (factor 0.5)": 0.5, "doubled": 2.0, "negated": -1.0}.items():
        yield Convention(words, {"factor": value})
    square = float(usual[1:] @ usual[1:])
    ratio = float(usual[1:] @ wanted[1:]) / square if square else 1.0
    if (written := factor_in_words(ratio, {})) is not None:
        yield Convention(f"loss {written[0]}", {"factor": written[1]})
        yield _of_slope(*written)
    shift = tidy(float(wanted[0] - usual[0]))
    words = f"loss plus {shown(shift)}, which does not depend on the prediction"
    yield Convention(words, {"shift": shift})


def factor_in_words(factor: float, names: Mapping[str, float]) -> tuple[str, float] | None:
    """Return ``("times 0.5", 0.5)``; None for a number that nobody would write.

    Example:
        >>> factor_in_words(0.30000000000000004, {}), factor_in_words(0.9134731, {})
        (('times 0.3', 0.3), None)
    """
    for word, value in names.items():
        if abs(factor - value) <= 1e-9 * abs(value):
            return f"times {shown(tidy(value))} ({word})", value
    written = tidy(factor)
    if _is_short(written):
        return f"times {shown(written)}", written
    if factor and _is_short(inverse := tidy(1.0 / factor), _FEW - 1):
        return f"divided by {shown(inverse)}", 1.0 / inverse
    return None


def _is_short(value: float, digits: int = _FEW) -> bool:
    return math.isfinite(value) and float(f"{value:.{digits - 1}e}") == value


def sizes_in_words(shape: tuple[int, ...]) -> dict[str, float]:
    """Factors that come of a prediction's shape (batch, classes, ...)."""
    counts = {"the batch size": shape[0] if shape else 1}
    counts["the number of elements"] = math.prod(shape)
    if len(shape) > 1:
        counts["the size of axis 1"] = shape[1]
    if len(shape) > 2:
        counts["the number of positions"] = math.prod(shape[2:])
        counts["the number of labels"] = math.prod(shape) // shape[1]
    found: dict[str, float] = {}
    for name, count in counts.items():
        if count > 1:
            found[name] = float(count)
            found[f"1 / {name}"] = 1.0 / count
            found[f"N / (N - 1), N is {name}"] = count / (count - 1)
    return found


# One term
# -----------------------------------------------------------------------------


def explain_loss(
    prediction: Array,
    target: Array,
    reference: tuple[float, Array | None],
    candidate: tuple[float, Array | None],
    settings: Mapping[str, Any] | None = None,
    kind: str = "",
) -> Explanation | None:
    """The most likely cause of another loss.

    Args:
        prediction: What both losses were given.
        target: Whole numbers for classification, floating ones of the prediction's shape for
            regression and binary targets.
        reference, candidate: The value of the loss, and its gradient with respect to the
            prediction; None where it is not known, and then a number that is searched for counts
            only if it has few digits.
        settings: The reference's, as `nn.cross_entropy` and its like take them.
        kind: The function of `nn` that the reference calls, where that is known.

    Returns:
        None where both agree.

    Example:
        >>> z, t = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([1.0, 2.0])
        >>> explain_loss(z[:, 0], t, (0.5 * 2.25, z[:, 0] - t), (2.25, 2 * (z[:, 0] - t))).cause
        'sum instead of mean'
    """
    prediction, target = np.asarray(prediction, np.float64), np.asarray(target)
    point = Point(prediction, candidate[1] is not None)
    usual, wanted = point.seen(*reference), point.seen(*candidate)
    point.least = EXACT * float(np.linalg.norm(usual))
    known = family(prediction, target, settings or {}, kind)
    parts = [] if known is None else [Part("", known, _unchanged)]
    parts = [each for part in parts for each in _recognised(part, point, usual)]
    return _explained(parts, point, usual, wanted)


def _unchanged(z: Array) -> Array:
    return z


_NOTHING = Family(_unchanged, {}, lambda usual: iter(()))


def _recognised(part: Part, point: Point, usual: Array) -> Iterator[Part]:
    """The term with the settings that give what the reference gave; nothing where none do."""
    judge = _Judge(part, point, usual, usual)
    if judge.distance(judge.residual({})) <= MATCH:
        yield part
        return
    met = [trial for trial in search(part.conventions, judge) if trial.distance <= MATCH]
    if met:
        changes = {**part.family.usual, **met[0].changes}
        activation = changes.pop("activation", None)
        view = part.view if activation is None else partial(_then, activation, part.view)
        yield replace(part, family=replace(part.family, usual=changes), view=view)


def _then(activation: Path, view: Path, z: Array) -> Array:
    return activation(view(z))


def _explained(
    parts: Sequence[Part], point: Point, usual: Array, wanted: Array
) -> Explanation | None:
    """The first way in which a term, or the weight of a term, explains the whole."""
    difference = apart((usual - wanted) / point.sizes(wanted))
    if difference <= LIMIT:
        return None
    places = [_Place(part, point, usual, wanted, len(parts) > 1) for part in parts]
    attempts: list[Callable[[], Iterator[Trial]]] = [
        *(place.plain for place in places),
        *(place.halves for place in places),
        lambda: _weights_of_terms(parts, point, usual, wanted),
        *(place.factors for place in places),
        *(place.everything for place in places),
    ]
    trials: list[Trial] = []
    for attempt in attempts:
        trials += attempt()
        if any(trial.distance <= MATCH for trial in trials):
            break
    return explanation(trials, difference) or _unknown(usual, wanted)


class _Place:
    """What one term may be instead while all others are right."""

    def __init__(
        self, part: Part, point: Point, usual: Array, wanted: Array, is_named: bool
    ) -> None:
        self.own = part.vector(point, {})
        self.left = (wanted - usual) / part.factor + self.own
        self.judge = _Judge(part, point, self.left, self.own)
        self.fixed = [one for one in part.conventions if not one.number]
        self.start = f"{part.name}: " if is_named else ""
        self.part, self.point = part, point

    def plain(self) -> Iterator[Trial]:
        """One convention without a number."""
        table = [*_gradients(self.own, self.left), *self.fixed]
        yield from self._named(search(table, self.judge, depth=2))

    def halves(self) -> Iterator[Trial]:
        """The value of one loss with the gradient of another, where one of the two is right."""
        apart_by = (self.left - self.own) / self.point.sizes(self.left)
        if len(apart_by) < 2:
            return
        if abs(apart_by[0]) <= MATCH:
            words = "the value as it should be, the gradient that of"
            yield from self._half(words, (1, None))
        if np.linalg.norm(apart_by[1:]) <= MATCH:
            yield from self._half("the gradient as it should be, the value that of", (0, 1))

    def _half(self, words: str, only: tuple[int, int | None]) -> Iterator[Trial]:
        trials = search(self.fixed, replace(self.judge, only=only), depth=2)
        yield from self._named(replace(each, cause=f"{words}: {each.cause}") for each in trials)

    def factors(self) -> Iterator[Trial]:
        """A factor or a constant."""
        yield from self._named(search(self._factors, self.judge, depth=2))

    @property
    def _factors(self) -> list[Convention]:
        shape = np.shape(self.part.view(self.point.prediction))
        return list(_factors(self.own, self.left, shape))

    def everything(self) -> Iterator[Trial]:
        """Numbers, and two conventions at a time."""
        yield from self._named(search([*self.part.conventions, *self._factors], self.judge))

    def _named(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        for trial in trials:
            yield replace(trial, cause=self.start + trial.cause)


def _unknown(usual: Array, wanted: Array) -> Explanation:
    """What there is to look at where nothing fits: both values, both gradients."""
    said = f"the loss is {wanted[0]:.6g} instead of {usual[0]:.6g}"
    one, two = np.linalg.norm(usual[1:]), np.linalg.norm(wanted[1:])
    if len(usual) > 1 and one and two:
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
    mine, theirs = (
        {"value": np.array([t.value]), **t.outputs} for t in (loss.reference, loss.candidate)
    )
    if (short := types.explain(mine, theirs)) is not None:
        return short
    point = Point(np.concatenate([output.ravel() for output in loss.outputs.values()]))
    usual, wanted = (
        point.seen(total.value, _joined(loss, total)) for total in (loss.reference, loss.candidate)
    )
    point.least = _ROUNDING * float(max(np.linalg.norm(usual[1:]), abs(usual[0])))
    parts = list(_parts(loss, point)) or list(itertools.islice(_native(loss, point, usual), 1))
    first = next(iter(loss.outputs.values()))
    parts = parts or [_Whole("", _NOTHING, partial(_whole, 0, first.shape), given=usual)]
    return _explained(parts, point, usual, wanted)


def _joined(loss: Composition, total: Total) -> Array:
    return np.concatenate([total.outputs[name].ravel() for name in loss.outputs])


def _parts(loss: Composition, point: Point) -> Iterator[Part]:
    """The terms whose formula and input are both known, checked against what they gave."""
    for term in loss.terms:
        prediction, target = (np.asarray(value) for value in list(term.settings.values())[:2])
        known = family(prediction, target, term.settings, term.name)
        if known is None:
            continue
        for activation, view in _ways(loss, prediction):
            part = Part(term.name, known, view, activation, term.factor)
            value = part.vector(point, {})[0]
            if abs(value - term.output) <= MATCH * abs(term.output):
                yield part
                break


def _native(loss: Composition, point: Point, usual: Array) -> Iterator[Part]:
    """A whole loss that is no function of `nn`: the formulas that give the reference's numbers."""
    start = 0
    for output in loss.outputs.values():
        whole = partial(_whole, start, output.shape)
        start += output.size
        for target in loss.targets:
            for view in _views(output, target):
                given = view(output)
                truth = target.reshape(given.shape) if target.size == given.size else target
                known = family(given, truth, {})
                if known is not None:
                    yield from _recognised(
                        Part("", known, partial(_then, view, whole)), point, usual
                    )


def _views(output: Array, target: Array) -> Iterator[Path]:
    """How an output may be read beside a target: classes second or last, or element by element."""
    if output.ndim == target.ndim + 1 and target.dtype.kind in "iu":
        if output.shape[:1] + output.shape[2:] == target.shape:
            yield _unchanged
        if output.shape[:-1] == target.shape:
            yield lambda z: np.moveaxis(z, -1, 1)
    if output.size == target.size:
        yield lambda z: z.reshape(target.shape)


def _ways(loss: Composition, given: Array) -> Iterator[tuple[str, Path]]:
    """The ways in which the network's output becomes the input of a function.

    The output is taken whole or in part, with an activation or without.
    """
    start = 0
    flat = np.concatenate([one.ravel() for one in loss.outputs.values()]).astype(complex)
    for output in loss.outputs.values():
        whole = partial(_whole, start, output.shape)
        for name, activation in ACTIVATIONS.items():
            if name and output.ndim < 2:
                continue
            with np.errstate(all="ignore"):
                made = activation(output.astype(complex)).real
            for view in _ranges(made, given):
                path = partial(_then, view, whole)
                if relative_difference(given, activation(path(flat)).real) <= LIMIT:
                    yield name, path
        start += output.size


def _whole(start: int, shape: tuple[int, ...], z: Array) -> Array:
    return z[start : start + int(np.prod(shape))].reshape(shape)


def _ranges(whole: Array, given: Array) -> Iterator[Path]:
    """Views of the output that equal a given array, found by comparing values."""
    if whole.size == given.size:
        yield lambda x: x.reshape(given.shape)
    if whole.ndim != given.ndim:
        return
    differing = [i for i in range(whole.ndim) if whole.shape[i] != given.shape[i]]
    if len(differing) != 1:
        return
    axis = differing[0]
    for start in range(whole.shape[axis] - given.shape[axis] + 1):
        index = (*(slice(None),) * axis, slice(start, start + given.shape[axis]))
        if relative_difference(given, whole[index]) <= LIMIT:
            yield partial(_part_of, index)


def _part_of(index: tuple[slice, ...], array: Array) -> Array:
    return array[index]


def _weights_of_terms(
    parts: Sequence[Part], point: Point, usual: Array, wanted: Array
) -> Iterator[Trial]:
    """Other weights of the terms: zero, half, or all scaled; also of their gradients alone."""
    if not 1 < len(parts) < point.data - 1:
        return
    scale = point.sizes(wanted)
    terms = np.stack([part.vector(point, {}) * part.factor for part in parts], 1)
    rest = usual - terms.sum(1)
    for rows, about in ((slice(0, None), "weight of "), (slice(1, None), "gradient of ")):
        matrix, target = (terms / scale[:, None])[rows], ((wanted - rest) / scale)[rows]
        if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
            return
        factors, *_ = np.linalg.lstsq(matrix, target, rcond=1e-12)
        words = [_weight(about, *pair) for pair in zip(parts, factors, strict=True)]
        if None in words:
            continue
        made = rest + terms @ factors
        if rows.start:
            made[0] = usual[0]
            words.append("the value as it should be")
        cause = "; ".join(word for word in words if word)
        yield Trial(cause, {}, apart((made - wanted) / scale))


def _weight(about: str, part: Part, factor: float) -> str | None:
    """Empty where it is as it should be, None for a number that nobody would write."""
    if abs(factor - 1.0) <= 1e-9:
        return ""
    if abs(factor) <= 1e-9:
        return f"{part.name} left out (weight 0)"
    words = factor_in_words(factor, {})
    return None if words is None else f"{about}{part.name} {words[0]}"


def _penalty(loss: Composition) -> Explanation | None:
    """A term of the parameters alone: their squares or sizes."""
    mine, theirs = loss.reference, loss.candidate
    if compare(mine.outputs, theirs.outputs).difference > LIMIT:
        return None
    apart_by = differences(mine.parameters, theirs.parameters)
    names = [name for name, difference in apart_by.items() if difference > LIMIT]
    if not names or any(_absent(total, name) for total in (mine, theirs) for name in names):
        return None
    added = _flat([theirs.parameters[name] for name in names])
    added = added - _flat([mine.parameters[name] for name in names])
    weights, more = _flat([loss.parameters[name] for name in names]), theirs.value - mine.value
    length = float(np.linalg.norm(weights))
    forms = {
        "squares": (length**2, 2.0 * weights),
        "sizes": (np.abs(weights).sum(), np.sign(weights)),
        "root of their sum of squares": (length, weights / length),
    }
    for words, (value, slope) in forms.items():
        factor = float(f"{added @ slope / (slope @ slope):.6g}")
        made = np.append(factor * slope, factor * value)
        away = relative_difference(np.append(added, more), made)
        if away <= MATCH:
            cause = f"a penalty on {', '.join(names)} added: {factor:g} times their {words}"
            return Explanation(cause, away)
    return None


def _absent(total: Total, name: str) -> bool:
    return total.parameters.get(name) is None


def _flat(arrays: Sequence[Array | None]) -> Array:
    return np.concatenate([np.ravel(np.asarray(array)) for array in arrays])
