"""The reference answers: functions, layers and losses in NumPy, as defined, however slow.

Arguments are named and ordered as those of the functions of `nn`. Settings of windows are numbers,
or one for each axis.
"""

import math
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    """The logistic function; ``exp`` never overflows."""
    return np.exp(-softplus(-x))


def scatter_add(x, dim, index, src):
    """`x` with each entry of `src` added at its position along an axis."""
    y = np.array(x)
    places = list(np.ogrid[tuple(map(slice, index.shape))])
    places[dim] = index
    np.add.at(y, tuple(places), src)
    return y


def softplus(x):
    """``log(1 + exp(x))``."""
    return np.logaddexp(x, 0.0)


def log_softmax(x, dim):
    """The logarithm of the softmax."""
    return x - np.logaddexp.reduce(x, dim, keepdims=True)


def softmax(x, dim):
    """The softmax."""
    return np.exp(log_softmax(x, dim))


def relu(x):
    """The positive part."""
    return np.maximum(x, 0.0)


def silu(x):
    """Hendrycks and Gimpel 2016, section 2."""
    return x * sigmoid(x)


def prelu(x, weight=0.01):
    """The negative part is scaled, by one number for each feature (axis 1) or by the same."""
    return np.where(x > 0, x, x * channels(weight, x))


def elu(x):
    """The negative part tends to -1."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def gelu(x, approximate="none"):
    """Hendrycks and Gimpel 2016, with the error function or with its approximation by tanh."""
    if approximate == "tanh":
        return (
            0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
        )
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def hardsigmoid(x):
    """A sigmoid of straight lines."""
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


def linear(x, weight, bias):
    """One output for each row of the weight."""
    return x @ weight.T + bias


def pixel_shuffle(x, factor):
    """Channels become blocks of pixels."""
    batch, _, height, width = x.shape
    apart = x.reshape(batch, -1, factor, factor, height, width).transpose(
        0, 1, 4, 2, 5, 3
    )
    return apart.reshape(batch, -1, height * factor, width * factor)


# Windows
# -----------------------------------------------------------------------------


def pad(x, pads, value=0.0):
    """Padding before and after each axis; negative padding crops."""
    inside = [
        slice(max(0, -before), size - max(0, -after))
        for size, (before, after) in zip(x.shape, pads, strict=True)
    ]
    return np.pad(x[*inside], np.maximum(pads, 0), constant_values=value)


def windows(x, kernel, stride, pads, dilation, value=0.0):
    """What is under a kernel at each position: (batch, channels, …positions, …kernel)."""
    axes = range(2, x.ndim)
    pads = np.broadcast_to(
        np.reshape(pads, (-1, 1)) if np.ndim(pads) < 2 else pads, (len(axes), 2)
    )
    reach = np.multiply(np.subtract(kernel, 1), dilation) + 1
    steps = [
        slice(None, None, step) for step in (*_many(stride, x), *_many(dilation, x))
    ]
    padded = pad(x, [(0, 0), (0, 0), *pads], value)
    return sliding_window_view(padded, _many(reach, x), tuple(axes))[:, :, *steps]


def max_windows(x, kernel, stride, pads, dilation=1):
    """The maximum of each window."""
    return windows(x, kernel, stride, pads, dilation, -np.inf).max(_last(x))


def sum_windows(x, kernel, stride, pads):
    """The sum of each window."""
    return windows(x, kernel, stride, pads, 1).sum(_last(x))


def mean_windows(x, kernel, stride, pads):
    """The mean of each window; padding counts."""
    return windows(x, kernel, stride, pads, 1).mean(_last(x))


def convolve(x, weight, stride=1, pads=0, dilation=1, groups=1):
    """Cross-correlation, group by group."""
    own = weight.reshape(groups, -1, weight.shape[1], math.prod(weight.shape[2:]))
    under = windows(x, weight.shape[2:], stride, pads, dilation)
    size = under.shape[2 : x.ndim]
    under = under.reshape(
        len(x), groups, weight.shape[1], math.prod(size), own.shape[3]
    )
    return np.einsum("bgcpk,gock->bgop", under, own).reshape(len(x), -1, *size)


def convolve_transposed(x, weight, stride, padding, extra, dilation, groups=1):
    """The convolution of the input, its elements `stride` apart, with the turned kernel."""
    kernel, axes = weight.shape[2:], _last(x)
    apart = np.zeros(
        (*x.shape[:2], *(np.multiply(np.subtract(x.shape[2:], 1), stride) + 1))
    )
    apart[:, :, *(slice(None, None, step) for step in _many(stride, x))] = x
    turned = np.flip(weight, axes).reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    turned = turned.reshape(-1, len(weight) // groups, *kernel)
    before = np.multiply(np.subtract(kernel, 1), dilation) - padding
    return convolve(
        apart, turned, 1, np.stack([before, before + extra], 1), dilation, groups
    )


def conv(x, weight, bias=0.0, *settings):
    """A convolution and a bias."""
    return convolve(x, weight, *settings) + channels(bias, x)


def conv_transpose(x, weight, bias, stride=1, padding=0, extra=0, groups=1):
    """A transposed convolution and a bias."""
    y = convolve_transposed(x, weight, stride, padding, extra, 1, groups)
    return y + channels(bias, x)


def adaptive_pool(reduce, x, sizes):
    """Reduce windows that cover each axis, axis by axis; they may overlap."""
    for axis, size in enumerate(sizes, start=2):
        n = x.shape[axis]
        bounds = [(i * n // size, math.ceil((i + 1) * n / size)) for i in range(size)]
        x = np.stack(
            [reduce(x.take(range(*bound), axis), axis) for bound in bounds], axis
        )
    return x


def interpolate(x, size, factor=None, mode="linear", align_corners=False):
    """Interpolate linearly along each axis; beyond the outermost centres are their values."""
    for axis, new in enumerate(_many(size, x), start=2):
        old, places = x.shape[axis], np.arange(new, dtype=np.float64)
        at = (
            places * (old - 1) / (new - 1)
            if align_corners
            else (places + 0.5) * old / new - 0.5
        )
        x = np.apply_along_axis(partial(np.interp, at, np.arange(old)), axis, x)
    return x


def channels(value, x):
    """A number for each channel, to be added to or multiplied with an array (axis 1)."""
    return np.reshape(value, (-1,) + (1,) * (x.ndim - 2))


def _many(value, x):
    return np.broadcast_to(value, x.ndim - 2).tolist()


def _last(x):
    return tuple(range(2 - x.ndim, 0))


# Normalisation
# -----------------------------------------------------------------------------


def standardised(x, axes):
    """Less the mean, by the root of the biased variance and an epsilon."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(
        x.var(axes, keepdims=True) + 1e-5
    )


def moments(x):
    """The mean and the biased variance of each channel."""
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)


def batch_norm(x, mean, var, weight, bias, eps=1e-5):
    """By given statistics."""
    scale = weight / np.sqrt(var + eps)
    return (x - channels(mean, x)) * channels(scale, x) + channels(bias, x)


def batch_norm_train(x, weight, bias, eps=1e-5):
    """By the statistics of the batch, which are given as well."""
    mean, var = moments(x)
    return batch_norm(x, mean, var, weight, bias, eps), mean, var


def group_norm(x, groups, weight, bias):
    """By the statistics of groups of channels of each sample."""
    y = standardised(x.reshape(len(x), groups, -1), 2).reshape(x.shape)
    return y * channels(weight, x) + channels(bias, x)


def layer_norm(x, shape, weight=1.0, bias=0.0):
    """By the statistics of the last axes."""
    return standardised(x, tuple(range(-len(shape), 0))) * weight + bias


# Sequences
# -----------------------------------------------------------------------------


def lstm(x, h, c, w_ih, w_hh, b_ih, b_hh):
    """Hochreiter and Schmidhuber 1997 with forget gates; blocks i, f, g, o."""
    outputs = []
    for step in x:
        i, f, g, o = np.split(linear(step, w_ih, b_ih) + linear(h, w_hh, b_hh), 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def gru(x, h, w_ih, w_hh, b_ih, b_hh):
    """Cho et al. 2014 with the reset after the product; blocks r, z, n."""
    outputs = []
    for step in x:
        r, z, n = np.split(linear(step, w_ih, b_ih), 3, -1)
        of_r, of_z, of_n = np.split(linear(h, w_hh, b_hh), 3, -1)
        z = sigmoid(z + of_z)
        h = (1.0 - z) * np.tanh(n + sigmoid(r + of_r) * of_n) + z * h
        outputs.append(h)
    return np.stack(outputs), h


def rnn(x, h, w_ih, w_hh, b_ih, b_hh):
    """Elman 1990, with tanh."""
    outputs = []
    for step in x:
        h = np.tanh(linear(step, w_ih, b_ih) + linear(h, w_hh, b_hh))
        outputs.append(h)
    return np.stack(outputs), h


def attention(query, key, value, bias=0.0):
    """Vaswani et al. 2017, equation 1, with a term added to the scores; and its weights."""
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]) + bias
    weights = softmax(scores, -1)
    return weights @ value, weights


# Losses
# -----------------------------------------------------------------------------


def cross_entropy(
    logits, target, weight=None, ignored=-100, reduction="mean", smoothing=0.0
):
    """The denominator of the mean is the sum of the weights of the labels that count."""
    classes = logits.shape[1]
    counted = (target != ignored)[..., None]
    weight = counted * (np.ones(classes) if weight is None else weight)
    own = np.eye(classes)[target * counted[..., 0]] * weight
    wanted = (1.0 - smoothing) * own + smoothing / classes * weight
    losses = -(wanted * np.moveaxis(log_softmax(logits, 1), 1, -1)).sum(-1)
    if reduction == "none":
        return losses
    return losses.sum() / (own.sum() if reduction == "mean" else 1.0)


def bce_with_logits(logits, target, weight=1.0, pos_weight=1.0):
    """The mean binary cross entropy."""
    right, wrong = softplus(-logits), softplus(logits)
    return (weight * (pos_weight * target * right + (1.0 - target) * wrong)).mean()


def dice_loss(p, target, smooth=1e-5):
    """One less twice the overlap by the sum of sizes (Milletari et al. 2016)."""
    overlap, size, wanted = (each.sum(_last(p)) for each in (p * target, p, target))
    return 1.0 - ((2.0 * overlap + smooth) / (size + wanted + smooth)).mean()
