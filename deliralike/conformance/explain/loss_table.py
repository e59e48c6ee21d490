"""Losses as formulas in NumPy, and the table of conventions that people write them by.

Each formula takes complex numbers too, so that its derivatives are exact by complex steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import Arguments, Convention, Formula
from deliralike.conformance.explain.trials import LOG, either, number

Array = np.ndarray
IGNORED = -100
SMOOTH = 1e-5
_MOST_CLASSES = 64  # of which each is left out once, or has a weight that is searched for
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


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "": unchanged,
    "softmax": softmax,
    "sigmoid": sigmoid,
    "log_softmax": log_softmax,
}


def of_setting(name: str, values: Mapping[str, Any]) -> Convention:
    """Other values of one setting, by the words for them."""
    return either({words: {name: value} for words, value in values.items()})


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
            instead and its ``power``; ``smoothing``, the share that is spread, and ``spread``, from
            it and the number of classes the factors of the label's logarithm and of each class's;
            by whose weight the spread share counts (``"class"``, ``"label"``, ``"none"``);
            ``gamma``, the exponent of focal loss; ``divisor``, from the loss of each position to
            one number; ``eps`` in the denominator; ``whole``, another loss altogether.
    """
    z, on = given["z"], given["labels"]
    on = replace(on, weight=given.get("weight", on.weight) ** given.get("power", 1.0))
    on = given.get("change", unchanged)(on)
    if "whole" in given:
        return given["whole"](z, on)
    log_p, smoothing = given.get("logs", log_softmax)(z), given["smoothing"]
    own, every = given.get("spread", _over_all)(smoothing, len(on.weight))
    right = -(on.hot * log_p).sum(1)
    each = own * on.weights * right
    if smoothing:
        per_class = on.weight.reshape(1, -1, *(1,) * (z.ndim - 2))
        by = {"class": per_class, "label": on.weights[:, None], "none": 1.0}
        spread = by[given.get("spread_weight", "class")] * log_p
        each = each - every * (on.kept[:, None] * spread).sum(1)
    if given["gamma"]:
        each = each * (1.0 - np.exp(-right)) ** given["gamma"]
    if given["divisor"] is not None:
        return given["divisor"](each, on)
    return each.sum() / (on.weights.sum() + given.get("eps", 0.0))


def _over_all(share: float, classes: int) -> tuple[float, float]:
    return 1.0 - share, share / classes


def _over_others(share: float, classes: int) -> tuple[float, float]:
    return 1.0 - share - share / (classes - 1), share / (classes - 1)


def _sum(each: Array, on: Labels) -> Any:
    return each.sum()


def _class_means(each: Array, on: Labels) -> Any:
    there = [on.kept & (on.target == label) for label in np.unique(on.target[on.kept])]
    return sum(each[here].mean() for here in there) / len(there)


def _sample_means(each: Array, on: Labels) -> Any:
    axes = tuple(range(1, each.ndim))
    return (each.sum(axes) / on.weights.sum(axes)).mean()


_BY_COUNT = (
    "class weights by count: divided by the number of labels instead of the sum of their weights"
)
_DIVISORS: Mapping[str, Callable[[Array, Labels], Any]] = {
    "sum instead of mean": _sum,
    _BY_COUNT: lambda each, on: each.sum() / on.kept.sum(),
    "mean over classes as well (all elements)": lambda each, on: each.mean() / len(on.weight),
    "mean of the classes' means": _class_means,
    "divided by the sum of all class weights": lambda each, on: each.sum() / on.weight.sum(),
}
_OF_POSITIONS: Mapping[str, Callable[[Array, Labels], Any]] = {
    "divided by the batch size alone (sum over positions)": lambda each, on: each.sum() / len(each),
    "mean of the samples' means": _sample_means,
}
_OF_IGNORED = "ignored labels in the denominator: divided by the number of all labels"
_LOGS: Mapping[str, Callable[..., Array]] = {
    "log_softmax and softmax: probabilities without their logarithm": softmax,
    "softmax missing: the negative logit": unchanged,
    "softmax missing: logarithm of the logits taken for probabilities": np.log,
    "sigmoid instead of softmax": lambda z: -_softplus(-z),
    "logarithm to base 2": lambda z: log_softmax(z) / math.log(2.0),
    "logarithm to base 10": lambda z: log_softmax(z) / math.log(10.0),
}
_SPREADS: Mapping[str, Callable[[float, int], tuple[float, float]]] = {
    "label smoothing spread over the other classes alone": _over_others,
    "label smoothing not divided by the number of classes": lambda s, k: (1.0 - s, s),
    "label smoothing: the label keeps its whole share": lambda s, k: (1.0, s / k),
}
_SPREAD_WEIGHTS = {
    "label smoothing without class weights": "none",
    "label smoothing by the weight of the label": "label",
}
_OF_ONE_HOT: Mapping[str, Callable[[Array, Labels], Any]] = {
    "binary cross-entropy of each class (sigmoid), mean over all": (
        lambda z, on: bce(z, on.hot).mean()
    ),
    "binary cross-entropy of each class (sigmoid), sum over classes": (
        lambda z, on: bce(z, on.hot).sum(1).mean()
    ),
    "squared error of the probabilities, mean over all": (
        lambda z, on: ((softmax(z) - on.hot) ** 2).mean()
    ),
    "squared error of the probabilities, sum over classes": (
        lambda z, on: ((softmax(z) - on.hot) ** 2).sum(1).mean()
    ),
    "squared error of the logits, mean over all": lambda z, on: ((z - on.hot) ** 2).mean(),
    "squared error of the logits, sum over classes": lambda z, on: (
        ((z - on.hot) ** 2).sum(1).mean()
    ),
}
# What people add to probabilities, or bound them by from below.
_LITTLE = (1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12)


def of_labels(prediction: Array, target: Array, settings: Mapping[str, Any]) -> Family:
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
    yield of_setting("divisor", _DIVISORS)
    if not on.kept.all():
        yield of_setting("divisor", {_OF_IGNORED: lambda each, _: each.mean()})
    if on.target.ndim > 1:
        yield of_setting("divisor", _OF_POSITIONS)
    if given["divisor"] is not None:
        yield of_setting("divisor", {"mean instead of sum": None})
    yield of_setting("change", dict(_other_labels(on, weighted)))
    if weighted:
        alone = {"change": _unweighted, "divisor": lambda each, _: each.sum() / on.weights.sum()}
        yield either({"class weights in the denominator alone": alone})
    if smoothing:
        yield of_setting("smoothing", {f"no label smoothing instead of {smoothing:g}": 0.0})
        yield of_setting("spread", _SPREADS)
    if smoothing and weighted:
        yield of_setting("spread_weight", _SPREAD_WEIGHTS)
    yield of_setting("logs", _LOGS)
    for eps in _LITTLE:
        words = f"{eps:g} (eps) added to the probabilities inside the logarithm"
        yield of_setting("logs", {words: partial(_log_of_more, eps=eps)})
        words = f"probabilities clipped at {eps:g} from below"
        yield of_setting("logs", {words: partial(_log_of_least, eps=eps)})
        yield of_setting("eps", {f"{eps:g} (eps) added to the denominator": eps})
    for axis in (0, *range(2, on.target.ndim + 1)):
        along = {f"softmax over axis {axis} instead of 1": partial(log_softmax, axis=axis)}
        yield of_setting("logs", along)
    yield of_setting("whole", _OF_ONE_HOT)
    yield number("label_smoothing", "smoothing", (0.1, 0.05, 0.2), usual=smoothing)
    others = {"spread": _over_others}
    yield number(
        "label smoothing spread over the other classes alone, of",
        "smoothing",
        (0.1, 0.2),
        also=others,
    )
    words = "gamma" if gamma else "focal loss with gamma"
    yield number(words, "gamma", (2.0, 1.0, 0.5), usual=gamma)
    if weighted:
        yield number("class weights to the power of", "power", (0.5, 2.0, -1.0))
    if len(np.unique(on.target[on.kept])) == len(on.weight) <= _MOST_WEIGHTS:
        own = tuple(map(float, on.weight))
        yield number("class weights (up to a factor)", "weight", (own,), usual=list(own))


def _log_of_more(z: Array, eps: float) -> Array:
    return np.log(softmax(z) + eps)


def _log_of_least(z: Array, eps: float) -> Array:
    p = softmax(z)
    return np.log(np.where(p.real < eps, eps, p))


def _unweighted(on: Labels) -> Labels:
    return replace(on, weight=np.ones_like(on.weight))


def _other_labels(on: Labels, weighted: bool) -> Iterator[tuple[str, Callable[[Labels], Labels]]]:
    """What may become of labels, of their weights, and of what counts."""
    if weighted:
        yield "class weights missing", _unweighted
        for by in (1, -1):
            yield f"class weights in another order, shifted by {by:+d}", partial(_rolled, by)
    if not on.kept.all():
        yield "ignored labels counted as the first class", partial(_counted, 0)
        last = "ignored labels counted as the last class (index -1 wraps)"
        yield last, partial(_counted, len(on.weight) - 1)
    for by in (1, -1):
        yield f"labels off by one ({by:+d})", partial(_shifted, by)
    along = np.arange(on.target.shape[-1])
    axis = "last axis" if on.target.ndim > 1 else "batch"
    yield f"the last label along the {axis} left out", partial(_kept, along < along[-1])
    yield f"the first label along the {axis} left out", partial(_kept, along > 0)
    for label in np.unique(on.target[on.kept]) if len(on.weight) <= _MOST_CLASSES else ():
        words = f"class {label} ignored as well (a weight of zero)"
        yield words, partial(_kept, on.target != label)


def _rolled(by: int, on: Labels) -> Labels:
    return replace(on, weight=np.roll(on.weight, by))


def _shifted(by: int, on: Labels) -> Labels:
    return replace(on, target=(on.target + by) % len(on.weight))


def _kept(mask: Array, on: Labels) -> Labels:
    return replace(on, kept=on.kept & mask)


def _counted(label: int, on: Labels) -> Labels:
    target = np.where(on.kept, on.target, label)
    return replace(on, target=target, kept=np.ones_like(on.kept))


# Targets of the prediction's shape
# -----------------------------------------------------------------------------


def bce(z: Array, target: Array, positive: Any = 1.0) -> Array:
    """Binary cross-entropy of scores, each element by itself."""
    return target * positive * _softplus(-z) + (1.0 - target) * _softplus(z)


def _bce_of_probabilities(p: Array, target: Array, positive: Any = 1.0) -> Array:
    return -target * positive * np.log(p) - (1.0 - target) * np.log(1.0 - p)


def _missed(z: Array, target: Array) -> Array:
    """One minus the probability of what is true."""
    return target * sigmoid(-z) + (1.0 - target) * sigmoid(z)


def _focal(z: Array, t: Array, given: Arguments) -> Array:
    missed, alpha = _missed(z, t), given["alpha"]
    missed = given.get("seen", unchanged)(missed)
    share = 1.0 if alpha is None else alpha * t + (1.0 - alpha) * (1.0 - t)
    return bce(z, t) * missed ** given["gamma"] * share


def _huber(x: Array, t: Array, given: Arguments) -> Array:
    size, delta = _absolute(x - t), given["delta"]
    return np.where(size.real < delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def _smooth_l1(x: Array, t: Array, given: Arguments) -> Array:
    return _huber(x, t, given) / given["delta"]


def _own_entropy(target: Array) -> Array:
    """The target times its logarithm; zero where it is zero."""
    return target * np.log(np.where(target > 0, target, 1.0))


Element = Callable[[Array, Array, Arguments], Array]
_OF_PROBABILITIES = "binary cross-entropy of probabilities"
ELEMENTS: Mapping[str, Element] = {
    "squared error": lambda x, t, given: (x - t) ** 2,
    "absolute error": lambda x, t, given: _absolute(x - t),
    "Huber loss with delta=1": _huber,
    "log-cosh of the error": lambda x, t, given: np.log(np.cosh(x - t)),
    "binary cross-entropy of logits": lambda x, t, given: bce(x, t, given["positive"]),
    _OF_PROBABILITIES: lambda x, t, given: _bce_of_probabilities(x, t, given["positive"]),
    "focal loss": _focal,
    "cross-entropy of soft targets": lambda x, t, given: -t * log_softmax(x),
    "KL divergence": lambda x, t, given: _own_entropy(t) - t * log_softmax(x),
    "KL divergence with its arguments exchanged": (
        lambda x, t, given: softmax(x) * (log_softmax(x) - np.log(t))
    ),
    "Poisson likelihood": lambda x, t, given: np.exp(x) - t * x,
}
# Those that take a softmax along axis 1.
_OF_AXES = {
    "cross-entropy of soft targets",
    "KL divergence",
    "KL divergence with its arguments exchanged",
}
_MEAN, _SUM = "mean over all elements", "sum instead of mean"
_REDUCTIONS: Mapping[str, Callable[[Array], Any]] = {
    _MEAN: lambda each: each.mean(),
    _SUM: lambda each: each.sum(),
    "root of the mean": lambda each: np.sqrt(each.mean()),
    "root of the sum": lambda each: np.sqrt(each.sum()),
}
_OF_SAMPLES: Mapping[str, Callable[[Array], Any]] = {
    "sum over each sample, mean over the batch": lambda each: each.sum() / len(each),
    "mean over each sample, sum over the batch": lambda each: each.sum() * len(each) / each.size,
}
_OF_CHANNELS: Mapping[str, Callable[[Array], Any]] = {
    "sum over the second axis, mean over the rest": lambda each: each.sum(1).mean(),
}
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
            ``smoothing`` towards one half; ``counted``, from the target to what elements count.
    """
    target, smoothing = given["target"], given.get("smoothing", 0.0)
    own = 1.0 - target if given.get("exchanged") else target
    each = given["element"](given["z"], own * (1.0 - smoothing) + 0.5 * smoothing, given)
    counted = given["counted"](target) if "counted" in given else 1.0
    return given["reduction"](each * given["weight"] * counted)


def of_elements(target: Array, settings: Mapping[str, Any], kind: str = "") -> Family:
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
    yield of_setting("reduction", _REDUCTIONS)
    yield of_setting("reduction", {} if flat else _OF_SAMPLES)
    yield of_setting("reduction", _OF_CHANNELS if target.ndim > 2 else {})
    yield of_setting("element", dict(_other_elements(element, flat)))
    yield number("Huber loss with delta =", "delta", (0.5, 2.0), LOG, also={"element": _huber})
    yield number("smooth L1 with beta =", "delta", (1.0, 0.5), LOG, also={"element": _smooth_l1})
    if not ((target >= 0) & (target <= 1)).all():
        return
    yield of_setting("exchanged", {"targets exchanged (1 - target)": True})
    constant = {f"targets that are all {one}": np.full_like(target, one) for one in (1, 0)}
    yield of_setting("target", constant)
    yield of_setting("counted", {"only the positives counted": unchanged})
    yield of_setting("counted", {"only the negatives counted": lambda t: 1.0 - t})
    for name, words in (("positive", "pos_weight missing"), ("weight", "weight missing")):
        if np.any(given[name] != 1.0):
            yield of_setting(name, {words: 1.0})
    yield from _of_focal(given)
    yield number("label_smoothing", "smoothing", (0.1, 0.2), usual=0.0)
    if not np.ndim(given["positive"]):
        yield number("pos_weight", "positive", (2.0, 0.5), LOG, usual=given["positive"])
    if not flat and 1 < target.shape[-1] <= _MOST_WEIGHTS:
        ones = (1.0,) * target.shape[-1]
        yield number("pos_weight along the last axis", "positive", (ones,))
        yield number("weight along the last axis", "weight", (ones,))


def _other_elements(element: Element, flat: bool) -> Iterator[tuple[str, Element]]:
    own = next((name for name, each in ELEMENTS.items() if each is element), "")
    for name, other in ELEMENTS.items():
        if not (flat and name in _OF_AXES):
            yield f"{name} instead of {own}" if own else name, other


def _of_focal(given: Arguments) -> Iterator[Convention]:
    alpha = given["alpha"]
    focal = {"element": _focal}
    if given["element"] is not _focal:
        yield number("focal loss without alpha, gamma", "gamma", (2.0, 1.0), also=focal)
        both = {**focal, "gamma": 2.0}
        yield number("focal loss with gamma=2 and alpha", "alpha", (0.25, 0.75), also=both)
        return
    words = "focal weight inverted: what is classified well counts more (p instead of 1 - p)"
    yield of_setting("seen", {words: lambda missed: 1.0 - missed})
    words = "no gradient through the focal weight (it is detached)"
    yield of_setting("seen", {words: lambda missed: missed.real})
    yield number("gamma", "gamma", (1.0, 0.5, 3.0), usual=given["gamma"])
    if alpha is not None:
        yield of_setting("alpha", {"focal loss without alpha": None})
        yield number("alpha", "alpha", (1.0 - alpha, 0.25, 0.75), usual=float(alpha))


# Overlaps of regions
# -----------------------------------------------------------------------------

_FINISHES: Mapping[str, Callable[[Array], Any]] = {
    "mean of one minus the coefficient": lambda found: (1.0 - found).mean(),
    _SUM: lambda found: (1.0 - found).sum(),
    "negative coefficient instead of one minus it": lambda found: -found.mean(),
    "the coefficient itself instead of one minus it": lambda found: found.mean(),
    "logarithm: -log of the coefficient": lambda found: -np.log(found).mean(),
    "logarithm: -log of the mean coefficient": lambda found: -np.log(found.mean()),
    "sum over classes, mean over the batch": lambda found: (1.0 - found).sum(-1).mean(),
}


def overlap(nn: Any, given: Arguments) -> Any:
    """The soft Dice loss of each sample and class, or another index of overlaps.

    Args:
        nn: Not used.
        given: Probabilities ``z`` ``(batch, classes, ...)``, the one-hot ``target`` of that shape;
            ``smooth`` in the numerator and ``below`` in the denominator, equal when there is none;
            the axes ``dims`` that are summed over; the factor ``top`` of the overlap; the ``power``
            of probabilities and labels in the denominator; the first class that counts (``start``);
            ``index``, what false positives and false negatives count: a Tversky index, of which
            (1, 1) is Jaccard's; ``finish`` from coefficients to the loss, one minus which is raised
            to an ``exponent``.
    """
    start, index = given["start"], given.get("index")
    p, target = given["z"][:, start:], given["target"][:, start:]
    dims = given.get("dims", tuple(range(2, p.ndim)))
    both = (p * target).sum(dims)
    if index is None:
        power = given.get("power", 1)
        above, total = (
            given.get("top", 2.0) * both,
            (p**power).sum(dims) + (target**power).sum(dims),
        )
    else:
        above, missed = both, index[0] * (p * (1.0 - target)).sum(dims)
        total = both + missed + index[1] * ((1.0 - p) * target).sum(dims)
    smooth = given["smooth"]
    found = (above + smooth) / (total + given.get("below", smooth))
    exponent = given.get("exponent", 1.0)
    return given["finish"](found if exponent == 1.0 else 1.0 - (1.0 - found) ** exponent)


def of_overlaps(target: Array, settings: Mapping[str, Any], kind: str = "dice_loss") -> Family:
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
    yield of_setting("finish", _FINISHES)
    dims = {
        "overlap and sizes over the whole batch": (0, *spatial),
        "overlap and sizes over the classes too": (1, *spatial),
        "overlap and sizes over batch and classes (one coefficient)": (0, 1, *spatial),
    }
    yield of_setting("dims", dims)
    yield of_setting("power", {"squares in the denominator": 2})
    yield of_setting("top", {"no factor of two for the overlap": 1.0})
    counted = "counted" if given["start"] else "left out"
    yield of_setting("start", {f"the background (channel 0) {counted}": 1 - given["start"]})
    yield of_setting("below", {"smooth missing in the denominator": 0.0})
    missing = {"smooth": 0.0, "below": smooth}
    yield either({"smooth missing in the numerator": missing})
    yield of_setting("index", {"Jaccard index (IoU) instead of Dice": (1.0, 1.0)})
    for alpha in (0.3, 0.7):
        words = f"Tversky index with alpha={alpha:g} and beta={1 - alpha:g}"
        yield of_setting("index", {words: (alpha, 1.0 - alpha)})
    starts = (1e-5, 1e-2, 1.0, 1e-7)
    alone = "in the {} alone (none in the other): smooth"
    yield number("smooth", "smooth", starts, LOG, usual=smooth)
    yield number(
        alone.format("denominator"), "below", starts, LOG, also={"smooth": 0.0}, usual=smooth
    )
    yield number(
        alone.format("numerator"), "smooth", starts, LOG, also={"below": 0.0}, usual=smooth
    )
    yield number("in the denominator: smooth", "below", starts, LOG, usual=smooth)
    yield number("one minus the coefficient to the power of", "exponent", (0.75, 2.0))


# Divergence of a normal distribution from the standard one
# -----------------------------------------------------------------------------

_SQUARES: Mapping[str, Callable[[Array], Array]] = {
    "the mean instead of its square": unchanged,
    "the absolute mean instead of its square": _absolute,
    "no square of the mean": lambda mean: 0.0 * mean,
}
_VARIANCES: Mapping[str, Callable[[Array], Array]] = {
    "the logarithm of the variance taken for that of the deviation": lambda log: np.exp(2.0 * log),
    "the logarithm of the variance taken for the variance": unchanged,
    "half of the logarithm of the variance in the exponent": lambda log: np.exp(0.5 * log),
}


def divergence(nn: Any, given: Arguments) -> Any:
    """The sum of ``(mean^2 + variance - log variance - 1) / 2``, of ``z`` that stacks both."""
    mean, log = given["z"]
    square = given.get("square", np.square)(mean)
    variance = given.get("variance", np.exp)(log)
    return 0.5 * (square + variance - given.get("of_log", 1.0) * log - given.get("one", 1.0)).sum()


def of_divergence(given: Arguments) -> Iterator[Convention]:
    """What people write instead."""
    yield of_setting("square", _SQUARES)
    yield of_setting("variance", _VARIANCES)
    yield of_setting("one", {"no one that is subtracted": 0.0})
    yield of_setting("of_log", {"no logarithm of the variance": 0.0})


# Which family
# -----------------------------------------------------------------------------


def family(
    prediction: Array, target: Array, settings: Mapping[str, Any], kind: str = ""
) -> Family | None:
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
