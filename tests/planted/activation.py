"""Mistakes of activations: approximations, slopes, limits, axes and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings


def _as(path: str, function: Callable[[Any, Any], Any]) -> Plant:
    """The block at a path computes this function of `nn` and its input."""
    return with_methods(path, forward=lambda self, x: function(self.nn, x))


def _by_steps(nn: Any, x: Any) -> Any:
    """``clip(0.2 x + 0.5)``, Keras' and Chainer's hard sigmoid."""
    return nn.clip(x * 0.2 + 0.5, 0.0, 1.0)


def _selu(nn: Any, x: Any) -> Any:
    return nn.elu(x, 1.6732632423543772) * 1.0507009873554805


def _mish(nn: Any, x: Any) -> Any:
    return x * nn.tanh(nn.softplus(x))


def _softmax_of_two(self, x):
    """Over the batch."""
    return self.nn.softmax(x, 0)


def _one_slope(self, x):
    """The first channel's slope for all."""
    return self.nn.prelu(x, self.weight[:1])


def _fixed_slope(self, x):
    """The slopes take no gradient."""
    return self.nn.prelu(x, self.nn.stop_gradient(self.weight * 1.0))


def _straight_through(path: str, function: str) -> Plant:
    """The right value, with the gradient of the identity."""

    def forward(self, x):
        return x + self.nn.stop_gradient(getattr(self.nn, function)(x) - x)

    return with_methods(path, forward=forward)


def _silu_gate_cut(nn: Any, x: Any) -> Any:
    return x * nn.stop_gradient(nn.sigmoid(x))


def _not_normalised(nn: Any, x: Any) -> Any:
    return nn.exp(x - nn.max_along(x, 1, keepdim=True))


def _act(name: str, path: str, plant: Plant, *cause: str, fixture: str = "activations") -> Mistake:
    return Mistake(f"{path}: {name}", "activation", plant, (path,), cause, fixture)


MISTAKES = [
    _act("tanh approximation", "gelu", with_settings("gelu", approximate="tanh"), "tanh"),
    _act(
        "sigmoid approximation",
        "gelu",
        _as("gelu", lambda nn, x: x * nn.sigmoid(1.702 * x)),
        "sigmoid",
    ),
    _act("SiLU", "gelu", _as("gelu", lambda nn, x: nn.silu(x)), "silu", "SiLU", "swish"),
    _act("ReLU", "gelu", _as("gelu", lambda nn, x: nn.relu(x)), "relu", "ReLU"),
    _act("gradient of the identity", "gelu", _straight_through("gelu", "gelu"), "gradient"),
    _act("slope 0.2", "leaky", with_settings("leaky", negative_slope=0.2), "slope"),
    _act("slope 0.1", "leaky", with_settings("leaky", negative_slope=0.1), "slope"),
    _act(
        "slope 0.037, which no framework has",
        "leaky",
        with_settings("leaky", negative_slope=0.037),
        "slope",
    ),
    _act("slope 0", "leaky", _as("leaky", lambda nn, x: nn.relu(x)), "slope", "relu", "ReLU"),
    _act("slope of the other sign", "leaky", with_settings("leaky", negative_slope=-0.01), "slope"),
    _act(
        "slope 0.2",
        "act",
        with_settings("act", negative_slope=0.2),
        "slope",
        fixture="convolutional",
    ),
    _act(
        "identity",
        "act",
        _as("act", lambda nn, x: x),
        "identity",
        "slope",
        "missing",
        fixture="convolutional",
    ),
    _act(
        "GELU", "act", _as("act", lambda nn, x: nn.gelu(x)), "gelu", "GELU", fixture="convolutional"
    ),
    _act("clip(0.2 x + 0.5)", "hardsigmoid", _as("hardsigmoid", _by_steps), "0.2"),
    _act("sigmoid", "hardsigmoid", _as("hardsigmoid", lambda nn, x: nn.sigmoid(x)), "sigmoid"),
    _act(
        "clip(x / 2 + 0.5)",
        "hardsigmoid",
        _as("hardsigmoid", lambda nn, x: nn.clip(x * 0.5 + 0.5, 0.0, 1.0)),
        "0.5",
        "slope",
    ),
    _act(
        "clip(0.2 x + 0.5)",
        "hardswish",
        _as("hardswish", lambda nn, x: x * _by_steps(nn, x)),
        "0.2",
    ),
    _act(
        "not divided by six",
        "hardswish",
        _as("hardswish", lambda nn, x: x * nn.relu6(x + 3.0)),
        "6",
        "six",
        "scale",
    ),
    _act("SiLU", "hardswish", _as("hardswish", lambda nn, x: nn.silu(x)), "silu", "SiLU", "swish"),
    _act("sigmoid alone", "silu", _as("silu", lambda nn, x: nn.sigmoid(x)), "sigmoid"),
    _act("hard swish", "silu", _as("silu", lambda nn, x: nn.hardswish(x)), "hardswish"),
    _act(
        "steeper gate",
        "silu",
        _as("silu", lambda nn, x: x * nn.sigmoid(1.5 * x)),
        "beta",
        "1.5",
        "scale",
    ),
    _act("mish", "silu", _as("silu", _mish), "mish"),
    _act("no gradient of the gate", "silu", _as("silu", _silu_gate_cut), "gradient"),
    _act("alpha 0.5", "elu", with_settings("elu", alpha=0.5), "alpha"),
    _act("SELU", "elu", _as("elu", _selu), "selu", "SELU", "alpha"),
    _act(
        "one slope for all channels",
        "prelu",
        with_methods("prelu", forward=_one_slope),
        "slope",
        "channel",
    ),
    _act(
        "slopes take no gradient", "prelu", with_methods("prelu", forward=_fixed_slope), "gradient"
    ),
    _act("no limit", "relu6", _as("relu6", lambda nn, x: nn.relu(x)), "relu", "ReLU", "limit", "6"),
    _act("limit 1", "relu6", _as("relu6", lambda nn, x: nn.clip(x, 0.0, 1.0)), "limit", "1"),
    _act("gradient beyond the limit", "relu6", _straight_through("relu6", "relu6"), "gradient"),
    _act(
        "logarithm to base 2",
        "softplus",
        _as("softplus", lambda nn, x: nn.softplus(x) / math.log(2.0)),
        "log",
        "scale",
        "base",
    ),
    _act("beta 2", "softplus", _as("softplus", lambda nn, x: 0.5 * nn.softplus(2.0 * x)), "beta"),
    _act("ReLU", "softplus", _as("softplus", lambda nn, x: nn.relu(x)), "relu", "ReLU"),
    _act(
        "over the batch", "softmax", with_methods("softmax", forward=_softmax_of_two), "axis", "dim"
    ),
    _act("logarithm", "softmax", _as("softmax", lambda nn, x: nn.log_softmax(x, 1)), "log"),
    _act(
        "temperature 2",
        "softmax",
        _as("softmax", lambda nn, x: nn.softmax(x * 0.5, 1)),
        "temperature",
        "scale",
    ),
    _act("sigmoid", "softmax", _as("softmax", lambda nn, x: nn.sigmoid(x)), "sigmoid"),
    _act("sum is not one", "softmax", _as("softmax", _not_normalised), "sum", "normalis"),
    _act(
        "no gradient",
        "softmax",
        _as("softmax", lambda nn, x: nn.stop_gradient(nn.softmax(x, 1))),
        "gradient",
    ),
    _act("sigmoid", "tanh", _as("tanh", lambda nn, x: nn.sigmoid(x)), "sigmoid"),
    _act("hard tanh", "tanh", _as("tanh", lambda nn, x: nn.clip(x, -1.0, 1.0)), "hard", "clip"),
    _act(
        "LeCun's scaled tanh",
        "tanh",
        _as("tanh", lambda nn, x: 1.7159 * nn.tanh(x * (2.0 / 3.0))),
        "scale",
        "1.7159",
    ),
]
