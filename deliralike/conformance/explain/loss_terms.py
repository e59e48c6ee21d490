"""Why a loss that is a sum of functions differs: which term differs, and how.

The whole loss is known on both sides: its value, and its gradient with respect to the network's
output. The reference's is taken apart into its terms, each a formula of the network's output; so
what the candidate has in the place of one term is what is left when all the others are subtracted,
however the candidate computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.explain import types
from deliralike.conformance.explain.loss_elements import bce, focal, sigmoid
from deliralike.conformance.explain.loss_judge import (
    Found,
    Judge,
    Known,
    Loss,
    factor_in_words,
    scaled,
    sizes_in_words,
    tried,
)
from deliralike.conformance.explain.loss_labels import Labels, cross_entropy, log_softmax
from deliralike.conformance.explain.loss_overlaps import dice, tversky
from deliralike.conformance.explain.losses import (
    between,
    conventions,
    gradient_scaled,
    halves,
    nearest,
)
from deliralike.conformance.explain.relations import rounded
from deliralike.conformance.explain.variant import number
from deliralike.conformance.findings import LIMIT, MATCH, Explanation

Array = np.ndarray
Path = Callable[[Array], Array]

_ROUNDING = 1e-7  # of the whole loss: a term that is smaller is known to eight digits no more


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
    """

    outputs: Mapping[str, Array]
    parameters: Mapping[str, Array]
    terms: tuple[Term, ...]
    reference: Total
    candidate: Total


def explain(loss: Composition) -> Explanation | None:
    """The most likely cause; None where both agree or nothing can be said."""
    if not np.isfinite(loss.candidate.value):
        return Explanation("overflow or an undefined operation: the loss is not finite", 0.0)
    if (penalty := _penalty(loss)) is not None:
        return penalty
    mine, theirs = (
        {"value": np.array([t.value]), **t.outputs} for t in (loss.reference, loss.candidate)
    )
    if (short := types.explain(mine, theirs)) is not None:
        return short
    point = np.concatenate([output.ravel() for output in loss.outputs.values()])
    judge = Judge(point)
    usual, wanted = (
        judge.seen(t.value, _joined(loss, t)) for t in (loss.reference, loss.candidate)
    )
    judge.least = _ROUNDING * float(max(np.linalg.norm(usual[1:]), abs(usual[0])))
    apart = judge.distance(usual, wanted)
    if apart <= LIMIT:
        return None
    return nearest(_candidates(judge, list(_parts(loss, judge)), usual, wanted), apart)


def _joined(loss: Composition, total: Total) -> Array:
    return np.concatenate([total.outputs[name].ravel() for name in loss.outputs])


# Terms as formulas of the network's output
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A term with its formula, its input as a function of the network's output, and its vector."""

    term: Term
    loss: Loss
    activation: str
    view: Path
    vector: Array

    @property
    def path(self) -> Path:
        """From the network's output to what the function is given."""
        return lambda z: ACTIVATIONS[self.activation](self.view(z))


ACTIVATIONS: dict[str, Path] = {
    "": lambda x: x,
    "softmax": lambda x: np.exp(log_softmax(x)),
    "sigmoid": sigmoid,
    "log_softmax": log_softmax,
}


def _parts(loss: Composition, judge: Judge) -> Iterator[_Part]:
    """Yield the terms whose formula and input are both known.

    They are checked against the value that the function returned.
    """
    for term in loss.terms:
        prediction, target = list(term.settings.values())[:2]
        formula = usual(term.name, np.asarray(target), term.settings)
        if formula is None:
            continue
        for activation, view in _ways(loss, np.asarray(prediction)):
            part = _Part(term, formula, activation, view, np.zeros(0))
            vector = judge.of(lambda z, part=part: part.loss(part.path(z)))  # type: ignore[misc]
            if abs(vector[0] - term.output) <= MATCH * abs(term.output):
                yield _Part(term, formula, activation, view, vector)
                break


def _ways(loss: Composition, given: Array) -> Iterator[tuple[str, Path]]:
    """Yield the ways in which the network's output becomes the input of a function.

    The output is taken whole or in part, with an activation or without.
    """
    start = 0
    for output in loss.outputs.values():
        whole = partial(_whole, start, output.shape)
        flat = np.concatenate([one.ravel() for one in loss.outputs.values()])
        for name, activation in ACTIVATIONS.items():
            with np.errstate(all="ignore"):
                made = (
                    activation(output.astype(complex)).real if output.ndim > 1 or not name else None
                )
            if made is None:
                continue
            for view in _ranges(made, given):
                path = lambda z, view=view, whole=whole: view(whole(z))  # noqa: E731
                if relative_difference(given, activation(path(flat.astype(complex))).real) <= LIMIT:
                    yield name, path
        start += output.size


def _whole(start: int, shape: tuple[int, ...], z: Array) -> Array:
    return z[start : start + int(np.prod(shape))].reshape(shape)


def _ranges(whole: Array, given: Array) -> Iterator[Path]:
    """Yield views of the output that equal a given array, found by comparing values."""
    if whole.shape == given.shape:
        yield lambda x: x
    elif whole.size == given.size:
        yield lambda x: x.reshape(given.shape)
    if (
        whole.ndim == given.ndim
        and sum(a != b for a, b in zip(whole.shape, given.shape, strict=True)) == 1
    ):
        axis = next(i for i in range(whole.ndim) if whole.shape[i] != given.shape[i])
        for start in range(whole.shape[axis] - given.shape[axis] + 1):
            index = (*(slice(None),) * axis, slice(start, start + given.shape[axis]))
            if relative_difference(given, whole[index]) <= LIMIT:
                yield partial(_at, index=index)


def _at(array: Array, index: tuple[Any, ...]) -> Array:
    return array[index]


def usual(name: str, target: Array, settings: Mapping[str, Any]) -> Loss | None:
    """The formula of a function of `nn` with its settings; None for one that is not known."""
    if settings.get("reduction", "mean") not in ("mean", "sum"):
        return None
    reduce: Callable[..., Any] = np.sum if settings.get("reduction") == "sum" else np.mean
    truth = target.astype(np.float64)
    if name in ("cross_entropy", "focal_loss"):
        divisor = "one" if reduce is np.sum else "weights"
        focus = float(settings.get("gamma", 0.0)) if name == "focal_loss" else 0.0
        return lambda z: cross_entropy(
            z, Labels.of(z, target, settings), divisor=divisor, focus=focus
        )
    if name == "bce_with_logits":
        positive, weight = (_or_one(settings.get(key)) for key in ("pos_weight", "weight"))
        return lambda z: reduce(bce(z, truth, positive) * weight)
    if name == "binary_focal_loss":
        alpha = settings.get("alpha")
        share = 1.0 if alpha is None else alpha * truth + (1.0 - alpha) * (1.0 - truth)
        return lambda z: reduce(focal(z, truth, float(settings["gamma"])) * share)
    if name == "mse_loss":
        return lambda x: reduce((x - truth) ** 2)
    if name == "l1_loss":
        return lambda x: reduce(np.where(x.real < truth, truth - x, x - truth))
    smooth, start = (
        float(settings.get("smooth", 0.0)),
        0 if settings.get("include_background", True) else 1,
    )
    if name == "dice_loss":
        return lambda p: reduce(1.0 - dice(p, truth, smooth, background=not start))
    if name == "tversky_loss":
        alpha, beta, gamma = (float(settings[key]) for key in ("alpha", "beta", "gamma"))
        return lambda p: reduce(
            (1.0 - tversky(p[:, start:], truth[:, start:], alpha, beta, smooth)) ** gamma
        )
    return None


def _or_one(value: Any) -> Any:
    return 1.0 if value is None else np.asarray(value, np.float64)


# What the candidate may have instead
# -----------------------------------------------------------------------------


def _candidates(judge: Judge, parts: list[_Part], usual_total: Array, wanted: Array) -> Found:
    """Yield conventions without free numbers first, then factors of the terms, then fitted numbers."""
    places = [(part, (wanted - usual_total) / part.term.factor + part.vector) for part in parts]
    fixed, free = (
        {id(part): [one for one in _known(part) if one.is_free == is_free] for part in parts}
        for is_free in (False, True)
    )
    for part, left in places:
        for one in fixed[id(part)]:
            yield from _named(part, parts, tried(judge, one, left))
    for part, left in places:
        name = part.term.name if len(parts) > 1 else "loss"
        yield from gradient_scaled(judge, part.vector, left, name, plain_ones=False)
        yield from _named(part, parts, halves(judge, fixed[id(part)], part.vector, left))
    yield from _factors(judge, parts, usual_total, wanted)
    for part, left in places:
        yield from between(judge, part.vector, left, part.term.name if len(parts) > 1 else "loss")
    if not parts:
        yield from between(judge, usual_total, wanted)
    for part, left in places:
        for one in free[id(part)]:
            yield from _named(part, parts, tried(judge, one, left))
    names = sizes_in_words(judge.point.shape)
    for part, left in places:
        for one in fixed[id(part)]:
            yield from _named(
                part, parts, scaled(judge, judge.of(one.loss), left, one.cause, names, False)
            )


def _named(part: _Part, parts: list[_Part], found: Found) -> Found:
    """Causes with the name of the term where there are several."""
    for cause, away in found:
        yield f"{part.term.name}: {cause}" if len(parts) > 1 else cause, away


def _known(part: _Part) -> Iterator[Known]:
    """Conventions of a term's function, and other ways from the network's output to it."""
    prediction, target = (np.asarray(value) for value in list(part.term.settings.values())[:2])
    for one in conventions(prediction, target, part.term.settings, part.term.name):
        yield one.of(part.path)
    for other, activation in ACTIVATIONS.items():
        if part.activation in ("softmax", "sigmoid") and other != part.activation:
            words = (
                f"{other} instead of {part.activation}"
                if other
                else f"{part.activation} missing: of the scores"
            )
            yield Known(words, lambda z, activation=activation: part.loss(activation(part.view(z))))
    if part.activation:
        yield Known(
            f"{part.activation} twice",
            lambda z: part.loss(ACTIVATIONS[part.activation](part.path(z))),
        )
    yield from _short(part)


def _short(part: _Part) -> Iterator[Known]:
    """What is given in a shorter type; the arithmetic is not."""
    for kind in ("float32", "float16", "bfloat16"):
        yield Known(
            f"scores rounded to {kind}", lambda z, kind=kind: part.loss(part.path(_to(z, kind)))
        )
        for name, value in list(part.term.settings.items())[1:]:
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                settings = {**part.term.settings, name: rounded(value, kind)}
                target = np.asarray(list(settings.values())[1])
                if (loss := usual(part.term.name, target, settings)) is not None:
                    yield Known(f"{name} rounded to {kind}", loss).of(part.path)


def _to(z: Array, kind: str) -> Array:
    return z + (rounded(z.real, kind) - z.real)


def _factors(judge: Judge, parts: list[_Part], usual_total: Array, wanted: Array) -> Found:
    """Yield other weights of the terms: zero, half, or all scaled; also of the gradients alone."""
    if not 1 < len(parts) < len(wanted) - 1:
        return
    scale = judge.sizes(wanted)
    terms = np.stack([part.vector * part.term.factor for part in parts], 1)
    rest = usual_total - terms.sum(1)
    names = {k: v for k, v in sizes_in_words(judge.point.shape).items() if "the" not in k}
    for rows, about in ((slice(0, None), ""), (slice(1, None), "gradient of ")):
        matrix, target = (terms / scale[:, None])[rows], ((wanted - rest) / scale)[rows]
        if not np.isfinite(matrix).all() or not np.isfinite(target).all():
            return
        factors, *_ = np.linalg.lstsq(matrix, target, rcond=1e-12)
        words = [
            _factor(part.term.name, float(factor), names)
            for part, factor in zip(parts, factors, strict=True)
        ]
        if None in words:
            continue
        made = rest + terms @ factors
        if about:
            made[0] = usual_total[0]
        said = "; ".join(
            word.replace("weight of ", about) if about else word for word in words if word
        )
        yield said + (", the value as it should be" if about else ""), judge.distance(made, wanted)


def _factor(name: str, factor: float, names: Mapping[str, float]) -> str | None:
    """Empty where it is as it should be, None for a number that nobody would write."""
    if abs(factor - 1.0) <= 1e-9:
        return ""
    if abs(factor) <= 1e-9:
        return f"{name} left out (weight 0)"
    words = factor_in_words(factor, dict(names))
    return None if words is None else f"weight of {name} {words}"


def _penalty(loss: Composition) -> Explanation | None:
    """A term of the parameters alone: their squares or sizes."""
    mine, theirs = loss.reference, loss.candidate
    if any(
        relative_difference(mine.outputs[name], theirs.outputs[name]) > LIMIT
        for name in mine.outputs
    ):
        return None
    there = {
        n: g
        for n, g in mine.parameters.items()
        if g is not None and theirs.parameters.get(n) is not None
    }
    null = compare(there, {name: theirs.parameters[name] for name in there}).null
    added = {
        name: np.asarray(theirs.parameters[name]) - gradient
        for name, gradient in there.items()
        if name not in null and relative_difference(gradient, theirs.parameters[name]) > LIMIT
    }
    if not added:
        return None
    gradient = np.concatenate([change.ravel() for change in added.values()])
    weights = np.concatenate([loss.parameters[name].ravel() for name in added])
    forms = {
        "squares": (np.square(weights).sum(), 2.0 * weights),
        "sizes": (np.abs(weights).sum(), np.sign(weights)),
        "root of their sum of squares": (
            np.linalg.norm(weights),
            weights / np.linalg.norm(weights),
        ),
    }
    best: list[tuple[float, str]] = []
    for words, (value, slope) in forms.items():
        factor = float(gradient @ slope) / float(slope @ slope)
        away = max(
            relative_difference(gradient, factor * slope),
            abs(theirs.value - mine.value - factor * value)
            / (abs(theirs.value - mine.value) or 1.0),
        )
        best.append(
            (
                away,
                f"a penalty on {', '.join(added)} added: {number(float(f'{factor:.6g}'))} times "
                f"their {words}",
            )
        )
    away, cause = min(best)
    return Explanation(cause, away) if away <= MATCH else None
