"""Why a loss differs: every known loss of the same prediction and target, by its value and its gradient.

A gradient is compared along a few random directions, in which the derivative of a formula is exact by a complex step:
``f(x + ih d) = f(x) + ih f'(x) d``. So each convention is one formula, without a gradient of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.fitting import EXACT, fit
from deliralike.conformance.explain.variant import number
from deliralike.conformance.findings import LIMIT, MATCH, Explanation

STEP = 1e-30
DIRECTIONS = 8
IGNORED = -100

Loss = Callable[[np.ndarray], Any]  # from a (complex) prediction to a scalar


@dataclass(frozen=True)
class _Known:
    """A loss under some convention; with a free number where `starts` has where to look for it."""

    cause: str
    loss: Callable[..., Any]
    starts: tuple[float, ...] = ()
    least: float = -1e6
    most: float = 1e6


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
        """From a prediction ``(batch, classes, ...)``, a target and the settings of `nn.cross_entropy`."""
        classes, given = prediction.shape[1], settings.get("weight")
        ignore = settings.get("ignore_index", IGNORED)
        weight = np.ones(classes) if given is None else np.asarray(given, np.float64)
        kept = (target != ignore) & (target >= 0)
        return cls(
            target, classes, weight, kept, float(settings.get("label_smoothing", 0.0)), given is not None, settings
        )

    def one_hot(self, shift: int = 0) -> np.ndarray:
        """``(batch, classes, ...)``; zeros where nothing counts."""
        label = (np.where(self.kept, self.target, 0) + shift) % self.classes
        return np.moveaxis(np.eye(self.classes)[label] * self.kept[..., None], -1, 1)

    def weights(self, weighted: bool = True, shift: int = 0) -> np.ndarray:
        """What each position counts."""
        label = (np.where(self.kept, self.target, 0) + shift) % self.classes
        return self.kept * (self.weight[label] if weighted else 1.0)


def explain_loss(
    prediction: np.ndarray,
    target: np.ndarray,
    reference: tuple[float, np.ndarray | None],
    candidate: tuple[float, np.ndarray | None],
    settings: Mapping[str, Any] | None = None,
) -> Explanation | None:
    """The most likely cause of another loss.

    Args:
        prediction: What both losses were given.
        target: Whole numbers for classification, floating ones of the prediction's shape for regression and binary
            targets.
        reference, candidate: The value of the loss, and its gradient with respect to the prediction; None where it is
            not known, and then no number is searched for.
        settings: The reference's, as `nn.cross_entropy` and its like take them.

    Returns:
        None where both agree.

    Example:
        >>> z, t = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([1.0, 2.0])
        >>> explain_loss(z[:, 0], t, (0.5 * 2.25, z[:, 0] - t), (2.25, 2 * (z[:, 0] - t))).cause
        'loss times 2'
    """
    judge = _Judge(np.asarray(prediction, np.float64), candidate)
    apart = judge.distance(judge.vector_of(*reference))
    if apart <= LIMIT:
        return None
    best: tuple[float, str] = (np.inf, "")
    second = apart
    for cause, distance in _candidates(judge, np.asarray(target), reference, settings or {}):
        if distance < best[0]:
            second, best = min(second, best[0]), (distance, cause)
        else:
            second = min(second, distance)
        if best[0] <= EXACT:
            break
    if not best[1] or (best[0] <= MATCH and best[0] > 1e-3 * apart):
        return None
    return Explanation(best[1], best[0], second if best[0] < second else None)


def _candidates(
    judge: _Judge, target: np.ndarray, reference: tuple[float, np.ndarray | None], settings: Mapping[str, Any]
) -> Iterator[tuple[str, float]]:
    with np.errstate(all="ignore"):
        known = list(losses(judge.prediction, target, settings))
        for one in known:
            if one.starts and judge.with_gradient:
                value, distance = fit(
                    lambda at, one=one: judge.vector(lambda x: one.loss(x, at)),  # type: ignore[misc]
                    judge.wanted, one.starts, one.least, one.most,
                )  # fmt: skip
                yield one.cause.format(number(value)), judge.distance(judge.vector(partial(_at, one.loss, value)))
            if one.starts and not judge.with_gradient:
                yield from _plain_numbers(judge, one)
            if not one.starts:
                yield one.cause, judge.distance(judge.vector(one.loss))
        yield from _from_reference(judge, reference)
        for one in known:
            if not one.starts and judge.with_gradient:
                yield from _times(judge, judge.vector(one.loss), one.cause)


def _plain_numbers(judge: _Judge, one: _Known) -> Iterator[tuple[str, float]]:
    """One value fits some number, whatever the cause is: only one with few digits says something."""
    fitted, _ = fit(lambda at: judge.vector(partial(_at, one.loss, at)), judge.wanted, one.starts, one.least, one.most)
    for value in {float(f"{fitted:.2e}"), *one.starts}:
        yield one.cause.format(number(value)), judge.distance(judge.vector(partial(_at, one.loss, value)))


def _at(loss: Callable[..., Any], value: float, x: np.ndarray) -> Any:
    return loss(x, value)


def _from_reference(judge: _Judge, reference: tuple[float, np.ndarray | None]) -> Iterator[tuple[str, float]]:
    """Factors and terms between the two as they are."""
    usual, wanted = judge.vector_of(*reference), judge.wanted
    yield from _times(judge, usual, "loss")
    if not judge.with_gradient:
        return
    gradient, value = (vector.copy() for vector in (usual, usual))
    gradient[0], value[1:] = wanted[0], wanted[1:]
    if not wanted[1:].any():
        yield "loss without a gradient", judge.distance(np.concatenate([usual[:1], np.zeros(len(usual) - 1)]))
    shift = (wanted[0] - usual[0]) * judge.sizes[0]
    yield f"loss plus {number(shift)}, which does not depend on the prediction", judge.distance(gradient)
    factor = float(usual[1:] @ wanted[1:]) / (float(usual[1:] @ usual[1:]) or 1.0)
    scaled = np.concatenate([usual[:1], factor * usual[1:]])
    yield f"gradient of the loss times {number(_plain(factor))}, its value as it should be", judge.distance(scaled)


def _times(judge: _Judge, usual: np.ndarray, name: str) -> Iterator[tuple[str, float]]:
    square = float(usual @ usual)
    if not judge.with_gradient or not square or not np.isfinite(square):
        return
    factor = _plain(float(usual @ judge.wanted) / square)
    word = "negated" if factor == -1.0 else f"times {number(factor)}"
    yield f"{name} {word}", judge.distance(factor * usual)


def _plain(value: float) -> float:
    """A number without the rounding errors of its fit."""
    plain = float(f"{value:.9e}")
    return plain if abs(plain - value) <= 1e-12 * abs(value) else value


class _Judge:
    """Compares losses with the candidate's, by value and by the derivative along fixed directions."""

    def __init__(self, prediction: np.ndarray, candidate: tuple[float, np.ndarray | None]) -> None:
        self.prediction, self.with_gradient = prediction, candidate[1] is not None
        generator = np.random.default_rng(0)
        count = DIRECTIONS if self.with_gradient else 0
        self.directions = [generator.standard_normal(prediction.shape) for _ in range(count)]
        self.sizes = np.ones(1 + count)
        raw = self.vector_of(*candidate)
        self.sizes = np.concatenate([[abs(raw[0]) or 1.0], np.full(count, np.linalg.norm(raw[1:]) or 1.0)])
        self.wanted = self.vector_of(*candidate)

    def vector_of(self, value: float, gradient: np.ndarray | None) -> np.ndarray:
        """A value and a gradient as numbers of size one."""
        along = [] if gradient is None else [float((gradient * d).sum()) for d in self.directions]
        along = along or [np.nan] * len(self.directions)
        return np.array([float(value), *along]) / self.sizes

    def vector(self, loss: Loss) -> np.ndarray:
        """The same of a formula."""
        if not self.directions:
            return np.array([float(np.real(loss(self.prediction.astype(complex))))]) / self.sizes
        found = [loss(self.prediction + 1j * STEP * direction) for direction in self.directions]
        return np.array([np.real(found[0]), *(np.imag(one) / STEP for one in found)], np.float64) / self.sizes

    def distance(self, vector: np.ndarray) -> float:
        """The larger one of the value's and the gradient's relative distance."""
        apart = np.abs(vector - self.wanted)
        found = max(float(apart[0]), float(np.linalg.norm(apart[1:])))
        return found if np.isfinite(found) else np.inf


# The losses --------------------------------------------------------------------------------------------------------


def losses(prediction: np.ndarray, target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[_Known]:
    """All that are known for such a target, the likely ones first."""
    if target.dtype.kind in "iu" and prediction.ndim == target.ndim + 1:
        yield from _classification(Labels.of(prediction, target, settings))
    elif target.shape == prediction.shape:
        target = target.astype(np.float64)
        if ((target >= 0) & (target <= 1)).all():
            yield from _binary(target, settings)
        yield from _regression(target)


def log_softmax(z: np.ndarray, axis: int = 1) -> np.ndarray:
    """Of complex numbers too."""
    z = z - z.real.max(axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


def _cross_entropy(
    z: np.ndarray, on: Labels, *, divisor: str = "weights", smoothing: float | None = None, weighted: bool = True,
    shift: int = 0, spread: str = "all", log_p: Callable[[np.ndarray], np.ndarray] = log_softmax, focus: float = 0.0,
    spread_weighted: bool = True, whole: bool = False,
) -> Any:  # fmt: skip
    """Cross-entropy of labels under conventions of its own.

    Args:
        z: The prediction.
        on: Labels, weights and what is ignored.
        divisor: See `_divided`.
        smoothing: Instead of the reference's.
        weighted: Whether class weights count.
        shift: Added to each label.
        spread: Over which classes the smoothing's share is spread: ``"all"``, ``"others"``, ``"total"`` (each gets the
            whole share).
        log_p: Instead of the logarithm of the softmax.
        focus: The exponent of focal loss.
        spread_weighted: Whether the smoothing's part is weighted as well.
        whole: Whether the label keeps its whole share.
    """
    smoothing = on.smoothing if smoothing is None else smoothing
    logs, hot = log_p(z), on.one_hot(shift)
    per_class = on.weight.reshape(1, -1, *(1,) * (z.ndim - 2)) if weighted else 1.0
    per_class_spread = per_class if spread_weighted else 1.0
    right = -(hot * per_class * logs).sum(1)
    counted = on.kept[:, None] * 1.0 - (hot if spread == "others" else 0.0)
    every = -counted * per_class_spread * logs
    share = {"all": smoothing / on.classes, "others": smoothing / max(on.classes - 1, 1), "total": smoothing}[spread]
    each = (1.0 if whole else 1.0 - smoothing) * right + share * every.sum(1) if smoothing else right
    if focus:
        each = each * (1.0 - np.exp((hot * logs).sum(1))) ** focus
    return _divided(each, on, divisor, weighted, shift)


def _divided(each: np.ndarray, on: Labels, divisor: str, weighted: bool = True, shift: int = 0) -> Any:
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
}


def _classification(on: Labels) -> Iterator[_Known]:
    loss = partial(_made, on)
    for divisor, cause in DIVISORS.items():
        if divisor == "sample means" and on.target.ndim < 2:
            continue
        yield _Known(cause, loss(divisor=divisor))
    if on.weighted:
        yield _Known("class weights missing", loss(weighted=False))
        inverse = Labels(on.target, on.classes, 1.0 / on.weight, on.kept, on.smoothing, True)
        yield _Known("class weights inverted (1 / weight)", _made(inverse))
        yield _Known(
            "class weights squared", _made(Labels(on.target, on.classes, on.weight**2, on.kept, on.smoothing, True))
        )
        reverse = Labels(on.target, on.classes, on.weight[::-1], on.kept, on.smoothing, True)
        yield _Known("class weights in reverse order", _made(reverse))
    if not on.kept.all():
        for label, word in ((0, "the first class"), (on.classes - 1, "the last class (index -1 wraps)")):
            target = np.where(on.kept, on.target, label)
            counted = Labels(target, on.classes, on.weight, np.ones_like(on.kept), on.smoothing, on.weighted)
            yield _Known(f"ignored labels counted as {word}", _made(counted))
    if on.smoothing:
        yield _Known(f"no label smoothing instead of {number(on.smoothing)}", loss(smoothing=0.0))
        yield _Known("label smoothing spread over the other classes alone", loss(spread="others"))
        yield _Known("label smoothing not divided by the number of classes", loss(spread="total"))
        yield _Known("label smoothing: the label keeps its whole share", loss(whole=True))
        yield _Known("label smoothing without class weights", loss(spread_weighted=False))
    yield from _other_labels(on)
    yield _Known("{} (eps) added to the denominator", partial(_with_eps, on), (1e-5, 1e-3), 0.0, 0.1)
    yield _Known("probabilities clipped at {} from below", partial(_clipped, on), (1e-7, 1e-3, 0.1), 0.0)
    smoothing = f"label smoothing={{}} instead of {number(on.smoothing)}"
    yield _Known(smoothing, lambda z, s: _cross_entropy(z, on, smoothing=s), (0.1, 0.05, 0.2), 0.0, 1.0)
    yield _Known("label smoothing={} spread over the other classes alone",
                 lambda z, s: _cross_entropy(z, on, smoothing=s, spread="others"), (0.1, 0.2), 0.0, 1.0)  # fmt: skip
    for shift in (1, -1):
        yield _Known(f"labels off by one ({shift:+d})", loss(shift=shift))
    yield _Known("logarithm to base 2", lambda z: _cross_entropy(z, on) / math.log(2.0))
    yield _Known("logarithm to base 10", lambda z: _cross_entropy(z, on) / math.log(10.0))
    yield _Known(
        "softmax twice (probabilities fed as logits)", loss(log_p=lambda z: log_softmax(np.exp(log_softmax(z))))
    )
    yield _Known(
        "log_softmax and softmax: probabilities without their logarithm", loss(log_p=lambda z: np.exp(log_softmax(z)))
    )
    yield _Known("softmax missing: the negative logit", loss(log_p=lambda z: z))
    yield _Known("softmax missing: logarithm of the logits taken for probabilities", loss(log_p=np.log))
    yield _Known("sigmoid instead of softmax", loss(log_p=lambda z: -np.log(1.0 + np.exp(-z))))
    for axis in [axis for axis in (0, *range(2, on.target.ndim + 1)) if axis != 1]:
        yield _Known(f"softmax over axis {axis} instead of 1", loss(log_p=partial(log_softmax, axis=axis)))
    yield _Known("temperature={} instead of 1", lambda z, t: _cross_entropy(z / t, on), (2.0, 0.5, 4.0), 1e-3)
    yield _Known("focal loss with gamma={}", lambda z, g: _cross_entropy(z, on, focus=g), (2.0, 1.0, 0.5), 0.0)
    yield _Known("probabilities clipped, with {} added inside the logarithm",
                 lambda z, e: _cross_entropy(z, on, log_p=lambda z: np.log(np.exp(log_softmax(z)) + e)),
                 (1e-8, 1e-6, 1e-3), 0.0)  # fmt: skip
    hot = on.one_hot()
    yield _Known("binary cross-entropy of each class (sigmoid), mean over all", lambda z: _bce(z, hot).mean())
    yield _Known("binary cross-entropy of each class (sigmoid), sum over classes",
                 lambda z: _divided(_bce(z, hot).sum(1), on, "counted"))  # fmt: skip
    yield _Known(
        "squared error of the probabilities, mean over all", lambda z: ((np.exp(log_softmax(z)) - hot) ** 2).mean()
    )
    yield _Known("squared error of the probabilities, sum over classes",
                 lambda z: _divided(((np.exp(log_softmax(z)) - hot) ** 2).sum(1), on, "counted"))  # fmt: skip
    yield _Known("squared error of the logits, mean over all", lambda z: ((z - hot) ** 2).mean())
    yield _Known("hinge loss with margin {}", lambda z, m: _hinge(z, on, m), (1.0, 0.5), 0.0)
    yield _Known("entropy of the prediction subtracted, times {}",
                 lambda z, a: _cross_entropy(z, on) - a * _entropy(z), (0.1, 1.0))  # fmt: skip
    yield _Known("squares of the logits added, times {}",
                 lambda z, a: _cross_entropy(z, on) + a * (z * z).sum(), (1e-4, 1e-2))  # fmt: skip
    yield _Known("logits clipped to +-{}", lambda z, c: _cross_entropy(_clip(z, -c, c), on), (1.0, 2.0, 5.0), 0.0)
    yield _Known("cross-entropy of two with the labels' smoothed targets, class weights by count",
                 loss(divisor="counted", smoothing=on.smoothing))  # fmt: skip
    for divisor in ("one", "counted", "all", "batch", "elements"):
        yield _Known(f"{DIVISORS[divisor]}; class weights missing", loss(divisor=divisor, weighted=False))
        yield _Known(f"label smoothing={{}}; {DIVISORS[divisor]}",
                     partial(_smoothed, on, divisor), (0.1, 0.2), 0.0, 1.0)  # fmt: skip


def _other_labels(on: Labels) -> Iterator[_Known]:
    """Other weights, and other labels that count."""
    if on.weighted:
        for shift in (1, -1):
            rolled = replace(on, weight=np.roll(on.weight, shift))
            yield _Known(f"class weights in another order, shifted by {shift:+d}", _made(rolled))
        yield _Known("class weights: their roots (to the power of 0.5)", _made(replace(on, weight=np.sqrt(on.weight))))
        yield _Known("class weights to the power of {}",
                     lambda z, a: _cross_entropy(z, replace(on, weight=on.weight**a)), (0.5, 2.0))  # fmt: skip
    half = np.arange(len(on.target)).reshape(-1, *(1,) * (on.target.ndim - 1)) < len(on.target) // 2
    yield _Known("first half of the batch alone", _made(replace(on, kept=on.kept & half)))
    yield _Known("second half of the batch alone", _made(replace(on, kept=on.kept & ~half)))
    for label in np.unique(on.target[on.kept]) if on.classes <= 64 else ():
        fewer = replace(on, kept=on.kept & (on.target != label))
        yield _Known(f"class {label} ignored as well (a weight of zero)", _made(fewer))
    for shift in (1, -1):
        clamped = np.clip(on.target + shift, 0, on.classes - 1)
        yield _Known(f"labels off by one ({shift:+d}, clamped)", _made(replace(on, target=clamped)))


def _with_eps(on: Labels, z: np.ndarray, eps: float) -> Any:
    total = on.weights().sum()
    return _cross_entropy(z, on) * (total / (total + eps))


def _clipped(on: Labels, z: np.ndarray, low: float) -> Any:
    return _cross_entropy(z, on, log_p=partial(_clipped_log, low=low))


def _clipped_log(z: np.ndarray, low: float) -> np.ndarray:
    p = np.exp(log_softmax(z))
    return np.log(np.where(p.real < low, low, p))


def _made(on: Labels, **how: Any) -> Loss:
    return lambda z: _cross_entropy(z, on, **how)


def _entropy(z: np.ndarray) -> Any:
    return -(np.exp(log_softmax(z)) * log_softmax(z)).sum(1).mean()


def _dice(z: np.ndarray, target: np.ndarray, smooth: float) -> Any:
    p = _sigmoid(z)
    return 1 - (2 * (p * target).sum() + smooth) / (p.sum() + target.sum() + smooth)


def _smoothed(on: Labels, divisor: str, z: np.ndarray, smoothing: float) -> Any:
    return _cross_entropy(z, on, smoothing=smoothing, divisor=divisor)


def _clip(z: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.where(z.real < low, low, np.where(z.real > high, high, z))


def _hinge(z: np.ndarray, on: Labels, margin: float) -> Any:
    hot = on.one_hot()
    over = margin + z - (hot * z).sum(1, keepdims=True)
    each = (np.where(over.real > 0, over, 0.0) * (1.0 - hot)).sum(1) / on.classes
    return _divided(each * on.kept, on, "counted")


def _bce(z: np.ndarray, target: np.ndarray, positive: float = 1.0) -> np.ndarray:
    """Binary cross-entropy of scores, each element by itself."""
    softplus = np.where(
        z.real > 0, z + np.log1p(np.exp(-np.where(z.real > 0, z, 0))), np.log1p(np.exp(np.where(z.real > 0, 0, z)))
    )
    return target * positive * (softplus - z) + (1.0 - target) * softplus


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


_REDUCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean over all elements": lambda each: each.mean(),
    "sum instead of mean": lambda each: each.sum(),
    "sum over each sample, mean over the batch": lambda each: each.reshape(len(each), -1).sum(1).mean(),
    "mean over each sample, sum over the batch": lambda each: each.reshape(len(each), -1).mean(1).sum(),
    "halved": lambda each: 0.5 * each.mean(),
    "half of the sum": lambda each: 0.5 * each.sum(),
    "half of the sum over each sample, mean over the batch": lambda each: (
        0.5 * each.reshape(len(each), -1).sum(1).mean()
    ),
    "doubled": lambda each: 2.0 * each.mean(),
    "sum over the second axis, mean over the rest": lambda each: each.sum(1).mean() if each.ndim > 1 else each.mean(),
}


def _reduced(
    name: str, each: Callable[..., np.ndarray], starts: tuple[float, ...] = (), least: float = 0.0
) -> Iterator[_Known]:
    for word, reduce in _REDUCTIONS.items():
        if starts:
            yield _Known(f"{name}, {word}", lambda x, v, reduce=reduce: reduce(each(x, v)), starts, least)
        else:
            yield _Known(f"{name}, {word}", lambda x, reduce=reduce: reduce(each(x)))


def _regression(target: np.ndarray) -> Iterator[_Known]:
    def absolute(x: np.ndarray) -> np.ndarray:
        d = x - target
        return np.where(d.real < 0, -d, d)

    def huber(x: np.ndarray, delta: float) -> np.ndarray:
        d = absolute(x)
        return np.where(d.real < delta, 0.5 * d * d, delta * (d - 0.5 * delta))

    yield from _reduced("squared error", lambda x: (x - target) ** 2)
    yield from _reduced("absolute error", absolute)
    yield from _reduced("Huber loss with delta={}", huber, (1.0, 0.5), 1e-6)
    yield from _reduced("smooth L1 with beta={}", lambda x, beta: huber(x, beta) / beta, (1.0, 0.5), 1e-6)
    yield _Known("root of the mean squared error", lambda x: np.sqrt(((x - target) ** 2).mean()))
    yield _Known("length of the difference", lambda x: np.sqrt(((x - target) ** 2).sum()))
    yield from _reduced("log-cosh of the error", lambda x: np.log(np.cosh(x - target)))
    yield from _reduced("fourth power of the error", lambda x: (x - target) ** 4)
    yield from _reduced("relative absolute error", lambda x: absolute(x) / np.abs(target))
    yield from _reduced("squared error of the logarithms", lambda x: (np.log1p(x) - np.log1p(target)) ** 2)
    yield from _reduced("squared error after a sigmoid", lambda x: (_sigmoid(x) - target) ** 2)
    yield _Known("squared error against a target times {}", lambda x, a: ((x - a * target) ** 2).mean(), (2.0, 0.5))
    yield _Known("squared error against a target plus {}", lambda x, a: ((x - a - target) ** 2).mean(), (1.0, -1.0))
    yield _Known("difference squared after the mean", lambda x: (x - target).mean() ** 2)
    yield _Known(
        "cosine of prediction and target",
        lambda x: 1.0 - (x * target).sum() / np.sqrt((x * x).sum() * (target**2).sum()),
    )
    yield _Known("squares of the prediction added, times {}",
                 lambda x, a: ((x - target) ** 2).mean() + a * (x * x).mean(), (1e-2, 1.0))  # fmt: skip


def _binary(target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[_Known]:
    weight = settings.get("pos_weight")
    usual = 1.0 if weight is None else np.asarray(weight, np.float64)

    def made(z: np.ndarray, t: np.ndarray = target, positive: Any = usual) -> np.ndarray:
        return _bce(z, t, positive)

    yield from _reduced("binary cross-entropy", made)
    if weight is not None:
        yield _Known("pos_weight missing", lambda z: made(z, positive=1.0).mean())
        yield _Known(
            "pos_weight on the negatives", lambda z: (_bce(z, target) * (target + (1 - target) * usual)).mean()
        )
    yield from _reduced(
        "binary cross-entropy of the sigmoid taken for logits (sigmoid twice)", lambda z: made(_sigmoid(z))
    )
    yield from _reduced("sigmoid missing: logarithm of the scores taken for probabilities",
                        lambda z: -(target * np.log(z) + (1 - target) * np.log(1 - z)))  # fmt: skip
    yield from _reduced("targets exchanged (1 - target)", lambda z: made(z, 1 - target))
    yield from _reduced("label smoothing={}", lambda z, s: made(z, target * (1 - s) + 0.5 * s), (0.1, 0.2))
    yield from _reduced("pos_weight={}", lambda z, p: made(z, positive=p), (2.0, 0.5))
    yield from _reduced("temperature={}", lambda z, t: made(z / t), (2.0, 0.5), 1e-3)
    yield from _reduced("focal loss without alpha, gamma={}", lambda z, g: _focal(z, target, g), (2.0, 1.0))
    for alpha in (0.25, 0.75):
        share = alpha * target + (1 - alpha) * (1 - target)
        yield from _reduced(
            f"focal loss with alpha={alpha} and gamma={{}}", lambda z, g, s=share: _focal(z, target, g) * s, (2.0, 1.0)
        )
    yield from _reduced("logarithm to base 2: binary cross-entropy", lambda z: made(z) / math.log(2.0))
    yield from _reduced("squared error of the probabilities", lambda z: (_sigmoid(z) - target) ** 2)
    yield from _reduced("only the positives counted", lambda z: made(z) * target)
    yield _Known("hinge loss of signs", lambda z: _relu(1.0 - (2 * target - 1) * z).mean())
    yield _Known("Dice loss, smoothed by {}",
                 lambda z, s: _dice(z, target, s), (1.0, 0.0), 0.0)  # fmt: skip


def _focal(z: np.ndarray, target: np.ndarray, gamma: float) -> np.ndarray:
    missed = target * _sigmoid(-z) + (1 - target) * _sigmoid(z)
    return _bce(z, target) * missed**gamma


def _relu(x: np.ndarray) -> np.ndarray:
    return np.where(x.real > 0, x, 0.0)
