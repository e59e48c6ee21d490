"""Activations as layers."""

from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import Constant


def _plain(name: str, function: str, base: type = Network) -> type:
    """Make the layer that calls one function of the vocabulary, which takes no settings."""

    def forward(self, x):
        return getattr(self.nn, function)(x)

    doc = f"The function `{function}` as a layer."
    metaclass: Any = type(Network)
    return metaclass(
        name, (base,), {"forward": forward, "__doc__": doc, "__module__": __name__}
    )


class _InPlace(Network):
    """An activation that takes PyTorch's `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


def _in_place(name: str, function: str) -> type:
    """Make the layer that calls one function of the vocabulary and takes `inplace`."""
    accepted = (
        "inplace: Taken as PyTorch's, and has no effect: no layer writes over its input, which may "
        "be read again."
    )
    plain = _plain(name, function, base=_InPlace)
    plain.__doc__ = f"{plain.__doc__}\n\nArgs:\n    {accepted}"
    return plain


ReLU = _in_place("ReLU", "relu")
ReLU6 = _in_place("ReLU6", "relu6")
SiLU = _in_place("SiLU", "silu")
Hardswish = _in_place("Hardswish", "hardswish")
Hardsigmoid = _in_place("Hardsigmoid", "hardsigmoid")
Mish = _in_place("Mish", "mish")
SELU = _in_place("SELU", "selu")
Sigmoid = _plain("Sigmoid", "sigmoid")
Tanh = _plain("Tanh", "tanh")
LogSigmoid = _plain("LogSigmoid", "logsigmoid")
Softsign = _plain("Softsign", "softsign")
Tanhshrink = _plain("Tanhshrink", "tanhshrink")


class Identity(Network):
    """Return the input unchanged; arguments are taken and have no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x):
        return x


class Softplus(Network):
    """``log(1 + exp(beta * x)) / beta``; `x` itself where ``beta * x`` is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x):
        return self.nn.softplus(x, self.beta, self.threshold)


class Hardtanh(Network):
    """Limit to ``[min_val, max_val]``; `inplace` as for `ReLU`."""

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
    ) -> None:
        super().__init__()
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x):
        return self.nn.hardtanh(x, self.min_val, self.max_val)


class Hardshrink(Network):
    """0 from ``-lambd`` to `lambd`, else `x`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x):
        return self.nn.hardshrink(x, self.lambd)


class Softshrink(Network):
    """0 from ``-lambd`` to `lambd`, else `x` moved towards 0 by `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x):
        return self.nn.softshrink(x, self.lambd)


class Threshold(Network):
    """`x` where it is above `threshold`, else `value`; `inplace` as for `ReLU`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def forward(self, x):
        return self.nn.threshold(x, self.threshold, self.value)


class GLU(Network):
    """The first half of the axis `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return self.nn.glu(x, self.dim)


class LeakyReLU(Network):
    """`x` where positive, else ``negative_slope * x``; `inplace` as for `ReLU`."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x):
        return self.nn.leaky_relu(x, self.negative_slope)


class PReLU(Network):
    """Leaky ReLU with a learned slope.

    There is one slope for all channels (``num_parameters=1``), or one for each channel (axis 1).
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.check_settings(num_parameters)
        self.num_parameters = num_parameters
        self.weight = self.nn.Parameter((num_parameters,), Constant(init))

    @classmethod
    def check_settings(cls, num_parameters: int = 1, init: float = 0.25) -> None:
        checks.positive(num_parameters, "num_parameters", "PReLU")

    def check_input(self, x) -> None:
        if self.num_parameters > 1:
            checks.channels(self, x, self.num_parameters)

    def forward(self, x):
        self.check_input(x)
        return self.nn.prelu(x, self.weight)


class ELU(Network):
    """`x` where positive, else ``alpha * (exp(x) - 1)``; `inplace` as for `ReLU`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return self.nn.elu(x, self.alpha)


class CELU(Network):
    """`x` where positive, else ``alpha * (exp(x / alpha) - 1)``; `inplace` as for `ReLU`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        return self.nn.celu(x, self.alpha)


class GELU(Network):
    """``x * Phi(x)``, exact (``"none"``) or in its ``"tanh"`` approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return self.nn.gelu(x, self.approximate)


class Softmax(Network):
    """Non-negative weights that sum to one over the axis `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return self.nn.softmax(x, self.dim)


class Softmax2d(Network):
    """`Softmax` over the channels, axis 1."""

    def forward(self, x):
        checks.spatial_axes(self, x, 2)
        return self.nn.softmax(x, 1)


class Softmin(Network):
    """`Softmax` of ``-x``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return self.nn.softmin(x, self.dim)


class LogSoftmax(Network):
    """The logarithm of `Softmax`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return self.nn.log_softmax(x, self.dim)
