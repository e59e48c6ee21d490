"""Operations of several steps as one node, with first derivatives by hand.

A node of Chainer's costs some 20 µs on the way forward and 30 on the way back, whatever it
computes. Second derivatives, which are rare, go through the composition of other functions that an
operation stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import Variable, array_module, chainer
from deliralike.backends.chainer.kernels.nodes import weighted

F = chainer.functions
_log_softmax = F.activation.log_softmax._log_softmax
_PIECE = 1 << 17  # elements that fit into the second cache


class Fused(chainer.FunctionNode):
    """An operation and its first derivatives on arrays.

    An operation defines `compute` and `derive`. Arguments that are None are left out of the graph.
    Arrays that `compute` has to keep for `derive` become attributes.
    """

    def __init__(self, composed: Callable[..., Any]) -> None:
        """Take the same operation composed of differentiable functions."""
        super().__init__()
        self.composed = composed

    def of(self, *arguments: Any) -> tuple[Any, ...]:
        """Return the outputs for arrays and variables, of which some may be None."""
        self.places = [
            place for place, each in enumerate(arguments) if each is not None
        ]
        self.arity = len(arguments)
        return self.apply([arguments[place] for place in self.places])

    def compute(self, *arguments: Any) -> tuple[Any, ...]:
        """Return the output arrays."""
        raise NotImplementedError

    def derive(
        self, arguments: Sequence[Any], gradients: Sequence[Any]
    ) -> Sequence[Any]:
        """Return the gradient of each argument from those of the outputs (None where absent).

        What is not in `self.wanted`, a set of places, need not be computed.
        """
        raise NotImplementedError

    def forward(self, inputs):
        self.retain_inputs(tuple(range(len(inputs))))
        return self.compute(*self._spread(inputs))

    def backward(self, indexes, gradients):
        if chainer.config.enable_backprop:
            return self._derive_composed(indexes, gradients)
        arguments = self._spread([node.data for node in self.inputs])
        arrays = [
            None if gradient is None else gradient.array for gradient in gradients
        ]
        self.wanted = {self.places[index] for index in indexes}
        results = self.derive(arguments, arrays)
        return tuple(Variable(results[self.places[index]]) for index in indexes)

    def _derive_composed(
        self, indexes: Sequence[int], gradients: Sequence[Any]
    ) -> tuple:
        """Return gradients that can be differentiated again."""
        # nodes of their own, so that only the paths through this operation count
        inputs = [F.identity(each) for each in self.get_retained_inputs()]
        outputs = self.composed(*self._spread(inputs))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None
        ]
        found = chainer.grad(
            [output for output, _ in pairs],
            [inputs[index] for index in indexes],
            [gradient for _, gradient in pairs],
            enable_double_backprop=True,
        )
        return tuple(found)

    def _spread(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the arguments with None where it was given."""
        arguments: list[Any] = [None] * self.arity
        for place, value in zip(self.places, inputs, strict=True):
            arguments[place] = value
        return arguments


def are_plain(*values: Any) -> bool:
    """Return whether all that is not None has axes and one type, single or double precision.

    Of arrays without axes NumPy makes numbers, which Chainer does not take.
    """
    kinds = {
        value.dtype.char if value.shape else "" for value in values if value is not None
    }
    return kinds in ({"f"}, {"d"})


# Element by element
# ------------------------------------------------------------


def saturating() -> AbstractContextManager[Any]:
    """Return a context in which `logistic` may overflow: ``1 / inf`` is right."""
    return np.errstate(over="ignore")


def logistic(x: Any, out: Any = None) -> Any:
    """Return ``1 / (1 + exp(-x))``; unlike tanh it keeps the far tail."""
    xp = array_module(x)
    y = xp.negative(x, out=out)
    xp.exp(y, out=y)
    y += 1
    return xp.reciprocal(y, out=y)


class SiLU(Fused):
    """``x * sigmoid(x)``."""

    def compute(self, x):
        with saturating():
            self.sigmoid = logistic(x)
        return (x * self.sigmoid,)

    def derive(self, arguments, gradients):
        (x,) = arguments
        slope = 1 - self.sigmoid
        slope *= x
        slope += 1
        slope *= self.sigmoid
        slope *= gradients[0]
        return (slope,)


class GELU(Fused):
    """``x * Phi(x)`` with the normal distribution."""

    def compute(self, x):
        self.share = F.ndtr(x).array
        return (x * self.share,)

    def derive(self, arguments, gradients):
        (x,) = arguments
        slope = x * x
        slope *= -0.5
        array_module(x).exp(slope, out=slope)
        slope *= 1.0 / math.sqrt(2.0 * math.pi)
        slope *= x
        slope += self.share
        slope *= gradients[0]
        return (slope,)


class LeakyReLU(Fused):
    """`x` where it is positive, else `x` times a slope other than 0.

    Without choices by a mask, which take NumPy more than ten times as long where signs are random.
    """

    def __init__(self, composed, slope):
        super().__init__(composed)
        self.slope = slope

    def compute(self, x):
        xp = array_module(x)
        choose = xp.maximum if self.slope <= 1 else xp.minimum
        y = x * self.slope
        return (choose(x, y, out=y),)

    def derive(self, arguments, gradients):
        is_positive = (arguments[0] > 0).astype(gradients[0].dtype)
        slope = is_positive * -self.slope
        slope += self.slope  # 0 where x is positive, without rounding
        slope += is_positive
        slope *= gradients[0]
        return (slope,)


class ELU(Fused):
    """`x` where it is positive, else ``alpha * (exp(x) - 1)``."""

    def __init__(self, composed, alpha):
        super().__init__(composed)
        self.alpha = alpha

    def compute(self, x):
        xp = array_module(x)
        y = self._exponential(x)
        y -= 1  # 0 where x is positive
        y *= self.alpha
        y += xp.maximum(x, 0)
        return (y,)

    def derive(self, arguments, gradients):
        (x,) = arguments
        is_positive = (x > 0).astype(x.dtype)
        slope = self._exponential(x)
        slope -= is_positive  # 0 where x is positive
        slope *= self.alpha
        slope += is_positive
        slope *= gradients[0]
        return (slope,)

    def _exponential(self, x: Any) -> Any:
        """Return ``exp(x)`` where `x` is negative, else 1."""
        xp = array_module(x)
        y = xp.minimum(x, 0)
        return xp.exp(y, out=y)


class Clipped(Fused):
    """``min(max(x + shift, 0), 6)`` times a factor, and times `x` if `is_gate`.

    ReLU6, the hard sigmoid and the hard swish.
    """

    def __init__(self, composed, shift, factor, is_gate):
        super().__init__(composed)
        self.shift, self.factor, self.is_gate = shift, factor, is_gate

    def compute(self, x):
        y = self._clip(x)
        if self.factor != 1:
            y *= self.factor
        if self.is_gate:
            y *= x
        return (y,)

    def derive(self, arguments, gradients):
        (x,) = arguments
        clipped = self._clip(x)
        slope = ((clipped > 0) & (clipped < 6)).astype(x.dtype)
        if self.is_gate:
            slope *= x
            slope += clipped
        if self.factor != 1:
            slope *= self.factor
        slope *= gradients[0]
        return (slope,)

    def _clip(self, x: Any) -> Any:
        xp = array_module(x)
        y = xp.maximum(x + self.shift if self.shift else x, 0)
        return xp.minimum(y, 6, out=y)


# Losses
# ------------------------------------------------------------


class CrossEntropy(Fused):
    """The sum of some elements of the log-softmax along axis 1, one at each position, by weights.

    Args:
        where: The indices of these elements.
        weights: Their weights ``(batch, ...)``.
    """

    def __init__(self, composed, where, weights):
        super().__init__(composed)
        self.where, self.weights = where, weights

    def compute(self, x):
        self.log_p = _log_softmax(x, 1)
        total = weighted(self.log_p[self.where], self.weights).sum()
        return (array_module(x).asarray(total, dtype=x.dtype),)

    def derive(self, arguments, gradients):
        xp = array_module(self.log_p)
        taken = self.weights * gradients[0]
        gx = xp.exp(self.log_p)
        gx *= xp.expand_dims(-taken, 1)
        gx[self.where] += taken
        return (gx,)


# Products
# ------------------------------------------------------------


class Linear(Fused):
    """``x @ weight.T + bias`` over the last axis."""

    def compute(self, x, weight, bias):
        y = x.reshape(-1, x.shape[-1]) @ weight.T
        if bias is not None:
            y += bias
        return (y.reshape(*x.shape[:-1], weight.shape[0]),)

    def derive(self, arguments, gradients):
        x, weight, bias = arguments
        rows = gradients[0].reshape(-1, weight.shape[0])
        gx = gw = gb = None
        if 0 in self.wanted:
            gx = (rows @ weight).reshape(x.shape)
        if 1 in self.wanted:
            gw = rows.T @ x.reshape(-1, x.shape[-1])
        if bias is not None:
            gb = rows.sum(0)
        return gx, gw, gb


class AddBias(Fused):
    """Add one value to each channel, the second axis."""

    def compute(self, y, bias):
        return (y + bias.reshape(-1, *(1,) * (y.ndim - 2)),)

    def derive(self, arguments, gradients):
        (gy,) = gradients
        return gy, gy.sum((0, *range(2, gy.ndim)))


class Attention(Fused):
    """Scaled dot-product attention of arrays with the same leading axes; outputs and weights.

    Samples go through all steps one piece after the other, so that scores stay in the cache.
    """

    def __init__(self, composed, scale):
        super().__init__(composed)
        self.scale = scale

    def compute(self, query, key, value, bias, mask):
        xp = array_module(query)
        shape = (*query.shape[:-1], key.shape[-2])
        self.weights = xp.empty(shape, query.dtype)
        output = xp.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
        bias, mask = _broadcast(bias, shape), _broadcast(mask, shape)
        for piece in _pieces(self.weights):
            weights = self.weights[piece]
            xp.matmul(
                query[piece] * self.scale, key[piece].swapaxes(-1, -2), out=weights
            )
            if bias is not None:
                weights += bias[piece]
            highest = weights.max(-1, keepdims=True)
            attends = highest != -math.inf  # to some key
            weights -= xp.where(attends, highest, 0)
            xp.exp(weights, out=weights)
            weights /= xp.where(attends, weights.sum(-1, keepdims=True), 1)
            masked = weights if mask is None else weights * mask[piece]
            xp.matmul(masked, value[piece], out=output[piece])
        return output, self.weights

    def derive(self, arguments, gradients):
        query, key, value, bias, mask = arguments
        xp = array_module(query)
        results = [xp.empty(each.shape, each.dtype) for each in arguments[:3]]
        shape = self.weights.shape
        # gradients of bias and mask before they are summed to their shapes
        full_bias, full_mask = (
            xp.empty(shape, query.dtype) if place in self.wanted else None
            for place in (3, 4)
        )
        mask_everywhere = _broadcast(mask, shape)
        for piece in _pieces(self.weights):
            weights = self.weights[piece]
            g_output, g_weights = (
                None if each is None else each[piece] for each in gradients
            )
            factor = None if mask is None else mask_everywhere[piece]
            if g_output is None:
                g_output = xp.zeros(
                    (*weights.shape[:-1], value.shape[-1]), weights.dtype
                )
            masked = weights if factor is None else weights * factor
            xp.matmul(masked.swapaxes(-1, -2), g_output, out=results[2][piece])
            slope = xp.matmul(g_output, value[piece].swapaxes(-1, -2))
            if full_mask is not None:
                full_mask[piece] = slope * weights
            if factor is not None:
                slope *= factor
            if g_weights is not None:
                slope += g_weights
            slope -= xp.einsum("...k,...k->...", slope, weights)[..., None]
            slope *= weights
            if full_bias is not None:
                full_bias[piece] = slope
            slope_of_scores = slope * self.scale
            xp.matmul(slope_of_scores, key[piece], out=results[0][piece])
            xp.matmul(
                slope_of_scores.swapaxes(-1, -2), query[piece], out=results[1][piece]
            )
        for each, gradient in ((bias, full_bias), (mask, full_mask)):
            results.append(
                None if gradient is None else chainer.utils.sum_to(gradient, each.shape)
            )
        return results


def _broadcast(x: Any, shape: Sequence[int]) -> Any:
    """Return a view of another shape; None stays None."""
    return None if x is None else array_module(x).broadcast_to(x, shape)


def _pieces(x: Any) -> list[slice]:
    """Return slices of the first axis: on the host of so many elements as fit into the cache."""
    if not isinstance(x, np.ndarray) or x.ndim == 2 or x.size <= _PIECE:
        return [slice(None)]
    step = max(1, _PIECE * len(x) // x.size)
    return [slice(start, start + step) for start in range(0, len(x), step)]
