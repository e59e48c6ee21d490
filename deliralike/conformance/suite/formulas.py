"""The reference answers: functions, layers and losses in NumPy, as defined, however slow."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Pairs = Sequence[tuple[int, int]]

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function; ``exp`` never overflows."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def softplus(x: np.ndarray) -> np.ndarray:
    """``log(1 + exp(x))``."""
    return np.logaddexp(x, 0.0)


def log_softmax(x: np.ndarray, dim: int) -> np.ndarray:
    """The logarithm of the softmax."""
    shifted = x - x.max(dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def softmax(x: np.ndarray, dim: int) -> np.ndarray:
    """The softmax."""
    return np.exp(log_softmax(x, dim))


# Windows
# -----------------------------------------------------------------------------


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    stride: Sequence[int],
    pads: Pairs,
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Cross-correlation, position by position."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    y = np.zeros((len(x), len(weight), *_positions(padded, reach, stride)))
    width, outputs = weight.shape[1], len(weight) // groups
    axes = list(range(1, weight.ndim))
    for place in np.ndindex(y.shape[2:]):
        window = padded[_under(place, reach, stride, dilation)]
        for group in range(groups):
            own = slice(group * outputs, (group + 1) * outputs)
            part = window[:, group * width : (group + 1) * width]
            y[(slice(None), own, *place)] = np.tensordot(part, weight[own], (axes, axes))
    return y


def convolve_transposed(
    x: np.ndarray,
    weight: np.ndarray,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Return a transposed convolution: each input element adds its multiple of the kernel.

    Padding is cut off the output.
    """
    kernel, width, outputs = weight.shape[2:], len(weight) // groups, weight.shape[1]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    full = [
        (n - 1) * s + r + e
        for n, s, r, e in zip(x.shape[2:], stride, reach, output_padding, strict=True)
    ]
    y = np.zeros((len(x), outputs * groups, *full))
    for place in np.ndindex(x.shape[2:]):
        under = _under(place, reach, stride, dilation)
        for group in range(groups):
            own = slice(group * width, (group + 1) * width)
            laid = np.tensordot(x[(slice(None), own, *place)], weight[own], (1, 0))
            y[(under[0], slice(group * outputs, (group + 1) * outputs), *under[2:])] += laid
    return y[
        (slice(None), slice(None), *(slice(p, n - p) for p, n in zip(padding, full, strict=True)))
    ]


def max_windows(
    x: np.ndarray,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Pairs,
    dilation: Sequence[int],
) -> np.ndarray:
    """The maximum of each window."""
    return _over_windows(np.max, x, kernel, stride, pads, dilation, -np.inf)


def sum_windows(
    x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], pads: Pairs
) -> np.ndarray:
    """The sum of each window."""
    return _over_windows(np.sum, x, kernel, stride, pads, [1] * len(kernel), 0.0)


def _over_windows(reduce, x, kernel, stride, pads, dilation, filling):  # type: ignore[no-untyped-def]
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=filling)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    y = np.zeros((*x.shape[:2], *_positions(padded, reach, stride)))
    for place in np.ndindex(y.shape[2:]):
        window = padded[_under(place, reach, stride, dilation)]
        y[(slice(None), slice(None), *place)] = reduce(window, axis=tuple(range(2, x.ndim)))
    return y


def _positions(padded: np.ndarray, reach: Sequence[int], stride: Sequence[int]) -> list[int]:
    return [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, stride, strict=True)]


def _under(
    place: Sequence[int], reach: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple:
    axes = zip(place, reach, stride, dilation, strict=True)
    return (slice(None), slice(None), *(slice(p * s, p * s + r, d) for p, r, s, d in axes))


# Normalisation
# -----------------------------------------------------------------------------


def standardised(x: np.ndarray, axes: tuple[int, ...], eps: float = 1e-5) -> np.ndarray:
    """Less the mean, by the root of the biased variance and `eps`."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def channelwise(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Scaled and shifted, channel by channel (axis 1)."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return x * weight.reshape(shape) + bias.reshape(shape)


def batch_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5
) -> np.ndarray:
    """By the statistics of the batch."""
    return channelwise(
        standardised(x, tuple(d for d in range(x.ndim) if d != 1), eps), weight, bias
    )


def group_norm(
    x: np.ndarray, groups: int, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5
) -> np.ndarray:
    """By the statistics of groups of channels of each sample."""
    grouped = standardised(x.reshape(len(x), groups, -1), (2,), eps)
    return channelwise(grouped.reshape(x.shape), weight, bias)


# Sequences
# -----------------------------------------------------------------------------


def lstm(
    x: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray,
    b_hh: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hochreiter and Schmidhuber 1997 with forget gates; blocks i, f, g, o."""
    outputs = []
    for step in x:
        i, f, g, o = np.split(step @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def gru(
    x: np.ndarray,
    h: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray,
    b_hh: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Cho et al. 2014 with the reset after the product; blocks r, z, n."""
    outputs = []
    for step in x:
        (ir, iz, i_n), (hr, hz, hn) = (
            np.split(step @ w_ih.T + b_ih, 3, -1),
            np.split(h @ w_hh.T + b_hh, 3, -1),
        )
        z = sigmoid(iz + hz)
        h = (1.0 - z) * np.tanh(i_n + sigmoid(ir + hr) * hn) + z * h
        outputs.append(h)
    return np.stack(outputs), h


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, bias: np.ndarray | float = 0.0
) -> np.ndarray:
    """Vaswani et al. 2017, equation 1, with a term added to the scores."""
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]) + bias
    return softmax(scores, -1) @ value


# Losses
# -----------------------------------------------------------------------------


def cross_entropy(
    logits: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    ignore: int = -100,
    smoothing: float = 0.0,
) -> float:
    """Position by position; the denominator is the sum of the weights of the labels that count."""
    log_p, classes = np.moveaxis(log_softmax(logits, 1), 1, -1), logits.shape[1]
    weight = np.ones(classes) if weight is None else weight
    total = count = 0.0
    for place, label in np.ndenumerate(target):
        if label != ignore:
            total -= (1.0 - smoothing) * weight[label] * log_p[place][label]
            total -= smoothing / classes * float(weight @ log_p[place])
            count += weight[label]
    return float(total / count)


def binary_cross_entropy(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Element by element."""
    return -(target * -softplus(-logits) + (1.0 - target) * -softplus(logits))


def dice(probabilities: np.ndarray, one_hot: np.ndarray, smooth: float = 1e-5) -> float:
    """Return the Dice loss of Milletari et al. (2016).

    It is one less the mean, over samples and classes, of twice the overlap by the sum of sizes.
    """
    axes = tuple(range(2, probabilities.ndim))
    overlap = (probabilities * one_hot).sum(axes)
    return float(
        1.0
        - ((2.0 * overlap + smooth) / (probabilities.sum(axes) + one_hot.sum(axes) + smooth)).mean()
    )


def generalized_dice(probabilities: np.ndarray, one_hot: np.ndarray, smooth: float = 1e-5) -> float:
    """Sudre et al. 2017; every class is present in every sample."""
    axes = tuple(range(2, probabilities.ndim))
    weight = 1.0 / one_hot.sum(axes) ** 2
    overlap, total = (
        (probabilities * one_hot).sum(axes),
        probabilities.sum(axes) + one_hot.sum(axes),
    )
    return float(
        1.0
        - ((2.0 * (weight * overlap).sum(1) + smooth) / ((weight * total).sum(1) + smooth)).mean()
    )


def tversky(
    probabilities: np.ndarray, one_hot: np.ndarray, alpha: float, beta: float, smooth: float = 1e-5
) -> float:
    """Salehi et al. 2017, equation 3, of each sample and class."""
    axes = tuple(range(2, probabilities.ndim))
    both = (probabilities * one_hot).sum(axes)
    too_much, missed = probabilities.sum(axes) - both, one_hot.sum(axes) - both
    return float(
        1.0 - ((both + smooth) / (both + alpha * too_much + beta * missed + smooth)).mean()
    )
