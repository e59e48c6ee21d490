"""Activations, written on the primitives with PyTorch's conventions."""

import math

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.elementwise import Elementwise
from deliralike.nn.primitives import Array, axis_of

# Klambauer et al. 2017, arXiv 1706.02515
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


class Activations(Elementwise):
    """Functions of one element, and softmax.

    `inplace` is taken as PyTorch's and has no effect: no function changes its arguments.
    """

    def relu6(self, x: Array, inplace: bool = False) -> Array:
        """``min(max(x, 0), 6)`` with derivative 0 at both ends."""
        return self.where(x >= 6.0, 6.0, self.relu(x))  # NaN stays

    def leaky_relu(
        self, x: Array, negative_slope: float = 0.01, inplace: bool = False
    ) -> Array:
        """`x` where positive, else ``negative_slope * x``."""
        return self.where(x > 0, x, x * negative_slope)

    def prelu(self, x: Array, weight: Array) -> Array:
        """Leaky ReLU with a learned slope for all channels, or one for each (axis 1)."""
        channels = x.shape[1] if x.ndim > 1 else 1
        if tuple(weight.shape) not in ((), (1,), (channels,)):
            raise ShapeError(
                f"prelu: got a weight of shape {tuple(weight.shape)} for an input of shape "
                f"{tuple(x.shape)}, wanted one slope, or one for each of {channels} channels"
            )
        weight = self.reshape(weight, (1, -1, *(1,) * x.ndim)[: x.ndim])
        return self.where(x > 0, x, x * weight)

    def elu(self, x: Array, alpha: float = 1.0, inplace: bool = False) -> Array:
        """`x` where positive, else ``alpha * (exp(x) - 1)``."""
        # The zeros keep exp from overflowing where its branch is not taken.
        negative = self.where(x > 0, 0.0, x)
        return self.where(x > 0, x, alpha * self._rise(negative))

    def celu(self, x: Array, alpha: float = 1.0, inplace: bool = False) -> Array:
        """`x` where positive, else ``alpha * (exp(x / alpha) - 1)``."""
        negative = self.where(x > 0, 0.0, x)
        return self.where(x > 0, x, alpha * self._rise(negative * (1.0 / alpha)))

    def _rise(self, x: Array) -> Array:
        """``exp(x) - 1``: near 0 its value is right, far below 0 its derivative is too."""
        is_near = x > -1.0
        near = self.expm1(self.where(is_near, x, 0.0))
        return self.where(is_near, near, self.exp(x) - 1.0)

    def selu(self, x: Array, inplace: bool = False) -> Array:
        """A scaled `elu` that keeps mean 0 and variance 1. Source: arXiv 1706.02515."""
        return _SELU_SCALE * self.elu(x, _SELU_ALPHA)

    def softplus(self, x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
        """``log(1 + exp(beta * x)) / beta``; `x` itself where ``beta * x`` is above `threshold`."""
        scaled = x if beta == 1 else x * beta
        y = self.exact_softplus(scaled)
        return self.where(scaled > threshold, x, y if beta == 1 else y * (1.0 / beta))

    def mish(self, x: Array, inplace: bool = False) -> Array:
        """``x * tanh(softplus(x))``. Source: arXiv 1908.08681."""
        return x * self.tanh(self.exact_softplus(x))

    def logsigmoid(self, x: Array) -> Array:
        """The logarithm of the sigmoid, without overflow."""
        return -self.exact_softplus(-x)

    def softsign(self, x: Array) -> Array:
        """``x / (1 + |x|)``."""
        return x / (1.0 + self.abs(x))

    def tanhshrink(self, x: Array) -> Array:
        """``x - tanh(x)``."""
        return x - self.tanh(x)

    def hardtanh(
        self,
        x: Array,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
    ) -> Array:
        """Limit to ``[min_val, max_val]`` with derivative 0 at both ends."""
        if min_val > max_val:
            raise SettingError(
                f"hardtanh: min_val={min_val!r} is above max_val={max_val!r}"
            )
        return self.where(x <= min_val, min_val, self.where(x >= max_val, max_val, x))

    def hardshrink(self, x: Array, lambd: float = 0.5) -> Array:
        """0 from ``-lambd`` to `lambd`, else `x`."""
        return self.where(self.abs(x) <= lambd, 0.0, x)

    def softshrink(self, x: Array, lambd: float = 0.5) -> Array:
        """0 from ``-lambd`` to `lambd`, else `x` moved towards 0 by `lambd`."""
        if lambd < 0:
            raise SettingError(f"softshrink: lambd={lambd!r} is below 0")
        moved = self.where(x > 0, x - lambd, x + lambd)
        return self.where(self.abs(x) <= lambd, 0.0, moved)

    def threshold(
        self, x: Array, threshold: float, value: float, inplace: bool = False
    ) -> Array:
        """`x` where it is above a threshold, else `value`."""
        return self.where(x <= threshold, float(value), x)

    def glu(self, x: Array, dim: int = -1) -> Array:
        """The first half of an axis times the sigmoid of the second. Source: arXiv 1612.08083."""
        size = x.shape[dim]
        if size % 2:
            raise ShapeError(
                f"glu: axis {dim} of shape {tuple(x.shape)} has {size} elements, wanted an even "
                "number"
            )
        before = (slice(None),) * axis_of(dim, x.ndim)
        half = size // 2
        return x[(*before, slice(0, half))] * self.sigmoid(
            x[(*before, slice(half, size))]
        )

    def softmin(self, x: Array, dim: int) -> Array:
        """`softmax` of ``-x``."""
        return self.softmax(-x, dim)

    def silu(self, x: Array, inplace: bool = False) -> Array:
        """``x * sigmoid(x)``, also called swish."""
        return x * self.sigmoid(x)

    def gelu(self, x: Array, approximate: str = "none") -> Array:
        """``x * Phi(x)`` with the exact normal distribution, or its ``"tanh"`` approximation."""
        checks.one_of(approximate, ("none", "tanh"), "gelu: approximate")
        if approximate == "none":
            return 0.5 * x * (1.0 + self.erf(x * math.sqrt(0.5)))
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + self.tanh(inner))

    def hardsigmoid(self, x: Array, inplace: bool = False) -> Array:
        """``relu6(x + 3) / 6``."""
        return self.relu6(x + 3.0) * (1.0 / 6.0)

    def hardswish(self, x: Array, inplace: bool = False) -> Array:
        """``x * hardsigmoid(x)``."""
        return x * self.hardsigmoid(x)

    def softmax(self, x: Array, dim: int) -> Array:
        """Non-negative weights that sum to one over an axis."""
        return self.exp(self.log_softmax(x, dim))
