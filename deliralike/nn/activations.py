"""Activations, written on the primitives with PyTorch's conventions."""

import math

from deliralike.errors import SettingError
from deliralike.nn.primitives import Array, Primitives


class Activations(Primitives):
    """Functions of one element, and softmax."""

    def relu6(self, x: Array) -> Array:
        """``min(max(x, 0), 6)`` with derivative 0 at both ends."""
        return self.where(x < 6.0, self.relu(x), 6.0)

    def leaky_relu(self, x: Array, negative_slope: float = 0.01) -> Array:
        """`x` where positive, else ``negative_slope * x``."""
        return self.where(x > 0, x, x * negative_slope)

    def prelu(self, x: Array, weight: Array) -> Array:
        """Leaky ReLU with a learned slope for all channels, or one for each (axis 1)."""
        if weight.shape[0] > 1:
            weight = self._per_channel(weight, x)
        return self.where(x > 0, x, x * weight)

    def elu(self, x: Array, alpha: float = 1.0) -> Array:
        """`x` where positive, else ``alpha * (exp(x) - 1)``."""
        # The zeros keep exp from overflowing where its branch is not taken.
        negative = self.where(x > 0, 0.0, x)
        return self.where(x > 0, x, alpha * (self.exp(negative) - 1.0))

    def silu(self, x: Array) -> Array:
        """``x * sigmoid(x)``, also called swish."""
        return x * self.sigmoid(x)

    def gelu(self, x: Array, approximate: str = "none") -> Array:
        """``x * Phi(x)`` with the exact normal distribution, or its ``"tanh"`` approximation."""
        if approximate == "none":
            return 0.5 * x * (1.0 + self.erf(x * math.sqrt(0.5)))
        if approximate != "tanh":
            raise SettingError(f"gelu: approximate={approximate!r}; wanted 'none' or 'tanh'")
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + self.tanh(inner))

    def hardsigmoid(self, x: Array) -> Array:
        """``relu6(x + 3) / 6``."""
        return self.relu6(x + 3.0) * (1.0 / 6.0)

    def hardswish(self, x: Array) -> Array:
        """``x * hardsigmoid(x)``."""
        return x * self.hardsigmoid(x)

    def softmax(self, x: Array, dim: int) -> Array:
        """Non-negative weights that sum to one over an axis."""
        return self.exp(self.log_softmax(x, dim))
