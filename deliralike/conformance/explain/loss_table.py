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

from deliralike.conformance.explain.conventions import LOG, Convention

Array = np.ndarray
IGNORED = -100
SMOOTH = 1e-5


@dataclass(frozen=True)
class Family:
    """Losses of one kind of target: a formula, its settings, and what they may be instead.

    Attributes:
        formula: ``formula(z, **settings)`` is the loss of a prediction.
        usual: The reference's settings.
        table: From the reference's settings to what a candidate may have instead.
    """

    formula: Callable[..., Any]
    usual: Mapping[str, Any]
    table: Callable[[Mapping[str, Any]], Iterator[Convention]]


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


def _at_least(z: Array, low: float) -> Array:
    return np.where(z.real < low, low, z)


def _unchanged(z: Array) -> Array:
    return z


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "": _unchanged,
    "softmax": softmax,
    "sigmoid": sigmoid,
    "log_softmax": log_softmax,
}

# What is said of each setting
# -----------------------------------------------------------------------------


def _rows(setting: str, values: Mapping[str, Any], usual: Any = None) -> Iterator[Convention]:
    """A convention for each value of a setting but the usual one."""
    for cause, value in values.items():
        if value is not usual:
            yield Convention(cause, {setting: value})


def _instead(setting: str, usual: float, starts: tuple[float, ...], **more: Any) -> Convention:
    """A number in the place of the reference's."""
    cause = f"{setting.replace('_', ' ')}={{}} instead of {usual:g}"
    return Convention(cause, number=setting, starts=starts, **more)


# Whole-number labels
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """What a loss of whole-number labels is made of.

    Attributes:
        target: Whole numbers ``(batch, ...)``.
        weight: One for each class.
        kept: Which positions count.
        counts: What each position counts in the denominator; by its label's weight when None.
    """

    target: Array
    weight: Array
    kept: Array
    counts: Array | None = None

    @property
    def weights(self) -> Array:
        """What each position counts."""
        if self.counts is not None:
            return self.counts
        return self.kept * self.weight[np.where(self.kept, self.target, 0)]

    @property
    def hot(self) -> Array:
        """``(batch, classes, ...)``; zeros where nothing counts."""
        label = np.where(self.kept, self.target, 0)
        return np.moveaxis(np.eye(len(self.weight))[label] * self.kept[..., None], -1, 1)


Divisor = Callable[[Array, Labels], Any]


def cross_entropy(
    z: Array,
    on: Labels,
    *,
    logs: Callable[..., Array] = log_softmax,
    labels: Callable[[Labels], Labels] = lambda on: on,
    power: float = 1.0,
    weight: Array | None = None,
    label_smoothing: float = 0.0,
    spread: Callable[[float, int], tuple[float, float]] = lambda s, k: (1.0 - s, s / k),
    spread_weight: str = "class",
    gamma: float = 0.0,
    divisor: Divisor | None = None,
    denominator_eps: float = 0.0,
    whole: Callable[[Array, Labels], Any] | None = None,
) -> Any:
    """Cross-entropy of labels.

    Args:
        z: The prediction ``(batch, classes, ...)``.
        on: Labels, weights and what is ignored.
        logs: From the prediction to logarithms of probabilities.
        labels: What becomes of labels and weights.
        power: Of the class weights.
        weight: Class weights instead.
        label_smoothing, spread: The share that is spread, and from it and the number of classes the
            factors of the label's logarithm and of each class's.
        spread_weight: By whose weight the spread share counts: ``"class"``, ``"label"``, ``"none"``.
        gamma: The exponent of focal loss.
        divisor: From the loss of each position to one number; their sum over that of their weights
            when None.
        denominator_eps: Added to that.
        whole: Another loss of the prediction and labels altogether.
    """
    if weight is not None:
        on = replace(on, weight=weight)
    on = labels(on if power == 1.0 else replace(on, weight=on.weight**power))
    if whole is not None:
        return whole(z, on)
    log_p, hot = logs(z), on.hot
    own, every = spread(label_smoothing, len(on.weight))
    right = -(hot * log_p).sum(1)
    each = own * on.weights * right
    if label_smoothing:
        per_class = on.weight.reshape(1, -1, *(1,) * (z.ndim - 2))
        by = {"class": per_class, "label": on.weights[:, None], "none": 1.0}[spread_weight]
        each = each - every * (on.kept[:, None] * by * log_p).sum(1)
    if gamma:
        each = each * (1.0 - np.exp(-right)) ** gamma
    if divisor is not None:
        return divisor(each, on)
    return each.sum() / (on.weights.sum() + denominator_eps)


def _class_means(each: Array, on: Labels) -> Any:
    there = [on.kept & (on.target == label) for label in np.unique(on.target[on.kept])]
    return sum(each[here].mean() for here in there) / len(there)


def _sample_means(each: Array, on: Labels) -> Any:
    axes = tuple(range(1, each.ndim))
    return (each.sum(axes) / on.weights.sum(axes)).mean()


def _ignored_too(each: Array, on: Labels) -> Any:
    return each.sum() / (on.weights.sum() + on.weight[0] * (~on.kept).sum())


_SUM: Divisor = lambda each, on: each.sum()  # noqa: E731
_DIVISORS: Mapping[str, Divisor] = {
    "sum instead of mean": _SUM,
    "class weights by count: divided by the number of labels instead of the sum of their weights": (
        lambda each, on: each.sum() / on.kept.sum()
    ),
    "ignored labels in the denominator: divided by the number of all labels": (
        lambda each, on: each.mean()
    ),
    "divided by the batch size alone (sum over positions)": lambda each, on: each.sum() / len(each),
    "divided by the number of positions alone (sum over the batch)": (
        lambda each, on: each.sum() * len(each) / each.size
    ),
    "mean over classes as well (all elements)": (lambda each, on: each.mean() / len(on.weight)),
    "mean of the classes' means": _class_means,
    "mean of the samples' means": _sample_means,
    "divided by the sum of all class weights": lambda each, on: each.sum() / on.weight.sum(),
    "ignored labels in the denominator, with the weight of the first class": _ignored_too,
    "maximum over the labels instead of the mean": (
        lambda each, on: each.flat[int(np.argmax(each.real))]
    ),
    "root of the mean square of the labels' losses": lambda each, on: np.sqrt((each**2).mean()),
}
_LOGS: Mapping[str, Callable[..., Array]] = {
    "log_softmax and softmax: probabilities without their logarithm": lambda z: softmax(z),
    "softmax missing: the negative logit": lambda z: z,
    "softmax missing: logarithm of the logits taken for probabilities": lambda z: np.log(z),
    "sigmoid instead of softmax": lambda z: -_softplus(-z),
    "logarithm to base 2": lambda z: log_softmax(z) / math.log(2.0),
    "logarithm to base 10": lambda z: log_softmax(z) / math.log(10.0),
}
# What people add to probabilities, or bound them by from below.
_LITTLE = (0.1, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-15, 1e-16, 1e-20, 1e-30)
_LEAST = (1e-38, 1e-45, 1e-300, float(np.finfo(float).tiny))
_SPREADS: Mapping[str, Callable[[float, int], tuple[float, float]]] = {
    "label smoothing spread over the other classes alone": (
        lambda s, k: (1.0 - s - s / (k - 1), s / (k - 1))
    ),
    "label smoothing not divided by the number of classes": lambda s, k: (1.0 - s, s),
    "label smoothing: the label keeps its whole share": lambda s, k: (1.0, s / k),
}


def of_labels(prediction: Array, target: Array, settings: Mapping[str, Any]) -> Family:
    """Cross-entropy with the reference's settings: those of `nn.cross_entropy`."""
    classes, given = prediction.shape[1], settings.get("weight")
    weight = np.ones(classes) if given is None else np.asarray(given, np.float64)
    kept = (target != settings.get("ignore_index", IGNORED)) & (target >= 0)
    on = Labels(target, weight, kept)
    usual: dict[str, Any] = {"label_smoothing": float(settings.get("label_smoothing", 0.0))}
    usual["gamma"] = float(settings.get("gamma", 0.0))
    if settings.get("reduction") == "sum":
        usual["divisor"] = _SUM
    table = partial(_of_labels, on, given is not None)
    return Family(partial(cross_entropy, on=on), usual, table)


def _of_labels(on: Labels, weighted: bool, usual: Mapping[str, Any]) -> Iterator[Convention]:
    smoothing, gamma = usual["label_smoothing"], usual["gamma"]
    if "weight" in usual:  # those that a loss was recognised by
        on, weighted = replace(on, weight=usual["weight"]), True
    yield from _rows("divisor", _DIVISORS, usual.get("divisor"))
    if "divisor" in usual:
        yield Convention("mean instead of sum", {"divisor": None})
    yield from _rows("labels", dict(_other_labels(on, weighted)))
    if weighted:
        alone: Divisor = lambda each, _: each.sum() / on.weights.sum()  # noqa: E731
        yield Convention(
            "class weights in the denominator alone", {"labels": _unweighted, "divisor": alone}
        )
    if smoothing:
        yield Convention(f"no label smoothing instead of {smoothing:g}", {"label_smoothing": 0.0})
        yield from _rows("spread", _SPREADS)
        for whose in ("label", "none") if weighted else ():
            words = "without class weights" if whose == "none" else "by the weight of the label"
            yield Convention(f"label smoothing {words}", {"spread_weight": whose})
    yield from _rows("logs", _LOGS)
    for eps in (*_LITTLE, *_LEAST):
        added = partial(_log_of_more, eps=eps)
        words = f"{eps:.3g} (eps) added to the probabilities inside the logarithm"
        yield Convention(words, {"logs": added})
        bounded = partial(_log_of_least, eps=eps)
        yield Convention(f"probabilities clipped at {eps:.3g} from below", {"logs": bounded})
    for axis in (0, *range(2, on.target.ndim + 1)):
        other = partial(_along, axis=axis)
        yield Convention(f"softmax over axis {axis} instead of 1", {"logs": other})
    yield from _rows("whole", dict(_of_one_hot()))
    yield _instead("label_smoothing", smoothing, (0.1, 0.05, 0.2))
    yield Convention(
        "label smoothing={} spread over the other classes alone",
        {"spread": next(iter(_SPREADS.values()))},
        "label_smoothing",
        (0.1, 0.2),
    )
    focal = f"gamma={{}} instead of {gamma:g}" if gamma else "focal loss with gamma={}"
    yield Convention(focal, number="gamma", starts=(2.0, 1.0, 0.5))
    if weighted:
        yield Convention("class weights to the power of {}", {}, "power", (0.5, 2.0, -1.0))
    for eps in (1.0, -1.0, 1e-3, 1e-5, 1e-6, 1e-7, 1e-8, 1e-12):
        words = (
            "one less in the denominator" if eps < 0 else f"{eps:g} (eps) added to the denominator"
        )
        yield Convention(words, {"denominator_eps": eps})
    there = np.unique(on.target[on.kept])
    if len(there) == len(on.weight) > 1:
        cause = f"class weights {{}} (up to a factor) instead of [{_few(on.weight)}]"
        yield Convention(
            cause, {}, "weight", vector=len(on.weight), linear={"divisor": _SUM, "power": 1.0}
        )


def _few(values: Array) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _log_of_more(z: Array, eps: float) -> Array:
    return np.log(softmax(z) + eps)


def _log_of_least(z: Array, eps: float) -> Array:
    return np.log(_at_least(softmax(z), eps))


def _along(z: Array, axis: int) -> Array:
    return log_softmax(z, axis)


def _unweighted(on: Labels) -> Labels:
    return replace(on, weight=np.ones_like(on.weight))


def _other_labels(on: Labels, weighted: bool) -> Iterator[tuple[str, Callable[[Labels], Labels]]]:
    """What may become of labels, of their weights, and of what counts."""
    if weighted:
        yield "class weights missing", _unweighted
        yield "class weights in reverse order", lambda on: replace(on, weight=on.weight[::-1])
        for by in (1, -1):
            words = f"class weights in another order, shifted by {by:+d}"
            yield words, partial(_rolled, by)
    if not on.kept.all():
        yield "ignored labels counted as the first class", partial(_counted, label=0)
        last = "ignored labels counted as the last class (index -1 wraps)"
        yield last, partial(_counted, label=len(on.weight) - 1)
    for by in (1, -1):
        own = f"labels off by one ({by:+d}), with the weights of the right ones"
        yield f"labels off by one ({by:+d})", partial(_shifted, by)
        if weighted:
            yield own, partial(_shifted_alone, by)
    place = np.arange(len(on.target)).reshape(-1, *(1,) * (on.target.ndim - 1))
    half = place < len(on.target) // 2
    along = np.arange(on.target.shape[-1])
    axis = "last axis" if on.target.ndim > 1 else "batch"
    kept = {
        "first half of the batch alone": half,
        f"the last label along the {axis} left out": along < along[-1],
        f"the first label along the {axis} left out": along > 0,
    }
    for label in np.unique(on.target[on.kept]) if len(on.weight) <= 64 else ():
        kept[f"class {label} ignored as well (a weight of zero)"] = on.target != label
    for words, mask in kept.items():
        yield words, partial(_kept, mask)


def _rolled(by: int, on: Labels) -> Labels:
    return replace(on, weight=np.roll(on.weight, by))


def _shifted(by: int, on: Labels) -> Labels:
    return replace(on, target=(on.target + by) % len(on.weight))


def _shifted_alone(by: int, on: Labels) -> Labels:
    return replace(_shifted(by, on), counts=on.weights)


def _kept(mask: Array, on: Labels) -> Labels:
    return replace(on, kept=on.kept & mask)


def _counted(on: Labels, label: int) -> Labels:
    target = np.where(on.kept, on.target, label)
    return replace(on, target=target, kept=np.ones_like(on.kept))


def _of_one_hot() -> Iterator[tuple[str, Callable[[Array, Labels], Any]]]:
    """Losses of each class by itself."""
    elements = {
        "binary cross-entropy of each class (sigmoid)": bce,
        "squared error of the probabilities": lambda z, t: (softmax(z) - t) ** 2,
        "squared error of the logits": lambda z, t: (z - t) ** 2,
    }
    for words, element in elements.items():
        yield f"{words}, mean over all", partial(_of_classes, element, np.mean)
        yield f"{words}, sum over classes", partial(_of_classes, element, _sum_of_classes)


def _of_classes(
    element: Callable[..., Array], reduce: Callable[..., Any], z: Array, on: Labels
) -> Any:
    return reduce(element(z, on.hot))


def _sum_of_classes(each: Array) -> Any:
    return each.sum(1).mean()


# Targets of the prediction's shape
# -----------------------------------------------------------------------------


def bce(z: Array, target: Array, positive: Any = 1.0) -> Array:
    """Binary cross-entropy of scores, each element by itself."""
    return target * positive * _softplus(-z) + (1.0 - target) * _softplus(z)


def _missed(z: Array, target: Array) -> Array:
    """One minus the probability of what is true."""
    return target * sigmoid(-z) + (1.0 - target) * sigmoid(z)


def _share(target: Array, alpha: float | None) -> Any:
    """What positives and negatives count in a focal loss."""
    return 1.0 if alpha is None else alpha * target + (1.0 - alpha) * (1.0 - target)


def _focal(z: Array, t: Array, gamma: float, alpha: float | None, **_: Any) -> Array:
    return bce(z, t) * _missed(z, t) ** gamma * _share(t, alpha)


def _focal_inverted(z: Array, t: Array, gamma: float, alpha: float | None, **_: Any) -> Array:
    return bce(z, t) * (1.0 - _missed(z, t)) ** gamma * _share(t, alpha)


def _focal_detached(z: Array, t: Array, gamma: float, alpha: float | None, **_: Any) -> Array:
    return bce(z, t) * _missed(z, t).real ** gamma * _share(t, alpha)


def _huber(x: Array, t: Array, delta: float, **_: Any) -> Array:
    size = _absolute(x - t)
    return np.where(size.real < delta, 0.5 * size * size, delta * (size - 0.5 * delta))


def _own_entropy(target: Array) -> Array:
    """The target times its logarithm; zero where it is zero."""
    return target * np.log(np.where(target > 0, target, 1.0))


Element = Callable[..., Array]  # from prediction and target, with numbers by name
ELEMENTS: Mapping[str, Element] = {
    "squared error": lambda x, t, **_: (x - t) ** 2,
    "absolute error": lambda x, t, **_: _absolute(x - t),
    "Huber loss with delta=1": _huber,
    "log-cosh of the error": lambda x, t, **_: np.log(np.cosh(x - t)),
    "binary cross-entropy of logits": lambda x, t, positive, **_: bce(x, t, positive),
    "binary cross-entropy of probabilities": (
        lambda x, t, positive, **_: -t * positive * np.log(x) - (1.0 - t) * np.log(1.0 - x)
    ),
    "focal loss": _focal,
    "focal weight inverted: what is classified well counts more (p instead of 1 - p)": (
        _focal_inverted
    ),
    "no gradient through the focal weight (it is detached)": _focal_detached,
    "cross-entropy of soft targets": lambda x, t, **_: -t * log_softmax(x),
    "KL divergence": lambda x, t, **_: _own_entropy(t) - t * log_softmax(x),
    "KL divergence with its arguments exchanged": (
        lambda x, t, **_: softmax(x) * (log_softmax(x) - np.log(t))
    ),
    "Poisson likelihood": lambda x, t, **_: np.exp(x) - t * x,
}
# Those that take a softmax along axis 1; of logarithms of probabilities it changes nothing.
_OF_AXES = (
    "cross-entropy of soft targets",
    "KL divergence",
    "KL divergence with its arguments exchanged",
)
_REDUCTIONS: Mapping[str, Callable[[Array], Any]] = {
    "mean over all elements": lambda each: each.mean(),
    "sum instead of mean": lambda each: each.sum(),
    "sum over each sample, mean over the batch": lambda each: each.sum() / len(each),
    "mean over each sample, sum over the batch": lambda each: each.sum() * len(each) / each.size,
    "sum over the second axis, mean over the rest": lambda each: each.sum(
        min(1, each.ndim - 1)
    ).mean(),
    "root of the mean": lambda each: np.sqrt(each.mean()),
    "root of the sum": lambda each: np.sqrt(each.sum()),
}
_COUNTED: Mapping[str, Callable[[Array], Any]] = {
    "only the positives counted": lambda t: t,
    "only the negatives counted": lambda t: 1.0 - t,
}


def elementwise(
    x: Array,
    target: Array,
    *,
    element: Element,
    reduction: Callable[[Array], Any],
    weight: Any = 1.0,
    exchanged: bool = False,
    label_smoothing: float = 0.0,
    counted: Callable[[Array], Any] = lambda t: 1.0,
    **numbers: Any,
) -> Any:
    """A loss of each element by itself.

    Args:
        x: The prediction.
        target: Of its shape.
        element, reduction: See the tables.
        weight: Of each element.
        exchanged: Whether one minus the target is taken.
        label_smoothing: Towards one half.
        counted: From the target to what each element counts.
        numbers: Of the element: `delta`, `positive`, `alpha`, `gamma`.
    """
    own = 1.0 - target if exchanged else target
    smoothed = own * (1.0 - label_smoothing) + 0.5 * label_smoothing
    return reduction(element(x, smoothed, **numbers) * weight * counted(target))


_KINDS = {
    "mse_loss": "squared error",
    "l1_loss": "absolute error",
    "bce_with_logits": "binary cross-entropy of logits",
    "binary_focal_loss": "focal loss",
}


def of_elements(target: Array, settings: Mapping[str, Any], kind: str = "") -> Family:
    """A loss of numbers or of binary targets, with the reference's settings."""
    truth = target.astype(np.float64)
    reduction = "sum instead of mean" if settings.get("reduction") == "sum" else ""
    usual = {
        "element": ELEMENTS[_KINDS.get(kind, "squared error")],
        "reduction": _REDUCTIONS[reduction or "mean over all elements"],
        "weight": _or_one(settings.get("weight")),
        "positive": _or_one(settings.get("pos_weight")),
        "gamma": float(settings.get("gamma", 2.0)),
        "alpha": settings.get("alpha"),
        "delta": 1.0,
    }
    return Family(partial(elementwise, target=truth), usual, partial(_of_elements, truth))


def _or_one(value: Any) -> Any:
    return 1.0 if value is None else np.asarray(value, np.float64)


def _of_elements(target: Array, usual: Mapping[str, Any]) -> Iterator[Convention]:
    flat = target.ndim < 2
    yield from _rows("reduction", _REDUCTIONS, usual["reduction"])
    own = {name: e for name, e in ELEMENTS.items() if not (flat and name in _OF_AXES)}
    name = next((name for name, each in ELEMENTS.items() if each is usual["element"]), "")
    instead = f" instead of {name}" if name else ""
    elements = {f"{other}{instead}": element for other, element in own.items()}
    yield from _rows("element", elements, usual["element"])
    yield Convention("Huber loss with delta={}", {"element": _huber}, "delta", (0.5, 2.0), LOG)
    beta = {"element": lambda x, t, delta, **_: _huber(x, t, delta) / delta}
    yield Convention("smooth L1 with beta={}", beta, "delta", (1.0, 0.5), LOG)
    if not ((target >= 0) & (target <= 1)).all():
        return
    yield Convention("targets exchanged (1 - target)", {"exchanged": True})
    yield from _rows("counted", _COUNTED)
    alpha, gamma, positive = usual["alpha"], usual["gamma"], usual["positive"]
    if np.any(positive != 1.0):
        yield Convention("pos_weight missing", {"positive": 1.0})
    if np.any(usual["weight"] != 1.0):
        yield Convention("weight missing", {"weight": 1.0})
    if alpha is not None:
        words = f"alpha={1 - alpha:g} (that of the negatives) instead of {alpha:g}"
        yield Convention("focal loss without alpha", {"alpha": None})
        yield Convention(words, {"alpha": 1.0 - alpha})
    if usual["element"] is _focal:
        yield _instead("gamma", gamma, (1.0, 0.5, 3.0))
        yield Convention(f"alpha={{}} instead of {alpha}", {}, "alpha", (0.25, 0.75))
    else:
        focal = {"element": _focal}
        yield Convention("focal loss without alpha, gamma={}", focal, "gamma", (2.0, 1.0))
        alphas = {**focal, "gamma": 2.0}
        yield Convention("focal loss with gamma=2 and alpha={}", alphas, "alpha", (0.25, 0.75))
    yield _instead("label_smoothing", 0.0, (0.1, 0.2))
    yield Convention("pos_weight={}", {}, "positive", (2.0, 0.5), LOG)
    if not flat and target.shape[-1] > 1:
        for name, word in (("positive", "pos_weight"), ("weight", "weight")):
            cause = f"{word}={{}} along the last axis"
            yield Convention(cause, {}, name, vector=target.shape[-1])


# Overlaps of regions
# -----------------------------------------------------------------------------

_FINISHES: Mapping[str, Callable[[Array], Any]] = {
    "mean of one minus the coefficient": lambda found: (1.0 - found).mean(),
    "sum instead of mean": lambda found: (1.0 - found).sum(),
    "negative coefficient instead of one minus it": lambda found: -found.mean(),
    "the coefficient itself instead of one minus it": lambda found: found.mean(),
    "logarithm: -log of the coefficient": lambda found: -np.log(found).mean(),
    "logarithm: -log of the mean coefficient": lambda found: -np.log(found.mean()),
    "sum over classes, mean over the batch": lambda found: (1.0 - found).sum(-1).mean(),
}


def overlap(
    p: Array,
    target: Array,
    *,
    smooth: float,
    below: float | None = None,
    dims: tuple[int, ...] | None = None,
    top: float = 2.0,
    power: int = 1,
    start: int = 0,
    hard: bool = False,
    index: tuple[float, float] | None = None,
    finish: Callable[[Array], Any],
    exponent: float = 1.0,
) -> Any:
    """The soft Dice loss of each sample and class, or another index of overlaps.

    Args:
        p: Probabilities ``(batch, classes, ...)``.
        target: One-hot labels of that shape.
        smooth, below: Added to the numerator and to the denominator; equal when `below` is None.
        dims: Which axes are summed over; those after the second when None.
        top: The factor of the overlap.
        power: Of probabilities and labels in the denominator.
        start: The first class that counts.
        hard: Whether the most likely class is taken, which has no gradient.
        index: What false positives and false negatives count: a Tversky index; (1, 1) is Jaccard's.
        finish, exponent: From coefficients to the loss, one minus which is raised to a power.
    """
    if hard:
        p = np.moveaxis(np.eye(p.shape[1])[np.argmax(p.real, 1)], -1, 1)
    dims = tuple(range(2, p.ndim)) if dims is None else dims
    p, target = p[:, start:], target[:, start:]
    both = (p * target).sum(dims)
    if index is None:
        above, total = top * both, (p**power).sum(dims) + (target**power).sum(dims)
    else:
        above = both
        missed = index[0] * (p * (1.0 - target)).sum(dims)
        total = both + missed + index[1] * ((1.0 - p) * target).sum(dims)
    found = (above + smooth) / (total + (smooth if below is None else below))
    return finish(found if exponent == 1.0 else 1.0 - (1.0 - found) ** exponent)


def of_overlaps(target: Array, settings: Mapping[str, Any], kind: str = "dice_loss") -> Family:
    """The Dice or Tversky loss with the reference's settings."""
    reduction = "sum instead of mean" if settings.get("reduction") == "sum" else ""
    usual: dict[str, Any] = {
        "smooth": float(settings.get("smooth", SMOOTH)),
        "start": 0 if settings.get("include_background", True) else 1,
        "finish": _FINISHES[reduction or "mean of one minus the coefficient"],
    }
    if kind == "tversky_loss":
        usual["index"] = (float(settings["alpha"]), float(settings["beta"]))
        usual["exponent"] = float(settings["gamma"])
    truth = target.astype(np.float64)
    return Family(partial(overlap, target=truth), usual, partial(_of_overlaps, truth))


def _of_overlaps(target: Array, usual: Mapping[str, Any]) -> Iterator[Convention]:
    smooth, spatial = usual["smooth"], tuple(range(2, target.ndim))
    yield from _rows("finish", _FINISHES, usual["finish"])
    dims = {
        "over the whole batch": (0, *spatial),
        "over the classes too": (1, *spatial),
        "over batch and classes (one coefficient)": (0, 1, *spatial),
    }
    yield from _rows("dims", {f"overlap and sizes {words}": axes for words, axes in dims.items()})
    yield Convention("squares in the denominator", {"power": 2})
    yield Convention("no factor of two for the overlap", {"top": 1.0})
    counted = "counted" if usual["start"] else "left out"
    yield Convention(f"the background (channel 0) {counted}", {"start": 1 - usual["start"]})
    yield Convention("smooth missing in the denominator", {"below": 0.0})
    yield Convention("smooth missing in the numerator", {"smooth": 0.0, "below": smooth})
    yield Convention("of the most likely classes (hard, without a gradient)", {"hard": True})
    yield Convention("Jaccard index (IoU) instead of Dice", {"index": (1.0, 1.0)})
    for alpha in (0.3, 0.7):
        words = f"Tversky index with alpha={alpha:g} and beta={1 - alpha:g}"
        yield Convention(words, {"index": (alpha, 1.0 - alpha)})
    usually = f"{smooth:g}"
    starts = (1e-5, 1e-2, 1.0, 1e-7)
    yield Convention(f"smooth={{}} instead of {usually}", {}, "smooth", starts, LOG)
    alone = f"smooth={{}} in the denominator alone, instead of {usually} in both"
    yield Convention(alone, {"smooth": 0.0}, "below", starts, LOG)
    alone = f"smooth={{}} in the numerator alone, instead of {usually} in both"
    yield Convention(alone, {"below": 0.0}, "smooth", starts, LOG)
    words = f"smooth={{}} in the denominator instead of {usually}"
    yield Convention(words, {"smooth": smooth}, "below", starts, LOG)
    words = f"smooth={{}} in the numerator instead of {usually}"
    yield Convention(words, {"below": smooth}, "smooth", starts, LOG)
    yield Convention("one minus the coefficient to the power of {}", {}, "exponent", (0.75, 2.0))


# Which family
# -----------------------------------------------------------------------------

_LABELS, _OVERLAPS = ("cross_entropy", "focal_loss"), ("dice_loss", "tversky_loss")


def family(
    prediction: Array, target: Array, settings: Mapping[str, Any], kind: str = ""
) -> Family | None:
    """What is known of a loss of such a prediction and target; None for none.

    Args:
        prediction, target: What the loss is given.
        settings: The reference's, by the names of the functions of `nn`.
        kind: The function of `nn`, where that is known.
    """
    if kind in _OVERLAPS:
        return of_overlaps(target, settings, kind)
    if target.dtype.kind in "iu" and prediction.ndim == target.ndim + 1:
        return of_labels(prediction, target, settings)
    if target.shape == prediction.shape:
        return of_elements(target, settings, kind)
    return None
