"""Activations as layers."""

from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.function_layers import FunctionLayer, function_layers
from deliralike.nn.start import Constant

# The function of each layer, and its settings.
_ACTIVATIONS = {
    "ReLU": "relu inplace",
    "ReLU6": "relu6 inplace",
    "SiLU": "silu inplace",
    "Hardswish": "hardswish inplace",
    "Hardsigmoid": "hardsigmoid inplace",
    "Mish": "mish inplace",
    "SELU": "selu inplace",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "LogSigmoid": "logsigmoid",
    "Softsign": "softsign",
    "Tanhshrink": "tanhshrink",
    "Softplus": "softplus beta threshold",
    "Hardtanh": "hardtanh min_val max_val inplace",
    "Hardshrink": "hardshrink lambd",
    "Softshrink": "softshrink lambd",
    "Threshold": "threshold threshold value inplace",
    "GLU": "glu dim",
    "LeakyReLU": "leaky_relu negative_slope inplace",
    "ELU": "elu alpha inplace",
    "CELU": "celu alpha inplace",
    "GELU": "gelu approximate",
    "Softmax": "softmax dim",
    "Softmin": "softmin dim",
    "LogSoftmax": "log_softmax dim",
}
globals().update(function_layers(FunctionLayer, __name__, _ACTIVATIONS))


class Identity(Network):
    """Return the input unchanged; arguments are taken and have no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x):
        return x


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


class Softmax2d(Network):
    """`Softmax` over the channels, axis 1."""

    def forward(self, x):
        checks.spatial_axes(self, x, 2)
        return self.nn.softmax(x, 1)
