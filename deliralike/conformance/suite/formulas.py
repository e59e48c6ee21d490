"""The reference answers: functions, layers and losses in NumPy, as defined, however slow.

Arguments are named and ordered as those of the functions of `nn`.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    """The logistic function; ``exp`` never overflows."""
    return np.exp(-softplus(-x))


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


def leaky_relu(x, negative_slope=0.01):
    """The negative part is scaled."""
    return np.where(x > 0, x, negative_slope * x)


def elu(x):
    """The negative part tends to -1."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def gelu(x, approximate="none"):
    """Hendrycks and Gimpel 2016, with the error function or with its approximation by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def hardsigmoid(x):
    """A sigmoid of straight lines."""
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


def linear(x, weight, bias):
    """One output for each row of the weight."""
    return x @ weight.T + bias


def embedding(index, weight):
    """Rows of the weight."""
    return weight[index]


def pixel_shuffle(x, factor):
    """Channels become blocks of pixels."""
    batch, _, height, width = x.shape
    apart = x.reshape(batch, -1, factor, factor, height, width).transpose(0, 1, 4, 2, 5, 3)
    return apart.reshape(batch, -1, height * factor, width * factor)


# Windows
# -----------------------------------------------------------------------------


def pad(x, pads, value=0.0):
    """Padding before and after each axis; negative padding crops."""
    inside = tuple(
        slice(max(0, -before), size - max(0, -after))
        for size, (before, after) in zip(x.shape, pads, strict=True)
    )
    return np.pad(x[inside], np.maximum(pads, 0), constant_values=value)


def windows(
    x,
    kernel,
    stride,
    pads,
    dilation,
    value=0.0,
):
    """What is under a kernel at each position: (batch, channels, …positions, …kernel)."""
    padded = pad(x, ((0, 0), (0, 0), *pads), value)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    steps = [slice(None, None, step) for step in (*stride, *dilation)]
    return sliding_window_view(padded, reach, tuple(range(2, x.ndim)))[:, :, *steps]


def max_windows(
    x,
    kernel,
    stride,
    pads,
    dilation,
):
    """The maximum of each window."""
    return windows(x, kernel, stride, pads, dilation, -np.inf).max(_last(kernel))


def sum_windows(x, kernel, stride, pads):
    """The sum of each window."""
    return windows(x, kernel, stride, pads, (1,) * len(kernel)).sum(_last(kernel))


def convolve(
    x,
    weight,
    stride,
    pads,
    dilation,
    groups,
):
    """Cross-correlation, group by group."""
    kernel = weight.shape[2:]
    under = np.split(windows(x, kernel, stride, pads, dilation), groups, 1)
    axes = (1, *_last(kernel))
    pairs = zip(under, np.split(weight, groups), strict=True)
    products = [np.tensordot(part, own, (axes, axes)) for part, own in pairs]
    return np.moveaxis(np.concatenate(products, -1), -1, 1)


def convolve_transposed(
    x,
    weight,
    stride,
    padding,
    output_padding,
    dilation,
    groups,
):
    """Return a transposed convolution: each input element adds its multiple of the kernel.

    Padding is cut off the output.
    """
    pairs = zip(np.split(x, groups, 1), np.split(weight, groups), strict=True)
    parts = [_laid_out(part, own, stride, output_padding, dilation) for part, own in pairs]
    return pad(np.concatenate(parts, 1), ((0, 0), (0, 0), *((-p, -p) for p in padding)))


def _laid_out(
    x,
    weight,
    stride,
    extra,
    dilation,
):
    kernel, over = weight.shape[2:], np.multiply(np.subtract(x.shape[2:], 1), stride) + 1
    size = over + np.multiply(np.subtract(kernel, 1), dilation) + extra
    y = np.zeros((len(x), weight.shape[1], *size))
    for place in np.ndindex(kernel):
        begin = np.multiply(place, dilation)
        under = [slice(b, b + n, s) for b, n, s in zip(begin, over, stride, strict=True)]
        y[:, :, *under] += np.einsum("bi...,io->bo...", x, weight[..., *place])
    return y


def conv(
    x,
    weight,
    bias=0.0,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
):
    """A convolution with equal padding on both sides, and a bias."""
    n = x.ndim - 2
    pads = [(p, p) for p in _many(padding, n)]
    y = convolve(x, weight, _many(stride, n), pads, _many(dilation, n), groups)
    return y + np.reshape(bias, (-1,) + (1,) * n)


def conv_transpose(
    x,
    weight,
    bias=0.0,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
):
    """A transposed convolution with a bias."""
    n = x.ndim - 2
    stride, padding, extra, dilation = (
        _many(value, n) for value in (stride, padding, output_padding, dilation)
    )
    y = convolve_transposed(x, weight, stride, padding, extra, dilation, groups)
    return y + np.reshape(bias, (-1,) + (1,) * n)


def max_pool(x, size, stride, padding):
    """The maximum of square windows."""
    n = x.ndim - 2
    return max_windows(x, (size,) * n, (stride,) * n, ((padding, padding),) * n, (1,) * n)


def avg_pool(x, size, stride, padding):
    """The mean of square windows; padding counts."""
    n = x.ndim - 2
    return sum_windows(x, (size,) * n, (stride,) * n, ((padding, padding),) * n) / size**n


def adaptive_pool(reduce, x, sizes):
    """Reduce windows that cover each axis, axis by axis; they may overlap."""
    for axis, size in enumerate(sizes, start=2):
        n = x.shape[axis]
        bounds = [(i * n // size, math.ceil((i + 1) * n / size)) for i in range(size)]
        parts = [reduce(x.take(range(*bound), axis), axis) for bound in bounds]
        x = np.stack(parts, axis)
    return x


def interpolate(x, size, align_corners=False, mode="linear"):
    """Interpolate linearly along the last axis.

    Positions beyond the outermost centres take their values.
    """
    old, new = x.shape[-1], np.arange(size, dtype=np.float64)
    at = new * (old - 1) / (size - 1) if align_corners else (new + 0.5) * old / size - 0.5
    return np.apply_along_axis(lambda row: np.interp(at, np.arange(old), row), -1, x)


def _many(value, n):
    return np.broadcast_to(value, n).tolist()


def _last(kernel):
    return tuple(range(-len(kernel), 0))


# Normalisation
# -----------------------------------------------------------------------------


def standardised(x, axes, eps=1e-5):
    """Less the mean, by the root of the biased variance and `eps`."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def channelwise(x, weight, bias):
    """Scaled and shifted, channel by channel (axis 1)."""
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return x * weight.reshape(shape) + bias.reshape(shape)


def batch_norm(
    x,
    mean,
    var,
    weight,
    bias,
    eps=1e-5,
):
    """By given statistics."""
    scale = 1.0 / np.sqrt(var + eps)
    return channelwise(channelwise(x, scale, -mean * scale), weight, bias)


def moments(x):
    """The mean and the biased variance of each channel."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    return x.mean(axes), x.var(axes)


def batch_norm_train(x, weight, bias, eps=1e-5):
    """By the statistics of the batch, which are given as well."""
    mean, var = moments(x)
    return batch_norm(x, mean, var, weight, bias, eps), mean, var


def group_norm(x, groups, weight, bias):
    """By the statistics of groups of channels of each sample."""
    grouped = standardised(x.reshape(len(x), groups, -1), (2,))
    return channelwise(grouped.reshape(x.shape), weight, bias)


def layer_norm(x, weight, bias):
    """By the statistics of the last axis."""
    return standardised(x, (-1,)) * weight + bias


# Sequences
# -----------------------------------------------------------------------------


def lstm(
    x,
    h,
    c,
    w_ih,
    w_hh,
    b_ih,
    b_hh,
):
    """Hochreiter and Schmidhuber 1997 with forget gates; blocks i, f, g, o."""
    outputs = []
    for step in x:
        i, f, g, o = np.split(linear(step, w_ih, b_ih) + linear(h, w_hh, b_hh), 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs), h, c


def gru(
    x,
    h,
    w_ih,
    w_hh,
    b_ih,
    b_hh,
):
    """Cho et al. 2014 with the reset after the product; blocks r, z, n."""
    outputs = []
    for step in x:
        of_x = np.split(linear(step, w_ih, b_ih), 3, -1)
        of_h = np.split(linear(h, w_hh, b_hh), 3, -1)
        r, z = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
        h = (1.0 - z) * np.tanh(of_x[2] + r * of_h[2]) + z * h
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
    logits,
    target,
    weight=None,
    ignore_index=-100,
    label_smoothing=0.0,
    reduction="mean",
):
    """The denominator of the mean is the sum of the weights of the labels that count."""
    classes = logits.shape[1]
    weight = np.ones(classes) if weight is None else weight
    counted = target != ignore_index
    own = np.eye(classes)[target * counted] * weight * counted[..., None]
    others = weight * counted[..., None] / classes
    wanted = (1.0 - label_smoothing) * own + label_smoothing * others
    losses = -(wanted * np.moveaxis(log_softmax(logits, 1), 1, -1)).sum(-1)
    if reduction == "none":
        return losses
    return losses.sum() / (own.sum() if reduction == "mean" else 1.0)


def bce_with_logits(
    logits,
    target,
    weight=1.0,
    pos_weight=1.0,
    reduction="mean",
):
    """The binary cross entropy."""
    right, wrong = softplus(-logits), softplus(logits)
    losses = weight * (pos_weight * target * right + (1.0 - target) * wrong)
    return losses if reduction == "none" else losses.mean()


def _sizes(p, target):
    """Of each sample and class: the overlap, and the size of both."""
    axes = tuple(range(2, p.ndim))
    return (p * target).sum(axes), p.sum(axes), target.sum(axes)


def dice_loss(p, target, smooth=1e-5):
    """One less twice the overlap by the sum of sizes (Milletari et al. 2016)."""
    overlap, size, wanted = _sizes(p, target)
    return 1.0 - ((2.0 * overlap + smooth) / (size + wanted + smooth)).mean()


def generalized_dice_loss(p, target, smooth=1e-5):
    """Sudre et al. 2017; every class is present in every sample."""
    overlap, size, wanted = _sizes(p, target)
    above = 2.0 * (overlap / wanted**2).sum(1) + smooth
    return 1.0 - (above / (((size + wanted) / wanted**2).sum(1) + smooth)).mean()


def tversky_loss(p, target, alpha, beta, smooth=1e-5):
    """Salehi et al. 2017, equation 3, of each sample and class."""
    overlap, size, wanted = _sizes(p, target)
    below = overlap + alpha * (size - overlap) + beta * (wanted - overlap)
    return 1.0 - ((overlap + smooth) / (below + smooth)).mean()
