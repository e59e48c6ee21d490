"""The one table of activations, for arrays of any backend and of NumPy, and their conventions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    array,
    factor,
    instead,
    rules,
    setting,
)

Function = Callable[[Any, Any], Any]  # of `nn` and one array


def _gelu_by_tanh(nn: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + nn.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


# Written with what `HOST` has, so that they serve arrays of NumPy as well.
ACTIVATIONS: dict[str, Function] = {
    "relu": lambda nn, x: nn.relu(x),
    "gelu": lambda nn, x: 0.5 * x * (1.0 + nn.erf(x * math.sqrt(0.5))),
    "gelu (tanh approximation)": _gelu_by_tanh,
    "gelu (sigmoid approximation, x * sigmoid(1.702 x))": lambda nn, x: x * nn.sigmoid(1.702 * x),
    "leaky_relu (slope 0.01)": lambda nn, x: nn.where(x > 0, x, 0.01 * x),
    "leaky_relu (slope 0.2)": lambda nn, x: nn.where(x > 0, x, 0.2 * x),
    "silu": lambda nn, x: x * nn.sigmoid(x),
    "sigmoid": lambda nn, x: nn.sigmoid(x),
    "tanh": lambda nn, x: nn.tanh(x),
    "relu6": lambda nn, x: nn.clip(x, 0.0, 6.0),
    "elu": lambda nn, x: nn.where(x > 0, x, nn.exp(-nn.relu(-x)) - 1.0),
    "selu": lambda nn, x: (
        1.0507009873554805 * nn.where(x > 0, x, 1.6732632423543772 * (nn.exp(-nn.relu(-x)) - 1.0))
    ),
    "softplus": lambda nn, x: nn.softplus(x),
    "hardsigmoid": lambda nn, x: nn.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardsigmoid as clip(0.2 x + 0.5)": lambda nn, x: nn.clip(x * 0.2 + 0.5, 0.0, 1.0),
    "hardswish": lambda nn, x: x * nn.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hardswish with clip(0.2 x + 0.5)": lambda nn, x: x * nn.clip(x * 0.2 + 0.5, 0.0, 1.0),
    "hardtanh": lambda nn, x: nn.clip(x, -1.0, 1.0),
    "mish": lambda nn, x: x * nn.tanh(nn.softplus(x)),
    "softsign": lambda nn, x: x / (1.0 + nn.abs(x)),
    "log_sigmoid": lambda nn, x: -nn.softplus(-x),
    "squared relu": lambda nn, x: nn.relu(x) * nn.relu(x),
    "abs": lambda nn, x: nn.abs(x),
    "square": lambda nn, x: x * x,
    "exp": lambda nn, x: nn.exp(x),
    "log": lambda nn, x: nn.log(x),
    "sqrt": lambda nn, x: nn.sqrt(x),
    "inverse": lambda nn, x: 1.0 / x,
    "inverse square root": lambda nn, x: 1.0 / nn.sqrt(x),
    "erf": lambda nn, x: nn.erf(x),
    "sin": lambda nn, x: nn.sin(x),
    "cos": lambda nn, x: nn.cos(x),
    "clip to [0, 1]": lambda nn, x: nn.clip(x, 0.0, 1.0),
    "LeCun's tanh (1.7159 tanh(2x/3))": lambda nn, x: 1.7159 * nn.tanh(x * (2.0 / 3.0)),
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
    sin=np.sin,
    cos=np.cos,
)


def applied(name: str, x: np.ndarray) -> np.ndarray:
    """An activation of the table, of an array of NumPy; not finite where it is not defined."""
    with np.errstate(all="ignore"):
        return np.asarray(ACTIVATIONS[name](HOST, x))


# A number within a function: where to look for it, and the function of it.
_NUMBERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "leaky_relu": (
        ("negative_slope", None, (0.2, 0.1, 0.01, 0.3), lambda nn, x, a: nn.leaky_relu(x, a)),
    ),
    "elu": (
        ("alpha", None, (0.5, 2.0, 1.0), lambda nn, x, a: nn.elu(x, a)),
        ("alpha of CELU", 1.0, (0.5, 2.0), lambda nn, x, a: nn.elu(x / a, 1.0) * a),
    ),
    "silu": (("beta", 1.0, (1.702, 0.5, 2.0), lambda nn, x, a: x * nn.sigmoid(x * a)),),
    "softplus": (("beta", 1.0, (2.0, 0.5, 5.0), lambda nn, x, a: nn.softplus(x * a) / a),),
    "sigmoid": (("temperature", 1.0, (2.0, 0.5), lambda nn, x, a: nn.sigmoid(x / a)),),
    "tanh": (("temperature", 1.0, (2.0, 0.5), lambda nn, x, a: nn.tanh(x / a)),),
    "relu": (("negative_slope", 0.0, (0.01, 0.2), lambda nn, x, a: nn.leaky_relu(x, a)),),
    "relu6": (("upper bound", 6.0, (5.0, 1.0, 20.0), lambda nn, x, a: nn.clip(x, 0.0, a)),),
    "hardsigmoid": (
        ("slope", 1.0 / 6.0, (0.2, 0.5), lambda nn, x, a: nn.clip(x * a + 0.5, 0.0, 1.0)),
    ),
    "hardswish": (
        ("slope", 1.0 / 6.0, (0.2, 0.5), lambda nn, x, a: x * nn.clip(x * a + 0.5, 0.0, 1.0)),
    ),
    "gelu": (
        (
            "scale within erf",
            0.5**0.5,
            (1.0, 0.5),
            lambda nn, x, a: 0.5 * x * (1.0 + nn.erf(x * a)),
        ),
    ),
}
_GATES: dict[str, Function] = {
    "silu": lambda nn, x: nn.sigmoid(x),
    "gelu": lambda nn, x: 0.5 * (1.0 + nn.erf(x * math.sqrt(0.5))),
    "hardswish": lambda nn, x: nn.hardsigmoid(x),
}
_SOFTMAX = {"softmax": "log_softmax", "log_softmax": "softmax"}

NAMES = frozenset((*_NUMBERS, *_SOFTMAX, "prelu", "exp", "log", "sqrt", "abs", "erf", "sin", "cos"))


def conventions(name: str, given: Arguments) -> list[Convention]:
    """Of an activation of `nn`: its numbers, then all other functions."""
    found = [_identity(name)]
    numbers = [
        _number(words, given.get(words, usual), *how)
        for words, usual, *how in _NUMBERS.get(name, ())
    ]
    if name == "gelu":
        found.append(_approximation(given))
    if name in _SOFTMAX:
        found += _softmax(name, given)
    if name == "prelu":
        found += _prelu(given)
    if name in _GATES:
        found.append(_no_gradient(_GATES[name]))
    # Where the function has a setting of its own, that comes before other functions.
    first = [*numbers, others(name)] if name in ("leaky_relu", "elu") else [others(name), *numbers]
    return found + first


def others(name: str) -> Convention:
    """Every other activation in the place of one; the words of a cause come from here alone."""
    known = {words: _of_x(function) for words, function in ACTIVATIONS.items() if words != name}
    return instead("activation", known, usual=name)


def _of_x(function: Function) -> Formula:
    return lambda nn, given: function(nn, given["x"])


def _identity(name: str) -> Convention:
    return instead("activation", {"identity": lambda nn, given: given["x"]}, usual=name)


def _approximation(given: Arguments) -> Convention:
    words = {"tanh": "tanh approximation of GELU", "none": "exact (erf) GELU"}
    usual = words.pop(given["approximate"])
    (other,) = words
    known = {words[other]: {"approximate": other}}
    return rules("activation:", known, usual=usual)


def _number(
    words: str, usual: Any, starts: tuple[float, ...], function: Callable[..., Any]
) -> Convention:
    def apply(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return function(nn, given["x"], value)

    return factor(words, apply, alternatives=starts, usual=usual)


def _no_gradient(gate: Function) -> Convention:
    def cut(nn: Any, given: Arguments) -> Any:
        return given["x"] * nn.stop_gradient(gate(nn, given["x"]))

    return instead("no gradient", {"of the gate": cut})


def _softmax(name: str, given: Arguments) -> list[Convention]:
    rank, other = len(given["x"].shape), _SOFTMAX[name]
    usual = given["dim"] % rank
    ways: Mapping[str, Function] = {
        "not normalised: exponentials whose sum is not one": lambda nn, x: nn.exp(x),
        "not normalised: exponentials relative to the largest one, whose sum is not one": (
            lambda nn, x: nn.exp(x - nn.max(x, usual, keepdim=True))
        ),
        "one added to the denominator": lambda nn, x: (
            nn.exp(x) / (1.0 + nn.sum(nn.exp(x), usual, keepdim=True))
        ),
    }

    def apply(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return formula(nn, {**given, "x": given["x"] / value})

    def exchanged(nn: Any, given: Arguments) -> Any:
        return getattr(nn, other)(given["x"], usual)

    found = [
        setting("dim", range(rank), words=f"{name} over axis", usual=usual),
        instead("function", {other: exchanged}, usual=name),
        factor("temperature", apply),
        array("input", "x", {"negated": lambda nn, x: -x}),
    ]
    if name == "softmax":
        known = {words: _of_x(function) for words, function in ways.items()}
        found.append(instead("softmax", known))
    return found


def _prelu(given: Arguments) -> list[Convention]:
    rank = len(given["x"].shape)

    def along(axis: int) -> Formula:
        """Slopes by the position along an axis; they repeat where the axis is longer."""

        def formula(nn: Any, given: Arguments) -> Any:
            x, weight = given["x"], given["weight"]
            index = np.arange(x.shape[axis]) % weight.shape[0]
            shape = tuple(-1 if d == axis else 1 for d in range(rank))
            slopes = nn.reshape(nn.select(weight, nn.constant(index, like=weight), 0), shape)
            return nn.where(x > 0, x, x * slopes)

        return formula

    def fixed(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return nn.leaky_relu(given["x"], value)

    def of_positive(nn: Any, given: Arguments) -> Any:
        return -nn.prelu(-given["x"], given["weight"])

    found = [
        factor("slope of PReLU, not learned:", fixed, alternatives=(0.25, 0.01), usual=None),
        instead("slope", {"on what is positive instead of negative": of_positive}),
    ]
    if given["weight"].size > 1:
        axes = {f"{axis} instead of 1": along(axis) for axis in range(rank) if axis != 1}
        found.append(instead("slopes along axis", axes))
        first = {"(the first) for all channels": lambda nn, weight: weight[:1]}
        found.append(array("one slope", "weight", first))
    return found
