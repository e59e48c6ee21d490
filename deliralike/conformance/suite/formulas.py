"""The reference answers for what each backend writes itself: in NumPy, as defined, however slow.

Arguments are named and ordered as those of the functions of `nn`. Settings of windows are numbers,
or one for each axis.
"""

import math

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


def relu(x):
    """The positive part."""
    return np.maximum(x, 0.0)


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


def _many(value, x):
    return np.broadcast_to(value, x.ndim - 2).tolist()


def _last(x):
    return tuple(range(2 - x.ndim, 0))
