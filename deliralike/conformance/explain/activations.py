"""The one table of activations, for arrays of any backend and of NumPy, and their conventions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Change,
    Convention,
    Formula,
    factor,
    instead,
    setting,
)
from deliralike.conformance.kinds import Function

OfNumber = Callable[[Any, Any, float], Any]  # of `nn`, one array and a number


def _gelu_by_tanh(nn: Any, x: Any) -> Any:
    return (
        0.5 * x * (1.0 + nn.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))
    )


def _function_of_nn(name: str) -> Change:
    """The function of `nn`."""
    return lambda nn, x: getattr(nn, name)(x)


def _leaky(slope: float) -> Change:
    return lambda nn, x: nn.where(x > 0, x, slope * x)


def _hardsigmoid(nn: Any, x: Any, slope: float) -> Any:
    return nn.clip(x * slope + 0.5, 0.0, 1.0)


def _hardswish(nn: Any, x: Any, slope: float) -> Any:
    return x * _hardsigmoid(nn, x, slope)


def _leaky_relu(nn: Any, x: Any, slope: float) -> Any:
    return nn.leaky_relu(x, slope)


# Written with what `HOST` has, so that they serve arrays of NumPy as well.
ACTIVATIONS: dict[str, Change] = {
    "identity": lambda nn, x: x,
    "relu": _function_of_nn("relu"),
    "gelu": lambda nn, x: 0.5 * x * (1.0 + nn.erf(x * math.sqrt(0.5))),
    "gelu (tanh approximation)": _gelu_by_tanh,
    "gelu (sigmoid approximation, x * sigmoid(1.702 x))": lambda nn, x: (
        x * nn.sigmoid(1.702 * x)
    ),
    **{f"leaky_relu (slope {slope})": _leaky(slope) for slope in (0.01, 0.1, 0.2, 0.3)},
    "silu": lambda nn, x: x * nn.sigmoid(x),
    "sigmoid": _function_of_nn("sigmoid"),
    "tanh": _function_of_nn("tanh"),
    "relu6": lambda nn, x: nn.clip(x, 0.0, 6.0),
    "elu": lambda nn, x: nn.where(x > 0, x, nn.exp(-nn.relu(-x)) - 1.0),
    "softplus": _function_of_nn("softplus"),
    "hardsigmoid": partial(_hardsigmoid, slope=1.0 / 6.0),
    "hardsigmoid as clip(0.2 x + 0.5)": partial(_hardsigmoid, slope=0.2),
    "hardswish": partial(_hardswish, slope=1.0 / 6.0),
    "hardswish with clip(0.2 x + 0.5)": partial(_hardswish, slope=0.2),
    "mish": lambda nn, x: x * nn.tanh(nn.softplus(x)),
    "squared relu": lambda nn, x: nn.relu(x) * nn.relu(x),
    "square": lambda nn, x: x * x,
    "exp": _function_of_nn("exp"),
    "log": _function_of_nn("log"),
    "sqrt": _function_of_nn("sqrt"),
}

HOST = SimpleNamespace(
    relu=lambda x: np.maximum(x, 0.0),
    erf=np.vectorize(math.erf, otypes=[float]),
    sigmoid=lambda x: 1.0 / (1.0 + np.exp(-x)),
    softplus=lambda x: np.logaddexp(0.0, x),
    where=np.where,
    clip=np.clip,
    tanh=np.tanh,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    abs=np.abs,
)


def applied(name: str, x: np.ndarray) -> np.ndarray:
    """An activation of the table, of an array of NumPy; not finite where it is not defined."""
    with np.errstate(all="ignore"):
        return np.asarray(ACTIVATIONS[name](HOST, x))


# Numbers within a function: where to look for each, and the function of it.
_NUMBERS: dict[str, tuple[str, float, tuple[float, ...], OfNumber]] = {
    "leaky_relu": ("negative_slope", 0.01, (0.2, 0.1, 0.01, 0.3), _leaky_relu),
    "relu": ("negative_slope", 0.0, (0.01, 0.2), _leaky_relu),
    "elu": ("alpha", 1.0, (0.5, 2.0, 1.0), lambda nn, x, a: nn.elu(x, a)),
}
_SOFTMAX = {"softmax": "log_softmax", "log_softmax": "softmax"}
NAMES = {*ACTIVATIONS, *_NUMBERS, *_SOFTMAX, "prelu"}


def conventions(name: str, given: Arguments) -> list[Convention]:
    """Of an activation of `nn`: its number, then all other functions."""
    found = [others(name, given)]
    if name in _NUMBERS:
        words, usual, starts, function = _NUMBERS[name]
        usual = given.get(words, usual)
        number = factor(words, _of_number(function), alternatives=starts, usual=usual)
        # A setting of the function's own comes before other functions.
        found = [number, *found] if words in given else [*found, number]
    if name == "leaky_relu":  # before slopes of zero and one
        plain = {one: of_x(ACTIVATIONS[one]) for one in ("relu", "identity")}
        found = [
            instead("activation", plain, usual=f"leaky_relu (slope {usual:g})"),
            *found,
        ]
    if name in _SOFTMAX:
        found = _softmax(name, given) + found
    return found


def others(name: str, given: Arguments) -> Convention:
    """Every other activation in the place of one."""
    usual = "gelu (tanh approximation)" if given.get("approximate") == "tanh" else name
    known = {words: of_x(function) for words, function in ACTIVATIONS.items()}
    return instead("activation", known, usual=usual)


def of_x(function: Change) -> Formula:
    """The formula of a function of one array."""
    return lambda nn, given: function(nn, given["x"])


def _of_number(function: OfNumber) -> Function:
    return lambda formula, nn, given, value: function(nn, given["x"], value)


def _softmax(name: str, given: Arguments) -> list[Convention]:
    rank, other = len(given["x"].shape), _SOFTMAX[name]
    usual = given["dim"] % rank
    ways = {other: lambda nn, given: getattr(nn, other)(given["x"], usual)}
    return [
        setting("dim", range(rank), words=f"{name} over axis", usual=usual),
        instead("function", ways, usual=name),
    ]
