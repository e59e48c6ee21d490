"""Losses of each element by itself: differences of numbers, and binary cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.explain.loss_judge import Known, mixture


def bce(z: np.ndarray, target: np.ndarray, positive: float = 1.0) -> np.ndarray:
    """Binary cross-entropy of scores, each element by itself."""
    softplus = np.where(
        z.real > 0,
        z + np.log1p(np.exp(-np.where(z.real > 0, z, 0))),
        np.log1p(np.exp(np.where(z.real > 0, 0, z))),
    )
    return target * positive * (softplus - z) + (1.0 - target) * softplus


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Of complex numbers too."""
    return 1.0 / (1.0 + np.exp(-z))


_REDUCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean over all elements": lambda each: each.mean(),
    "sum instead of mean": lambda each: each.sum(),
    "sum over each sample, mean over the batch": lambda each: (
        each.reshape(len(each), -1).sum(1).mean()
    ),
    "mean over each sample, sum over the batch": lambda each: (
        each.reshape(len(each), -1).mean(1).sum()
    ),
    "halved (factor 0.5)": lambda each: 0.5 * each.mean(),
    "half of the sum": lambda each: 0.5 * each.sum(),
    "half of the sum over each sample, mean over the batch": lambda each: (
        0.5 * each.reshape(len(each), -1).sum(1).mean()
    ),
    "doubled": lambda each: 2.0 * each.mean(),
    "sum over the second axis, mean over the rest": lambda each: (
        each.sum(1).mean() if each.ndim > 1 else each.mean()
    ),
}


def _reduced(
    name: str, each: Callable[..., np.ndarray], starts: tuple[float, ...] = (), least: float = 0.0
) -> Iterator[Known]:
    for word, reduce in _REDUCTIONS.items():
        if starts:
            yield Known(
                f"{name}, {word}", lambda x, v, reduce=reduce: reduce(each(x, v)), starts, least
            )
        else:
            yield Known(f"{name}, {word}", lambda x, reduce=reduce: reduce(each(x)))


def regression(target: np.ndarray) -> Iterator[Known]:
    """What is known of differences of numbers."""

    def absolute(x: np.ndarray) -> np.ndarray:
        d = x - target
        return np.where(d.real < 0, -d, d)

    def huber(x: np.ndarray, delta: float) -> np.ndarray:
        d = absolute(x)
        return np.where(d.real < delta, 0.5 * d * d, delta * (d - 0.5 * delta))

    yield from _reduced("squared error", lambda x: (x - target) ** 2)
    yield from _reduced("absolute error", absolute)
    yield from _reduced("Huber loss with delta={}", huber, (1.0, 0.5), 1e-6)
    yield from _reduced(
        "smooth L1 with beta={}", lambda x, beta: huber(x, beta) / beta, (1.0, 0.5), 1e-6
    )
    yield Known("root of the mean squared error", lambda x: np.sqrt(((x - target) ** 2).mean()))
    yield Known("length of the difference", lambda x: np.sqrt(((x - target) ** 2).sum()))
    yield from _reduced("log-cosh of the error", lambda x: np.log(np.cosh(x - target)))
    yield from _reduced("fourth power of the error", lambda x: (x - target) ** 4)
    yield from _reduced("relative absolute error", lambda x: absolute(x) / np.abs(target))
    yield from _reduced(
        "squared error of the logarithms", lambda x: (np.log1p(x) - np.log1p(target)) ** 2
    )
    yield from _reduced("squared error after a sigmoid", lambda x: (sigmoid(x) - target) ** 2)
    yield Known(
        "squared error against a target times {}",
        lambda x, a: ((x - a * target) ** 2).mean(),
        (2.0, 0.5),
    )
    yield Known(
        "squared error against a target plus {}",
        lambda x, a: ((x - a - target) ** 2).mean(),
        (1.0, -1.0),
    )
    yield Known("difference squared after the mean", lambda x: (x - target).mean() ** 2)
    yield Known(
        "cosine of prediction and target",
        lambda x: 1.0 - (x * target).sum() / np.sqrt((x * x).sum() * (target**2).sum()),
    )
    yield Known(
        "squares of the prediction added, times {}",
        lambda x, a: ((x - target) ** 2).mean() + a * (x * x).mean(),
        (1e-2, 1.0),
    )


def binary(target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[Known]:
    """What is known of binary cross-entropy of scores."""
    weight = settings.get("pos_weight")
    usual = 1.0 if weight is None else np.asarray(weight, np.float64)

    def made(z: np.ndarray, t: np.ndarray = target, positive: Any = usual) -> np.ndarray:
        return bce(z, t, positive)

    yield from _reduced("binary cross-entropy", made)
    if weight is not None:
        yield Known("pos_weight missing", lambda z: made(z, positive=1.0).mean())
        yield Known(
            "pos_weight on the negatives",
            lambda z: (bce(z, target) * (target + (1 - target) * usual)).mean(),
        )
    yield from _reduced(
        "binary cross-entropy of the sigmoid taken for logits (sigmoid twice)",
        lambda z: made(sigmoid(z)),
    )
    yield from _reduced(
        "sigmoid missing: logarithm of the scores taken for probabilities",
        lambda z: -(target * np.log(z) + (1 - target) * np.log(1 - z)),
    )
    yield from _reduced("targets exchanged (1 - target)", lambda z: made(z, 1 - target))
    yield from _reduced(
        "label smoothing={}", lambda z, s: made(z, target * (1 - s) + 0.5 * s), (0.1, 0.2)
    )
    yield from _reduced("pos_weight={}", lambda z, p: made(z, positive=p), (2.0, 0.5))
    yield from _reduced("temperature={}", lambda z, t: made(z / t), (2.0, 0.5), 1e-3)
    yield from _reduced(
        "focal loss without alpha, gamma={}", lambda z, g: focal(z, target, g), (2.0, 1.0)
    )
    for alpha in (0.25, 0.75):
        share = alpha * target + (1 - alpha) * (1 - target)
        yield from _reduced(
            f"focal loss with alpha={alpha} and gamma={{}}",
            lambda z, g, s=share: focal(z, target, g) * s,
            (2.0, 1.0),
        )
    yield from _reduced(
        "logarithm to base 2: binary cross-entropy", lambda z: made(z) / math.log(2.0)
    )
    yield from _reduced("squared error of the probabilities", lambda z: (sigmoid(z) - target) ** 2)
    yield from _reduced("only the positives counted", lambda z: made(z) * target)
    yield from _weighted(target, made)
    yield Known("only the negatives counted", lambda z: (made(z) * (1.0 - target)).mean())
    yield Known("hinge loss of signs", lambda z: relu(1.0 - (2 * target - 1) * z).mean())
    yield Known("Dice loss, smoothed by {}", lambda z, s: _dice(z, target, s), (1.0, 0.0), 0.0)


def _weighted(target: np.ndarray, made: Callable[..., np.ndarray]) -> Iterator[Known]:
    """Weights of positives, or of all, one for each place along the last axis."""
    places = range(target.shape[-1]) if target.ndim > 1 else range(0)

    def part(share: np.ndarray, place: int | slice) -> Callable[[np.ndarray], Any]:
        return lambda z: (made(z) * share)[..., place].sum() / target.size

    whole = [part(np.ones_like(target), place) for place in places]
    positives = [part(target, place) for place in places]
    if len(places) > 1:
        yield Known(
            "pos_weight={} along the last axis",
            **mixture(lambda z: (made(z) * (1.0 - target)).mean(), positives),
        )
        yield Known("weight={} along the last axis", **mixture(lambda z: 0.0 * z.sum(), whole))
    negatives = part(1.0 - target, slice(None))
    yield Known(
        "weights [of positives, of negatives] {}",
        **mixture(lambda z: 0.0 * z.sum(), [part(target, slice(None)), negatives]),
    )


def focal_losses(target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[Known]:
    """What is known of the binary focal loss; the first one is that of the reference's settings."""
    gamma, alpha = float(settings.get("gamma", 2.0)), settings.get("alpha", 0.25)

    def made(
        z: np.ndarray, gamma: float = gamma, alpha: float | None = alpha, t: np.ndarray = target
    ) -> np.ndarray:
        share = 1.0 if alpha is None else alpha * t + (1.0 - alpha) * (1.0 - t)
        return focal(z, t, gamma) * share

    yield from _reduced("focal loss", made)
    if alpha is not None:
        yield from _reduced("focal loss without alpha", lambda z: made(z, alpha=None))
        yield from _reduced(
            f"alpha={1 - alpha:g} (that of the negatives) instead of {alpha:g}",
            lambda z: made(z, alpha=1.0 - alpha),
        )
        yield from _reduced(
            "alpha on the positives alone",
            lambda z: focal(z, target, gamma) * (alpha * target + 1.0 - target),
        )
    yield from _reduced(
        "focal weight inverted: what is classified well counts more (p instead of 1 - p)",
        lambda z: made(z, gamma=0.0) * (1.0 - missed(z, target)) ** gamma,
    )
    yield from _reduced(
        "no gradient through the focal weight (it is detached)",
        lambda z: made(z, gamma=0.0) * missed(z, target).real ** gamma,
    )
    yield from _reduced(
        "focal loss: targets exchanged (1 - target)", lambda z: made(z, t=1.0 - target)
    )
    yield from _reduced(
        "focal loss of the sigmoid taken for logits (sigmoid twice)", lambda z: made(sigmoid(z))
    )
    yield from _reduced(
        f"gamma={{}} instead of {gamma:g}", lambda z, g: made(z, gamma=g), (1.0, 2.0, 0.5)
    )
    yield from _reduced(
        f"alpha={{}} instead of {alpha}", lambda z, a: made(z, alpha=a), (0.25, 0.75)
    )
    yield from binary(target, {})


def missed(z: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One minus the probability of what is true."""
    return target * sigmoid(-z) + (1 - target) * sigmoid(z)


def focal(z: np.ndarray, target: np.ndarray, gamma: float) -> np.ndarray:
    """Binary cross-entropy in which what is classified well counts less, each element by itself."""
    return bce(z, target) * missed(z, target) ** gamma


def relu(x: np.ndarray) -> np.ndarray:
    """Of complex numbers too."""
    return np.where(x.real > 0, x, 0.0)


def _dice(z: np.ndarray, target: np.ndarray, smooth: float) -> Any:
    p = sigmoid(z)
    return 1 - (2 * (p * target).sum() + smooth) / (p.sum() + target.sum() + smooth)
