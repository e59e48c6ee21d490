"""Activations as layers."""

from collections.abc import Mapping
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.function_layers import REQUIRED, FunctionLayer, function_layer
from deliralike.nn.start import Constant

# The function of a layer, and its settings with their defaults.
_ACTIVATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {"inplace": False}),
    "ReLU6": ("relu6", {"inplace": False}),
    "SiLU": ("silu", {"inplace": False}),
    "Hardswish": ("hardswish", {"inplace": False}),
    "Hardsigmoid": ("hardsigmoid", {"inplace": False}),
    "Mish": ("mish", {"inplace": False}),
    "SELU": ("selu", {"inplace": False}),
    "Sigmoid": ("sigmoid", {}),
    "Tanh": ("tanh", {}),
    "LogSigmoid": ("logsigmoid", {}),
    "Softsign": ("softsign", {}),
    "Tanhshrink": ("tanhshrink", {}),
    "Softplus": ("softplus", {"beta": 1.0, "threshold": 20.0}),
    "Hardtanh": ("hardtanh", {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
    "Hardshrink": ("hardshrink", {"lambd": 0.5}),
    "Softshrink": ("softshrink", {"lambd": 0.5}),
    "Threshold": (
        "threshold",
        {"threshold": REQUIRED, "value": REQUIRED, "inplace": False},
    ),
    "GLU": ("glu", {"dim": -1}),
    "LeakyReLU": ("leaky_relu", {"negative_slope": 0.01, "inplace": False}),
    "ELU": ("elu", {"alpha": 1.0, "inplace": False}),
    "CELU": ("celu", {"alpha": 1.0, "inplace": False}),
    "GELU": ("gelu", {"approximate": "none"}),
    "Softmax": ("softmax", {"dim": REQUIRED}),
    "Softmin": ("softmin", {"dim": REQUIRED}),
    "LogSoftmax": ("log_softmax", {"dim": REQUIRED}),
}
for _name, (_function, _settings) in _ACTIVATIONS.items():
    globals()[_name] = function_layer(
        FunctionLayer, _name, _function, __name__, **_settings
    )


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
