"""Losses as formulas in NumPy, and the table of conventions that people write them by.

Each formula takes complex numbers too, so that its derivatives are exact by complex steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.axes import LOG
from deliralike.conformance.explain.convention import Arguments, Convention, Formula, values
from deliralike.conformance.explain.trials import number
from deliralike.conformance.kinds import Named

Array = np.ndarray
Path = Callable[[Array], Array]
IGNORED = -100
SMOOTH = 1e-5
_MOST_WEIGHTS = 7  # that can be told from a value and eight slopes


@dataclass(frozen=True)
class Family:
    """Losses of one kind of target.

    Attributes:
        formula: Of ``given["z"]``, the prediction, and the settings.
        given: The reference's settings.
        table: From them to what other code has instead, the likely ones first.
    """

    formula: Formula
    given: Arguments
    table: Callable[[Arguments], Iterator[Convention]]


# Functions of complex numbers
# -----------------------------------------------------------------------------


def sigmoid(z: Array) -> Array:
    """One over one plus the exponential of -z."""
    return 1.0 / (1.0 + np.exp(-z))


def log_softmax(z: Array, axis: int = 1) -> Array:
    """The logarithm of the softmax along an axis; along the only one of one number a sample."""
    axis = min(axis, z.ndim - 1)
    z = z - z.real.max(axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


def softmax(z: Array, axis: int = 1) -> Array:
    """The softmax along an axis."""
    return np.exp(log_softmax(z, axis))


def _absolute(z: Array) -> Array:
    return np.where(z.real < 0, -z, z)


def _softplus(z: Array) -> Array:
    above = np.where(z.real > 0, z, 0.0)
    return above + np.log1p(np.exp(z - 2.0 * above))


def unchanged(z: Array) -> Array:
    """The identity."""
    return z


ACTIVATIONS: Mapping[str, Path] = {
    "": unchanged,
    "softmax": softmax,
    "sigmoid": sigmoid,
    "log_softmax": log_softmax,
}


# Whole-number labels
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """What a loss of whole-number labels is made of.

    Attributes:
        target: Whole numbers ``(batch, ...)``.
        weight: One for each class.
        kept: Which positions count.
    """

    target: Array
    weight: Array
    kept: Array

    @property
    def weights(self) -> Array:
        """What each position counts."""
        return self.kept * self.weight[np.where(self.kept, self.target, 0)]

    @property
    def hot(self) -> Array:
        """``(batch, classes, ...)``; zeros where nothing counts."""
        label = np.where(self.kept, self.target, 0)
        return np.moveaxis(np.eye(len(self.weight))[label] * self.kept[..., None], -1, 1)


def cross_entropy(nn: Any, given: Arguments) -> Any:
    """Cross-entropy of labels.

    Args:
        nn: Not used.
        given: The prediction ``z`` ``(batch, classes, ...)`` and `Labels`; ``logs``, from the
            prediction to logarithms of probabilities; ``change`` of the labels; class ``weight``
            instead; ``smoothing``, the share that is spread over all classes; ``gamma``, the
            exponent of focal loss; ``divisor``, from the loss of each position to one number.
    """
    z, on = given["z"], given["labels"]
    on = replace(on, weight=given.get("weight", on.weight))
    on = given.get("change", unchanged)(on)
    log_p, smoothing = given.get("logs", log_softmax)(z), given["smoothing"]
    own, every = 1.0 - smoothing, smoothing / len(on.weight)
    right = -(on.hot * log_p).sum(1)
    each = own * on.weights * right
    if smoothing:
        per_class = on.weight.reshape(1, -1, *(1,) * (z.ndim - 2))
        each = each - every * (on.kept[:, None] * per_class * log_p).sum(1)
    if given["gamma"]:
        each = each * (1.0 - np.exp(-right)) ** given["gamma"]
    if given["divisor"] is not None:
        return given["divisor"](each, on)
    return each.sum() / on.weights.sum()


def _sum(each: Array, on: Labels) -> Any:
    return each.sum()


def _mean(each: Array, on: Labels) -> Any:
    return each.mean()


def _sample_means(each: Array, on: Labels) -> Any:
    axes = tuple(range(1, each.ndim))
    return (each.sum(axes) / on.weights.sum(axes)).mean()


_BY_COUNT = (
    "class weights by count: divided by the number of labels instead of the sum of their weights"
)
_DIVISORS: Mapping[str, Callable[[Array, Labels], Any]] = {
    "sum instead of mean": _sum,
    _BY_COUNT: lambda each, on: each.sum() / on.kept.sum(),
}
_OF_POSITIONS: Mapping[str, Callable[[Array, Labels], Any]] = {
    "divided by the batch size alone (sum over positions)": lambda each, on: each.sum() / len(each),
    "mean of the samples' means": _sample_means,
}
_OF_IGNORED = "ignored labels in the denominator: divided by the number of all labels"
_LOGS: Mapping[str, Callable[..., Array]] = {
    "log_softmax and softmax: probabilities without their logarithm": softmax,
    "softmax missing: the negative logit": unchanged,
    "sigmoid instead of softmax": lambda z: -_softplus(-z),
}
# What people add to probabilities, or bound them by from below.
_LITTLE = (1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12)


def of_labels(prediction: Array, target: Array, settings: Named) -> Family:
    """Cross-entropy with the reference's settings: those of `nn.cross_entropy`."""
    classes, given = prediction.shape[1], settings.get("weight")
    weight = np.ones(classes) if given is None else np.asarray(given, np.float64)
    kept = (target != settings.get("ignore_index", IGNORED)) & (target >= 0)
    usual = {
        "labels": Labels(target, weight, kept),
        "smoothing": float(settings.get("label_smoothing") or 0.0),
        "gamma": float(settings.get("gamma") or 0.0),
        "divisor": _sum if settings.get("reduction") == "sum" else None,
    }
    return Family(cross_entropy, usual, _of_labels)


def _of_labels(given: Arguments) -> Iterator[Convention]:
    on, smoothing, gamma = given["labels"], given["smoothing"], given["gamma"]
    on = replace(on, weight=given.get("weight", on.weight))
    weighted = bool(np.ptp(on.weight))
    divisors = dict[str, Any](_DIVISORS)
    if not on.kept.all():
        divisors[_OF_IGNORED] = _mean
    if on.target.ndim > 1:
        divisors |= _OF_POSITIONS
    if given["divisor"] is not None:
        divisors["mean instead of sum"] = None
    yield values("divisor", divisors)
    yield values("change", dict(_other_labels(on, weighted)))
    if smoothing:
        yield values("smoothing", {f"no label smoothing instead of {smoothing:g}": 0.0})
    logs = dict(_LOGS)
    for eps in _LITTLE:
        words = f"{eps:g} (eps) added to the probabilities inside the logarithm"
        logs[words] = partial(_log_of_more, eps=eps)
    yield values("logs", logs)
    yield number("label_smoothing", "smoothing", (0.1, 0.05, 0.2), usual=smoothing)
    words = "gamma" if gamma else "focal loss with gamma"
    yield number(words, "gamma", (2.0, 1.0, 0.5), usual=gamma)
    if len(np.unique(on.target[on.kept])) == len(on.weight) <= _MOST_WEIGHTS:
        own = tuple(map(float, on.weight))
        yield number("class weights (up to a factor)", "weight", (own,), usual=list(own))


def _log_of_more(z: Array, eps: float) -> Array:
    return np.log(softmax(z) + eps)


def _unweighted(on: Labels) -> Labels:
    return replace(on, weight=np.ones_like(on.weight))


def _other_labels(on: Labels, weighted: bool) -> Iterator[tuple[str, Callable[[Labels], Labels]]]:
    """What may become of labels, of their weights, and of what counts."""
    if weighted:
        yield "class weights missing", _unweighted
    if not on.kept.all():
        yield "ignored labels counted as the first class", partial(_counted, 0)
        last = "ignored labels counted as the last class (index -1 wraps)"
        yield last, partial(_counted, len(on.weight) - 1)
    for by in (1, -1):
        yield f"labels off by one ({by:+d})", partial(_shifted, by)


def _shifted(by: int, on: Labels) -> Labels:
    return replace(on, target=(on.target + by) % len(on.weight))


def _counted(label: int, on: Labels) -> Labels:
    target = np.where(on.kept, on.target, label)
    return replace(on, target=target, kept=np.ones_like(on.kept))


# Targets of the prediction's shape
# -----------------------------------------------------------------------------


def bce(z: Array, target: Array, positive: Any = 1.0) -> Array:
    """Binary cross-entropy of scores, each element by itself."""
    return target * positive * _softplus(-z) + (1.0 - target) * _softplus(z)


def _bce_of_probabilities(p: Array, target: Array, positive: Any) -> Array:
    return -target * positive * np.log(p) - (1.0 - target) * np.log(1.0 - p)


def _missed(z: Array, target: Array) -> Array:
    """One minus the probability of what is true."""
    return target * sigmoid(-z) + (1.0 - target) * sigmoid(z)


def _focal(z: Array, t: Array, given: Arguments) -> Array:
    missed, alpha = _missed(z, t), given["alpha"]
    share = 1.0 if alpha is None else alpha * t + (1.0 - alpha) * (1.0 - t)
    return bce(z, t) * missed ** given["gamma"] * share


def _huber(x: Array, t: Array, given: Arguments) -> Array:
    size, delta = _absolute(x - t), given["delta"]
    return np.where(size.real < delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def _own_entropy(target: Array) -> Array:
    """The target times its logarithm; zero where it is zero."""
    return target * np.log(np.where(target > 0, target, 1.0))


Element = Callable[[Array, Array, Arguments], Array]
_OF_PROBABILITIES = "binary cross-entropy of probabilities"
ELEMENTS: Mapping[str, Element] = {
    "squared error": lambda x, t, given: (x - t) ** 2,
    "absolute error": lambda x, t, given: _absolute(x - t),
    "Huber loss with delta=1": _huber,
    "binary cross-entropy of logits": lambda x, t, given: bce(x, t, given["positive"]),
    _OF_PROBABILITIES: lambda x, t, given: _bce_of_probabilities(x, t, given["positive"]),
    "focal loss": _focal,
    "cross-entropy of soft targets": lambda x, t, given: -t * log_softmax(x),
    "KL divergence": lambda x, t, given: _own_entropy(t) - t * log_softmax(x),
}
# Those that take a softmax along axis 1.
_OF_AXES = {
    "cross-entropy of soft targets",
    "KL divergence",
}
_MEAN, _SUM = "mean over all elements", "sum instead of mean"
_REDUCTIONS: Mapping[str, Callable[[Array], Any]] = {
    _MEAN: lambda each: each.mean(),
    _SUM: lambda each: each.sum(),
    "root of the mean": lambda each: np.sqrt(each.mean()),
}
_OF_SAMPLES = "sum over each sample, mean over the batch"
_KINDS = {
    "mse_loss": "squared error",
    "l1_loss": "absolute error",
    "bce_with_logits": "binary cross-entropy of logits",
    "binary_focal_loss": "focal loss",
}


def elementwise(nn: Any, given: Arguments) -> Any:
    """A loss of each element by itself.

    Args:
        nn: Not used.
        given: The prediction ``z``, the ``target`` of its shape; ``element`` and ``reduction``, see
            the tables, and their numbers ``delta``, ``positive``, ``alpha``, ``gamma``; the
            ``weight`` of each element; whether one minus the target is taken (``exchanged``);
            ``smoothing`` towards one half.
    """
    target, smoothing = given["target"], given.get("smoothing", 0.0)
    own = 1.0 - target if given.get("exchanged") else target
    each = given["element"](given["z"], own * (1.0 - smoothing) + 0.5 * smoothing, given)
    return given["reduction"](each * given["weight"])


def of_elements(target: Array, settings: Named, kind: str) -> Family:
    """A loss of numbers or of binary targets, with the reference's settings."""
    usual = {
        "target": target.astype(np.float64),
        "element": ELEMENTS[_KINDS.get(kind, "squared error")],
        "reduction": _REDUCTIONS[_SUM if settings.get("reduction") == "sum" else _MEAN],
        "weight": _or_one(settings.get("weight")),
        "positive": _or_one(settings.get("pos_weight")),
        "gamma": float(settings.get("gamma", 2.0)),
        "alpha": settings.get("alpha"),
        "delta": 1.0,
    }
    return Family(elementwise, usual, _of_elements)


def _or_one(value: Any) -> Any:
    return 1.0 if value is None else np.asarray(value, np.float64)


def _of_elements(given: Arguments) -> Iterator[Convention]:
    target, element = given["target"], given["element"]
    flat = target.ndim < 2
    reductions = dict(_REDUCTIONS)
    if not flat:
        reductions[_OF_SAMPLES] = lambda each: each.sum() / len(each)
    yield values("reduction", reductions)
    yield values("element", dict(_other_elements(element, flat)))
    yield number("Huber loss with delta =", "delta", (0.5, 2.0), LOG, also={"element": _huber})
    if not ((target >= 0) & (target <= 1)).all():
        return
    yield values("exchanged", {"targets exchanged (1 - target)": True})
    for name, words in (("positive", "pos_weight missing"), ("weight", "weight missing")):
        if np.any(given[name] != 1.0):
            yield values(name, {words: 1.0})
    yield from _of_focal(given)
    yield number("label_smoothing", "smoothing", (0.1, 0.2), usual=0.0)
    if not np.ndim(given["positive"]):
        yield number("pos_weight", "positive", (2.0, 0.5), LOG, usual=given["positive"])


def _other_elements(element: Element, flat: bool) -> Iterator[tuple[str, Element]]:
    own = next((name for name, each in ELEMENTS.items() if each is element), "")
    for name, other in ELEMENTS.items():
        if not (flat and name in _OF_AXES):
            yield f"{name} instead of {own}" if own else name, other


def _of_focal(given: Arguments) -> Iterator[Convention]:
    alpha = given["alpha"]
    if given["element"] is not _focal:
        focal = {"element": _focal}
        yield number("focal loss without alpha, gamma", "gamma", (2.0, 1.0), also=focal)
        return
    yield number("gamma", "gamma", (1.0, 0.5, 3.0), usual=given["gamma"])
    if alpha is not None:
        yield values("alpha", {"focal loss without alpha": None})
        yield number("alpha", "alpha", (1.0 - alpha, 0.25, 0.75), usual=float(alpha))


# Overlaps of regions
# -----------------------------------------------------------------------------

_FINISHES: Mapping[str, Callable[[Array], Any]] = {
    "mean of one minus the coefficient": lambda found: (1.0 - found).mean(),
    _SUM: lambda found: (1.0 - found).sum(),
    "negative coefficient instead of one minus it": lambda found: -found.mean(),
}


def overlap(nn: Any, given: Arguments) -> Any:
    """The soft Dice loss of each sample and class, or the Tversky loss.

    Args:
        nn: Not used.
        given: Probabilities ``z`` ``(batch, classes, ...)``, the one-hot ``target`` of that shape;
            ``smooth`` in the numerator and ``below`` in the denominator, equal when there is none;
            the axes ``dims`` that are summed over; the ``power`` of both in the denominator; the
            first class that counts (``start``); ``index``, what false positives and false negatives
            count in a Tversky index; ``finish`` from coefficients to the loss, one minus which is
            raised to an ``exponent``.
    """
    start, index, smooth = given["start"], given.get("index"), given["smooth"]
    p, target = given["z"][:, start:], given["target"][:, start:]
    dims = given.get("dims", tuple(range(2, p.ndim)))
    above = (p * target).sum(dims)
    if index is None:
        power, above = given.get("power", 1), 2.0 * above
        total = (p**power).sum(dims) + (target**power).sum(dims)
    else:
        total = above + index[0] * (p * (1.0 - target)).sum(dims)
        total = total + index[1] * ((1.0 - p) * target).sum(dims)
    found = (above + smooth) / (total + given.get("below", smooth))
    exponent = given.get("exponent", 1.0)
    return given["finish"](1.0 - (1.0 - found) ** exponent if exponent != 1.0 else found)


def of_overlaps(target: Array, settings: Named, kind: str) -> Family:
    """The Dice or Tversky loss with the reference's settings."""
    finishes = list(_FINISHES.values())
    usual: dict[str, Any] = {
        "target": target.astype(np.float64),
        "smooth": float(settings.get("smooth", SMOOTH)),
        "start": 0 if settings.get("include_background", True) else 1,
        "finish": finishes[settings.get("reduction") == "sum"],
    }
    if kind == "tversky_loss":
        usual["index"] = (float(settings["alpha"]), float(settings["beta"]))
        usual["exponent"] = float(settings["gamma"])
    return Family(overlap, usual, _of_overlaps)


def _of_overlaps(given: Arguments) -> Iterator[Convention]:
    smooth, spatial = given["smooth"], tuple(range(2, given["target"].ndim))
    yield values("finish", _FINISHES)
    dims = {
        "overlap and sizes over the whole batch": (0, *spatial),
        "overlap and sizes over batch and classes (one coefficient)": (0, 1, *spatial),
    }
    yield values("dims", dims)
    yield values("power", {"squares in the denominator": 2})
    counted = "counted" if given["start"] else "left out"
    yield values("start", {f"the background (channel 0) {counted}": 1 - given["start"]})
    yield values("index", {"Jaccard index (IoU) instead of Dice": (1.0, 1.0)})
    starts = (1e-5, 1e-2, 1.0, 1e-7)
    yield number("smooth", "smooth", starts, LOG, usual=smooth)
    yield number("in the denominator: smooth", "below", starts, LOG, usual=smooth)


# Which family
# -----------------------------------------------------------------------------


def family(prediction: Array, target: Array, settings: Named, kind: str = "") -> Family | None:
    """What is known of a loss of such a prediction and target; None for none.

    Args:
        prediction, target: What the loss is given.
        settings: The reference's, by the names of the functions of `nn`.
        kind: The function of `nn`, where that is known.
    """
    if kind in ("dice_loss", "tversky_loss"):
        return of_overlaps(target, settings, kind)
    if target.dtype.kind in "iu" and prediction.ndim == target.ndim + 1:
        return of_labels(prediction, target, settings)
    if target.shape == prediction.shape and target.ndim:
        return of_elements(target, settings, kind)
    return None
