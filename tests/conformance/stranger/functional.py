"""The primitives of `nn` on autograd's NumPy; where its derivatives follow other conventions, by
other means."""

import itertools

import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.scipy import special
from autograd.tracer import getval, isbox

from deliralike import random
from deliralike.network.construction import require_construction
from deliralike.nn import checks
from deliralike.nn.functional import Functions

from .network import Variable

_chance = {"generator": np.random.default_rng(0)}


def seed(value):
    """Restart the generator of native masks."""
    _chance["generator"] = np.random.default_rng(value)


@primitive
def _sigmoid(x):
    return special.expit(x)


defvjp(_sigmoid, lambda y, x: lambda g: g * y * (1.0 - y))


@primitive
def _collected(x, places, shape):
    y = np.zeros(shape, x.dtype)
    np.add.at(y, places, x)
    return y


defvjp(_collected, lambda y, x, places, shape: lambda g: g[places], argnums=(0,))


def _axes(dim):
    return dim if dim is None or isinstance(dim, int) else tuple(dim)


class StrangerFunctions(Functions):
    """Functions of NumPy arrays and boxes."""

    exp, log, sqrt, sin, cos, tanh = (
        staticmethod(getattr(anp, f))
        for f in ("exp", "log", "sqrt", "sin", "cos", "tanh")
    )
    abs, erf, sigmoid = (
        staticmethod(anp.abs),
        staticmethod(special.erf),
        staticmethod(_sigmoid),
    )
    matmul, einsum, stop_gradient = (
        staticmethod(anp.matmul),
        staticmethod(anp.einsum),
        staticmethod(getval),
    )

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        if isinstance(start, np.ndarray):
            return Variable(np.array(start, construction.dtype), is_parameter=True)
        return construction.declare(
            Variable(np.zeros(tuple(shape), construction.dtype), is_parameter=True),
            start,
        )

    def Buffer(self, value):
        if value is None:
            return None
        dtype = (
            require_construction("a buffer").dtype
            if value.dtype.kind == "f"
            else value.dtype
        )
        return Variable(np.array(value, dtype), is_parameter=False)

    def constant(self, value, like):
        value = np.array(value)
        return (
            value.astype(like.dtype)
            if value.dtype.kind == "f" and like.dtype.kind == "f"
            else value
        )

    def zeros(self, shape, like):
        return np.zeros(tuple(shape), like.dtype)

    def cast(self, x, dtype):
        dtype = np.dtype(dtype if isinstance(dtype, str) else dtype.dtype)
        return x.astype(dtype) if dtype.kind == "f" else getval(x).astype(dtype)

    def concrete(self, x):
        return np.asarray(getval(x))

    def exact_softplus(self, x):
        return anp.logaddexp(x, 0.0)

    def relu(self, x, inplace=False):
        return self.where(x <= 0, 0.0, x)

    def floor(self, x):
        return np.floor(getval(x))

    def atan(self, x):
        return anp.arctan(x)

    def where(self, condition, x, y):
        shape = np.broadcast_shapes(
            *(np.shape(getval(each)) for each in (condition, x, y))
        )
        dtype = np.result_type(
            *(each if isinstance(each, int | float) else each.dtype for each in (x, y))
        )
        x, y = (
            self.broadcast_to(each if isbox(each) else np.asarray(each, dtype), shape)
            for each in (x, y)
        )
        return anp.where(np.broadcast_to(getval(condition), shape), x, y)

    def sum(self, x, dim=None, keepdim=False):
        return anp.sum(x, axis=_axes(dim), keepdims=keepdim)

    def mean(self, x, dim=None, keepdim=False):
        return anp.mean(x, axis=_axes(dim), keepdims=keepdim)

    def max_along(self, x, dim, keepdim=False):
        first = np.expand_dims(
            self.argmax_along(x, dim), dim
        )  # anp.max shares the gradient among equal maxima
        y = self.select_along(x, first, dim)
        return y if keepdim else self.squeeze(y, dim)

    def argmax_along(self, x, dim):
        return np.argmax(getval(x), dim)

    def log_softmax(self, x, dim):
        shifted = x - np.max(getval(x), dim, keepdims=True)
        return shifted - anp.log(anp.sum(anp.exp(shifted), dim, keepdims=True))

    def reshape(self, x, shape):
        return anp.reshape(x, tuple(shape))

    def permute(self, x, dims):
        return anp.transpose(x, tuple(d % len(dims) for d in dims))

    def broadcast_to(self, x, shape):
        new_axes = (1,) * (
            len(shape) - x.ndim
        )  # autograd's derivative of broadcast_to knows no new axes
        return anp.broadcast_to(anp.reshape(x, (*new_axes, *x.shape)), tuple(shape))

    def concatenate(self, arrays, dim=0):
        return anp.concatenate(list(arrays), dim)

    def pad_constant(self, x, pads, value=0.0):
        inside = tuple(
            slice(max(0, -before), n - max(0, -after))
            for n, (before, after) in zip(x.shape, pads)
        )
        outside = [(max(0, before), max(0, after)) for before, after in pads]
        return anp.pad(x[inside], outside, "constant", constant_values=value)

    def flip_along(self, x, dim):
        return x[(*(slice(None),) * (dim % x.ndim), slice(None, None, -1))]

    def select(self, x, index, dim):
        return x[(*(slice(None),) * (dim % x.ndim), getval(index))]

    def select_along(self, x, index, dim):
        places = list(np.ogrid[tuple(map(slice, index.shape))])
        places[dim] = getval(index)
        return x[tuple(places)]

    def scatter_add(self, x, dim, index, src):
        places = list(np.ogrid[tuple(map(slice, index.shape))])
        places[dim] = getval(index)
        return x + _collected(src, tuple(places), x.shape)

    def argsort_along(self, x, dim):
        return np.argsort(getval(x), dim, kind="stable")

    def convolve(self, x, weight, stride, pads, dilation, groups):
        taps = self._taps(
            self.pad_constant(x, ((0, 0), (0, 0), *pads)),
            weight.shape[2:],
            stride,
            dilation,
        )
        size, under = (
            taps[0].shape[2:],
            [anp.reshape(tap, (len(x), groups, weight.shape[1], -1)) for tap in taps],
        )
        rows = anp.reshape(
            weight, (groups, len(weight) // groups, -1)
        )  # (groups, out, in * kernel)
        columns = anp.reshape(anp.stack(under, 3), (len(x), groups, rows.shape[2], -1))
        return anp.reshape(anp.matmul(rows, columns), (len(x), len(weight), *size))

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        kernel, n = weight.shape[2:], weight.ndim - 2
        reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
        pads = tuple(
            (r - p, r - p + e) for r, p, e in zip(reach, padding, output_padding)
        )
        for dim, step in enumerate(stride, start=2):
            x = self._apart(x, dim, step)
        split = anp.reshape(weight, (groups, len(weight) // groups, *weight.shape[1:]))
        turned = anp.reshape(
            anp.swapaxes(split, 1, 2), (-1, len(weight) // groups, *kernel)
        )
        return self.convolve(
            x,
            turned[(..., *(slice(None, None, -1),) * n)],
            (1,) * n,
            pads,
            dilation,
            groups,
        )

    def _apart(self, x, dim, step):
        """The elements along an axis with ``step - 1`` zeros between each two."""
        spread = self.pad_constant(
            self.expand_dims(x, dim + 1),
            [(0, step - 1 if d == dim + 1 else 0) for d in range(x.ndim + 1)],
        )
        together = anp.reshape(
            spread, (*x.shape[:dim], x.shape[dim] * step, *x.shape[dim + 1 :])
        )
        return together[
            (*(slice(None),) * dim, slice(0, (x.shape[dim] - 1) * step + 1))
        ]

    def max_windows(self, x, kernel, stride, pads, dilation):
        pads = ((0, 0), (0, 0), *pads)
        padded = self.pad_constant(x, pads, -np.inf)
        taps = anp.stack(self._taps(padded, kernel, stride, dilation))
        ones = self.pad_constant(np.ones(x.shape), pads)
        inside = np.stack(self._taps(ones, kernel, stride, dilation)) > 0
        values = getval(taps)
        largest = (values == values.max(0)) | np.isnan(values)
        first = np.argmax(largest & inside, 0)  # padding takes no gradient
        return self.select_along(taps, first[None], 0)[0]

    def sum_windows(self, x, kernel, stride, pads):
        padded = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        return sum(self._taps(padded, kernel, stride, (1,) * len(kernel)))

    def _taps(self, x, kernel, stride, dilation):
        """What lies under each element of a kernel, at every position."""
        counts = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation)
        ]
        steps = list(zip(counts, stride, dilation))
        cuts = [
            [
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, (n, s, d) in zip(at, steps)
            ]
            for at in itertools.product(*map(range, kernel))
        ]
        return [x[(slice(None), slice(None), *cut)] for cut in cuts]

    def gradient(self, function, x):
        def value(at):
            found = function(at)
            checks.scalar(found, "gradient: the function's value")
            return found + 0.0 * anp.sum(
                at
            )  # autograd warns where a function does not depend on its argument

        return grad(value)(x)

    def draw(self, layer, shape, like, kind, p=0.0):
        stream, generator = random.current(), _chance["generator"]
        if stream is not None:
            path = layer.block_path
            draw = stream.next_draw(path)
            numbers = random.numbers(stream, path, tuple(shape), kind, p, draw)
        elif kind == "normal":
            numbers = generator.standard_normal(tuple(shape))
        else:
            numbers = generator.random(tuple(shape))
            numbers = numbers >= p if kind == "keep" else numbers
        return numbers.astype(like.dtype)
