"""Losses of each element by itself: differences of numbers, and binary cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.explain.loss_judge import Known


def bce(z: np.ndarray, target: np.ndarray, positive: float = 1.0) -> np.ndarray:
    """Binary cross-entropy of scores, each element by itself."""
    softplus = np.where(
        z.real > 0, z + np.log1p(np.exp(-np.where(z.real > 0, z, 0))), np.log1p(np.exp(np.where(z.real > 0, 0, z)))
    )
    return target * positive * (softplus - z) + (1.0 - target) * softplus


def sigmoid(z: np.ndarray) -> np.ndarray:
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
) -> Iterator[Known]:
    for word, reduce in _REDUCTIONS.items():
        if starts:
            yield Known(f"{name}, {word}", lambda x, v, reduce=reduce: reduce(each(x, v)), starts, least)
        else:
            yield Known(f"{name}, {word}", lambda x, reduce=reduce: reduce(each(x)))


def regression(target: np.ndarray) -> Iterator[Known]:
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
    yield Known("root of the mean squared error", lambda x: np.sqrt(((x - target) ** 2).mean()))
    yield Known("length of the difference", lambda x: np.sqrt(((x - target) ** 2).sum()))
    yield from _reduced("log-cosh of the error", lambda x: np.log(np.cosh(x - target)))
    yield from _reduced("fourth power of the error", lambda x: (x - target) ** 4)
    yield from _reduced("relative absolute error", lambda x: absolute(x) / np.abs(target))
    yield from _reduced("squared error of the logarithms", lambda x: (np.log1p(x) - np.log1p(target)) ** 2)
    yield from _reduced("squared error after a sigmoid", lambda x: (sigmoid(x) - target) ** 2)
    yield Known("squared error against a target times {}", lambda x, a: ((x - a * target) ** 2).mean(), (2.0, 0.5))
    yield Known("squared error against a target plus {}", lambda x, a: ((x - a - target) ** 2).mean(), (1.0, -1.0))
    yield Known("difference squared after the mean", lambda x: (x - target).mean() ** 2)
    yield Known(
        "cosine of prediction and target",
        lambda x: 1.0 - (x * target).sum() / np.sqrt((x * x).sum() * (target**2).sum()),
    )
    yield Known("squares of the prediction added, times {}",
                 lambda x, a: ((x - target) ** 2).mean() + a * (x * x).mean(), (1e-2, 1.0))  # fmt: skip


def binary(target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[Known]:
    weight = settings.get("pos_weight")
    usual = 1.0 if weight is None else np.asarray(weight, np.float64)

    def made(z: np.ndarray, t: np.ndarray = target, positive: Any = usual) -> np.ndarray:
        return bce(z, t, positive)

    yield from _reduced("binary cross-entropy", made)
    if weight is not None:
        yield Known("pos_weight missing", lambda z: made(z, positive=1.0).mean())
        yield Known("pos_weight on the negatives", lambda z: (bce(z, target) * (target + (1 - target) * usual)).mean())
    yield from _reduced(
        "binary cross-entropy of the sigmoid taken for logits (sigmoid twice)", lambda z: made(sigmoid(z))
    )
    yield from _reduced("sigmoid missing: logarithm of the scores taken for probabilities",
                        lambda z: -(target * np.log(z) + (1 - target) * np.log(1 - z)))  # fmt: skip
    yield from _reduced("targets exchanged (1 - target)", lambda z: made(z, 1 - target))
    yield from _reduced("label smoothing={}", lambda z, s: made(z, target * (1 - s) + 0.5 * s), (0.1, 0.2))
    yield from _reduced("pos_weight={}", lambda z, p: made(z, positive=p), (2.0, 0.5))
    yield from _reduced("temperature={}", lambda z, t: made(z / t), (2.0, 0.5), 1e-3)
    yield from _reduced("focal loss without alpha, gamma={}", lambda z, g: focal(z, target, g), (2.0, 1.0))
    for alpha in (0.25, 0.75):
        share = alpha * target + (1 - alpha) * (1 - target)
        yield from _reduced(
            f"focal loss with alpha={alpha} and gamma={{}}", lambda z, g, s=share: focal(z, target, g) * s, (2.0, 1.0)
        )
    yield from _reduced("logarithm to base 2: binary cross-entropy", lambda z: made(z) / math.log(2.0))
    yield from _reduced("squared error of the probabilities", lambda z: (sigmoid(z) - target) ** 2)
    yield from _reduced("only the positives counted", lambda z: made(z) * target)
    yield Known("hinge loss of signs", lambda z: relu(1.0 - (2 * target - 1) * z).mean())
    yield Known("Dice loss, smoothed by {}", lambda z, s: _dice(z, target, s), (1.0, 0.0), 0.0)


def focal(z: np.ndarray, target: np.ndarray, gamma: float) -> np.ndarray:
    missed = target * sigmoid(-z) + (1 - target) * sigmoid(z)
    return bce(z, target) * missed**gamma


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(x.real > 0, x, 0.0)


def _dice(z: np.ndarray, target: np.ndarray, smooth: float) -> Any:
    p = sigmoid(z)
    return 1 - (2 * (p * target).sum() + smooth) / (p.sum() + target.sum() + smooth)
