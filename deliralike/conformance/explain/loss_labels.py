"""Losses of whole-number labels: cross-entropy with other denominators, weights and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.loss_elements import bce
from deliralike.conformance.explain.loss_judge import Known, Loss, listed
from deliralike.conformance.explain.variant import number

IGNORED = -100


@dataclass(frozen=True)
class Labels:
    """What classification losses are made of.

    Attributes:
        target: Whole numbers ``(batch, ...)``.
        classes: How many.
        weight: One for each class, ones where the reference has none.
        kept: Which positions count.
        smoothing: The reference's.
        weighted: Whether the reference has weights.
    """

    target: np.ndarray
    classes: int
    weight: np.ndarray
    kept: np.ndarray
    smoothing: float = 0.0
    weighted: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, prediction: np.ndarray, target: np.ndarray, settings: Mapping[str, Any]) -> Labels:
        """Make labels from a prediction ``(batch, classes, ...)``, a target and settings.

        The settings are those of `nn.cross_entropy`.
        """
        classes, given = prediction.shape[1], settings.get("weight")
        ignore = settings.get("ignore_index", IGNORED)
        weight = np.ones(classes) if given is None else np.asarray(given, np.float64)
        kept = (target != ignore) & (target >= 0)
        return cls(
            target,
            classes,
            weight,
            kept,
            float(settings.get("label_smoothing", 0.0)),
            given is not None,
            settings,
        )

    def one_hot(self, shift: int = 0) -> np.ndarray:
        """``(batch, classes, ...)``; zeros where nothing counts."""
        label = (np.where(self.kept, self.target, 0) + shift) % self.classes
        return np.moveaxis(np.eye(self.classes)[label] * self.kept[..., None], -1, 1)

    def weights(self, weighted: bool = True, shift: int = 0) -> np.ndarray:
        """What each position counts."""
        label = (np.where(self.kept, self.target, 0) + shift) % self.classes
        return self.kept * (self.weight[label] if weighted else 1.0)


def log_softmax(z: np.ndarray, axis: int = 1) -> np.ndarray:
    """Of complex numbers too."""
    z = z - z.real.max(axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


def cross_entropy(
    z: np.ndarray,
    on: Labels,
    *,
    divisor: str = "weights",
    smoothing: float | None = None,
    weighted: bool = True,
    shift: int = 0,
    spread: str = "all",
    log_p: Callable[[np.ndarray], np.ndarray] = log_softmax,
    focus: float = 0.0,
    spread_weighted: bool = True,
    whole: bool = False,
    own_weights: bool = False,
) -> Any:
    """Cross-entropy of labels under conventions of its own.

    Args:
        z: The prediction.
        on: Labels, weights and what is ignored.
        divisor: See `_divided`.
        smoothing: Instead of the reference's.
        weighted: Whether class weights count.
        shift: Added to each label.
        spread: Over which classes the smoothing's share is spread: ``"all"``, ``"others"``,
            ``"total"`` (each gets the whole share).
        log_p: Instead of the logarithm of the softmax.
        focus: The exponent of focal loss.
        spread_weighted: Whether the smoothing's part is weighted as well.
        whole: Whether the label keeps its whole share.
        own_weights: Whether a shifted label keeps the weight of the label that it was.
    """
    smoothing = on.smoothing if smoothing is None else smoothing
    logs, hot = log_p(z), on.one_hot(shift)
    per_class = on.weight.reshape(1, -1, *(1,) * (z.ndim - 2)) if weighted else 1.0
    per_class_spread = per_class if spread_weighted else 1.0
    own = on.weights(weighted)[:, None] if own_weights else per_class
    right = -(hot * own * logs).sum(1)
    counted = on.kept[:, None] * 1.0 - (hot if spread == "others" else 0.0)
    every = -counted * per_class_spread * logs
    share = {
        "all": smoothing / on.classes,
        "others": smoothing / max(on.classes - 1, 1),
        "total": smoothing,
    }[spread]
    each = (
        (1.0 if whole else 1.0 - smoothing) * right + share * every.sum(1) if smoothing else right
    )
    if focus:
        each = each * (1.0 - np.exp((hot * logs).sum(1))) ** focus
    return _divided(each, on, divisor, weighted, 0 if own_weights else shift)


def _divided(
    each: np.ndarray, on: Labels, divisor: str, weighted: bool = True, shift: int = 0
) -> Any:
    """A sum by one of several denominators."""
    weights = on.weights(weighted, shift)
    if divisor == "class means":
        labels = [label for label in range(on.classes) if (on.kept & (on.target == label)).any()]
        return sum(each[on.kept & (on.target == label)].mean() for label in labels) / len(labels)
    if divisor == "sample means":
        axes = tuple(range(1, each.ndim))
        return (each.sum(axes) / weights.sum(axes)).mean()
    if divisor == "largest":
        return each.flat[int(np.argmax(each.real))]
    if divisor in _OF_EACH:
        return _OF_EACH[divisor](each)
    ignored = float((~on.kept).sum())
    total = {
        "with ignored": weights.sum() + ignored * on.weight[0],
        "with ignored, last": weights.sum() + ignored * on.weight[-1],
        "one less": weights.sum() - 1.0,
        "one more": weights.sum() + 1.0,
        "weights": weights.sum(),
        "counted": on.kept.sum(),
        "all": each.size,
        "batch": len(each),
        "one": 1.0,
        "elements": each.size * on.classes,
        "classes": on.classes,
        "all weights": on.weight.sum(),
        "positions": each.size / len(each),
        "root": math.sqrt(each.size),
    }[divisor]
    return each.sum() / total


_OF_EACH: dict[str, Callable[[np.ndarray], Any]] = {
    "root mean square": lambda each: np.sqrt((each**2).mean()),
    "mean square": lambda each: (each**2).mean(),
    "root of the mean": lambda each: np.sqrt(each.mean()),
    "logarithm of the mean": lambda each: np.log(each.mean()),
    "median": lambda each: np.mean([each.flat[i] for i in _middle(each.real.ravel())]),
    "largest of each": lambda each: np.take_along_axis(
        _rows(each), np.argmax(_rows(each.real), 1)[:, None], 1
    ).mean(),
}


def _rows(each: np.ndarray) -> np.ndarray:
    return each.reshape(len(each), -1)


def _middle(values: np.ndarray) -> np.ndarray:
    """The places of the one or two in the middle."""
    order = np.argsort(values)
    return order[(len(order) - 1) // 2 : len(order) // 2 + 1]


DIVISORS = {
    "one": "sum instead of mean",
    "counted": "class weights by count: divided by the number of labels instead of the sum of their weights",
    "all": "ignored labels in the denominator: divided by the number of all labels",
    "batch": "divided by the batch size alone (sum over positions)",
    "elements": "mean over classes as well (all elements)",
    "class means": "mean of the classes' means",
    "sample means": "mean of the samples' means",
    "classes": "divided by the number of classes",
    "all weights": "divided by the sum of all class weights",
    "positions": "divided by the number of positions alone (sum over the batch)",
    "root": "divided by the root of the number of labels",
    "with ignored": "ignored labels in the denominator, with the weight of the first class",
    "with ignored, last": "ignored labels in the denominator, with the weight of the last class",
    "one less": "one less in the denominator",
    "one more": "one more in the denominator",
    "largest": "maximum over the labels instead of the mean",
    "root mean square": "root of the mean square of the labels' losses",
    "mean square": "mean of the squares of the labels' losses",
    "root of the mean": "root of the mean",
    "logarithm of the mean": "logarithm of the mean",
    "median": "median over the labels instead of the mean",
    "largest of each": "maximum over each sample's labels, mean over the batch",
}


def classification(on: Labels) -> Iterator[Known]:
    """What is known of losses of whole-number labels."""
    loss = partial(_made, on)
    for divisor, cause in DIVISORS.items():
        if divisor in ("sample means", "largest of each") and on.target.ndim < 2:
            continue
        yield Known(cause, loss(divisor=divisor))
    if on.weighted:
        yield Known("class weights missing", loss(weighted=False))
        yield Known("class weights in the denominator alone", _in_denominator_alone(on))
        inverse = Labels(on.target, on.classes, 1.0 / on.weight, on.kept, on.smoothing, True)
        yield Known("class weights inverted (1 / weight)", _made(inverse))
        yield Known(
            "class weights squared",
            _made(Labels(on.target, on.classes, on.weight**2, on.kept, on.smoothing, True)),
        )
        reverse = Labels(on.target, on.classes, on.weight[::-1], on.kept, on.smoothing, True)
        yield Known("class weights in reverse order", _made(reverse))
    if not on.kept.all():
        for label, word in (
            (0, "the first class"),
            (on.classes - 1, "the last class (index -1 wraps)"),
        ):
            target = np.where(on.kept, on.target, label)
            counted = Labels(
                target, on.classes, on.weight, np.ones_like(on.kept), on.smoothing, on.weighted
            )
            yield Known(f"ignored labels counted as {word}", _made(counted))
    if on.smoothing:
        yield Known(f"no label smoothing instead of {number(on.smoothing)}", loss(smoothing=0.0))
        yield Known("label smoothing spread over the other classes alone", loss(spread="others"))
        yield Known("label smoothing not divided by the number of classes", loss(spread="total"))
        yield Known("label smoothing: the label keeps its whole share", loss(whole=True))
        yield Known("label smoothing without class weights", loss(spread_weighted=False))
    yield from _other_labels(on)
    yield Known("{} (eps) added to the denominator", partial(_with_eps, on), (1e-5, 1e-3), 0.0, 0.1)
    yield Known(
        "probabilities clipped at {} from below", partial(_clipped, on), (1e-7, 1e-3, 0.1), 0.0
    )
    smoothing = f"label smoothing={{}} instead of {number(on.smoothing)}"
    yield Known(
        smoothing, lambda z, s: cross_entropy(z, on, smoothing=s), (0.1, 0.05, 0.2), 0.0, 1.0
    )
    yield Known(
        "label smoothing={} spread over the other classes alone",
        lambda z, s: cross_entropy(z, on, smoothing=s, spread="others"),
        (0.1, 0.2),
        0.0,
        1.0,
    )
    for shift in (1, -1):
        yield Known(f"labels off by one ({shift:+d})", loss(shift=shift))
        if on.weighted:
            yield Known(
                f"labels off by one ({shift:+d}), with the weights of the right ones",
                loss(shift=shift, own_weights=True),
            )
    yield Known("logarithm to base 2", lambda z: cross_entropy(z, on) / math.log(2.0))
    yield Known("logarithm to base 10", lambda z: cross_entropy(z, on) / math.log(10.0))
    yield Known(
        "softmax twice (probabilities fed as logits)",
        loss(log_p=lambda z: log_softmax(np.exp(log_softmax(z)))),
    )
    yield Known(
        "log_softmax and softmax: probabilities without their logarithm",
        loss(log_p=lambda z: np.exp(log_softmax(z))),
    )
    yield Known("softmax missing: the negative logit", loss(log_p=lambda z: z))
    yield Known(
        "softmax missing: logarithm of the logits taken for probabilities", loss(log_p=np.log)
    )
    yield Known("sigmoid instead of softmax", loss(log_p=lambda z: -np.log(1.0 + np.exp(-z))))
    for axis in [axis for axis in (0, *range(2, on.target.ndim + 1)) if axis != 1]:
        yield Known(
            f"softmax over axis {axis} instead of 1", loss(log_p=partial(log_softmax, axis=axis))
        )
    yield Known(
        "temperature={} instead of 1", lambda z, t: cross_entropy(z / t, on), (2.0, 0.5, 4.0), 1e-3
    )
    yield Known(
        "focal loss with gamma={}", lambda z, g: cross_entropy(z, on, focus=g), (2.0, 1.0, 0.5), 0.0
    )
    for little in (
        2.2e-308,
        float(np.finfo(float).tiny),
        1e-300,
        1e-45,
        1e-38,
        1e-30,
        1e-20,
        1e-16,
        1e-12,
        1e-10,
    ):
        yield Known(
            f"{little:.3g} (eps) added to the probabilities inside the logarithm",
            loss(log_p=partial(_log_of_more, eps=little)),
        )
    yield from _free_weights(on)
    yield Known(
        "probabilities clipped, with {} added inside the logarithm",
        lambda z, e: cross_entropy(z, on, log_p=lambda z: np.log(np.exp(log_softmax(z)) + e)),
        (1e-8, 1e-6, 1e-3),
        0.0,
    )
    hot = on.one_hot()
    yield Known(
        "binary cross-entropy of each class (sigmoid), mean over all", lambda z: bce(z, hot).mean()
    )
    yield Known(
        "binary cross-entropy of each class (sigmoid), sum over classes",
        lambda z: _divided(bce(z, hot).sum(1), on, "counted"),
    )
    yield Known(
        "squared error of the probabilities, mean over all",
        lambda z: ((np.exp(log_softmax(z)) - hot) ** 2).mean(),
    )
    yield Known(
        "squared error of the probabilities, sum over classes",
        lambda z: _divided(((np.exp(log_softmax(z)) - hot) ** 2).sum(1), on, "counted"),
    )
    yield Known("squared error of the logits, mean over all", lambda z: ((z - hot) ** 2).mean())
    yield Known("hinge loss with margin {}", lambda z, m: _hinge(z, on, m), (1.0, 0.5), 0.0)
    yield Known(
        "entropy of the prediction subtracted, times {}",
        lambda z, a: cross_entropy(z, on) - a * _entropy(z),
        (0.1, 1.0),
    )
    yield Known(
        "squares of the logits added, times {}",
        lambda z, a: cross_entropy(z, on) + a * (z * z).sum(),
        (1e-4, 1e-2),
    )
    yield Known(
        "logits clipped to +-{}",
        lambda z, c: cross_entropy(_clip(z, -c, c), on),
        (1.0, 2.0, 5.0, 50.0),
        0.0,
    )
    yield Known(
        "cross-entropy of two with the labels' smoothed targets, class weights by count",
        loss(divisor="counted", smoothing=on.smoothing),
    )
    for divisor in ("one", "counted", "all", "batch", "elements"):
        yield Known(
            f"{DIVISORS[divisor]}; class weights missing", loss(divisor=divisor, weighted=False)
        )
        yield Known(
            f"label smoothing={{}}; {DIVISORS[divisor]}",
            partial(_smoothed, on, divisor),
            (0.1, 0.2),
            0.0,
            1.0,
        )


def _in_denominator_alone(on: Labels) -> Loss:
    return lambda z: cross_entropy(z, on, weighted=False, divisor="one") / on.weights().sum()


def _other_labels(on: Labels) -> Iterator[Known]:
    """Other weights, and other labels that count."""
    if on.weighted:
        for shift in (1, -1):
            rolled = replace(on, weight=np.roll(on.weight, shift))
            yield Known(f"class weights in another order, shifted by {shift:+d}", _made(rolled))
        yield Known(
            "class weights: their roots (to the power of 0.5)",
            _made(replace(on, weight=np.sqrt(on.weight))),
        )
        yield Known(
            "class weights to the power of {}",
            lambda z, a: cross_entropy(z, replace(on, weight=on.weight**a)),
            (0.5, 2.0),
        )
    half = np.arange(len(on.target)).reshape(-1, *(1,) * (on.target.ndim - 1)) < len(on.target) // 2
    yield Known("first half of the batch alone", _made(replace(on, kept=on.kept & half)))
    yield Known("second half of the batch alone", _made(replace(on, kept=on.kept & ~half)))
    last = np.arange(on.target.shape[-1]) == on.target.shape[-1] - 1
    axis = "last axis" if on.target.ndim > 1 else "batch"
    for word, mask in (("last", last), ("first", last[::-1])):
        yield Known(
            f"the {word} label along the {axis} left out", _made(replace(on, kept=on.kept & ~mask))
        )
        yield Known(
            f"the {word} label along the {axis} alone", _made(replace(on, kept=on.kept & mask))
        )
    for label in np.unique(on.target[on.kept]) if on.classes <= 64 else ():
        fewer = replace(on, kept=on.kept & (on.target != label))
        yield Known(f"class {label} ignored as well (a weight of zero)", _made(fewer))
    for shift in (1, -1):
        clamped = np.clip(on.target + shift, 0, on.classes - 1)
        yield Known(f"labels off by one ({shift:+d}, clamped)", _made(replace(on, target=clamped)))


def _free_weights(on: Labels) -> Iterator[Known]:
    """Any class weights: the weighted mean is linear in them, up to a common factor."""
    there = [int(label) for label in np.unique(on.target[on.kept])]
    if on.smoothing or len(there) < 2:
        return
    alone = [replace(on, kept=on.kept & (on.target == label)) for label in there]
    usual = on.weight[there]

    def weights(of: Callable[[Loss], np.ndarray], wanted: np.ndarray) -> np.ndarray | None:
        sums = np.stack([of(_made(one, divisor="one", weighted=False)) for one in alone], 1)
        counts = np.array([one.kept.sum() for one in alone], float)
        matrix = (sums - np.outer(wanted, counts)) / (np.abs(wanted)[:, None] + 1e-300)
        if len(there) >= len(wanted) or not np.isfinite(matrix).all():
            return None
        found = np.linalg.svd(matrix)[2][-1]
        return found * (usual @ found) / float(found @ found) if found @ usual else None

    def loss(z: np.ndarray, found: np.ndarray) -> Any:
        full = on.weight.astype(float)
        full[there] = found
        return cross_entropy(z, replace(on, weight=full, weighted=True))

    yield Known(
        f"class weights {{}} (up to a factor) instead of {listed(usual.tolist())}, of classes "
        f"{there}",
        loss,
        weights=weights,
        shown=listed,
    )


def _with_eps(on: Labels, z: np.ndarray, eps: float) -> Any:
    total = on.weights().sum()
    return cross_entropy(z, on) * (total / (total + eps))


def _clipped(on: Labels, z: np.ndarray, low: float) -> Any:
    return cross_entropy(z, on, log_p=partial(_clipped_log, low=low))


def _log_of_more(z: np.ndarray, eps: float) -> np.ndarray:
    return np.log(np.exp(log_softmax(z)) + eps)


def _clipped_log(z: np.ndarray, low: float) -> np.ndarray:
    p = np.exp(log_softmax(z))
    return np.log(np.where(p.real < low, low, p))


def _made(on: Labels, **how: Any) -> Loss:
    return lambda z: cross_entropy(z, on, **how)


def _entropy(z: np.ndarray) -> Any:
    return -(np.exp(log_softmax(z)) * log_softmax(z)).sum(1).mean()


def _smoothed(on: Labels, divisor: str, z: np.ndarray, smoothing: float) -> Any:
    return cross_entropy(z, on, smoothing=smoothing, divisor=divisor)


def _clip(z: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(z.real < low, low, np.where(z.real > high, high, z))


def _hinge(z: np.ndarray, on: Labels, margin: float) -> Any:
    hot = on.one_hot()
    over = margin + z - (hot * z).sum(1, keepdims=True)
    each = (np.where(over.real > 0, over, 0.0) * (1.0 - hot)).sum(1) / on.classes
    return _divided(each * on.kept, on, "counted")
