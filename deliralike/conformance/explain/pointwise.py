"""Conventions of activations: other functions of one element, with their slopes and temperatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import fitted, instead

Function = Callable[[Any, Any], Any]  # of `nn` and one array

ACTIVATIONS: dict[str, Function] = {
    "relu": lambda nn, x: nn.relu(x),
    "leaky_relu (slope 0.01)": lambda nn, x: nn.leaky_relu(x, 0.01),
    "gelu": lambda nn, x: nn.gelu(x),
    "gelu (tanh approximation)": lambda nn, x: nn.gelu(x, "tanh"),
    "gelu (sigmoid approximation, x * sigmoid(1.702 x))": lambda nn, x: x * nn.sigmoid(x * 1.702),
    "silu": lambda nn, x: nn.silu(x),
    "relu6": lambda nn, x: nn.relu6(x),
    "elu": lambda nn, x: nn.elu(x),
    "selu": lambda nn, x: 1.0507009873554805 * nn.elu(x, 1.6732632423543772),
    "sigmoid": lambda nn, x: nn.sigmoid(x),
    "tanh": lambda nn, x: nn.tanh(x),
    "softplus": lambda nn, x: nn.softplus(x),
    "hardsigmoid": lambda nn, x: nn.hardsigmoid(x),
    "hardsigmoid as clip(0.2 x + 0.5)": lambda nn, x: nn.clip(x * 0.2 + 0.5, 0.0, 1.0),
    "hardswish": lambda nn, x: nn.hardswish(x),
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
    "erf": lambda nn, x: nn.erf(x),
    "sin": lambda nn, x: nn.sin(x),
    "cos": lambda nn, x: nn.cos(x),
    "identity": lambda nn, x: x,
    "hard clipping at 1 from above": lambda nn, x: nn.clip(x, 0.0, 1.0),
    "scaled tanh (1.7159 tanh(2x/3))": lambda nn, x: 1.7159 * nn.tanh(x * (2.0 / 3.0)),
    "sigmoid by tanh": lambda nn, x: 0.5 * nn.tanh(0.5 * x) + 0.5,
}


# A number within a function: its name, where to look for it, and the function.
_Number = tuple[str, float | None, tuple[float, ...], Callable[[Any, Any, float], Any]]
_FREE: dict[str, list[_Number]] = {
    "leaky_relu": [
        ("negative_slope", None, (0.2, 0.1, 0.01, 0.3), lambda nn, x, a: nn.leaky_relu(x, a))
    ],
    "elu": [
        ("alpha", None, (0.5, 2.0, 1.0), lambda nn, x, a: nn.elu(x, a)),
        ("CELU with alpha", 1.0, (0.5, 2.0), lambda nn, x, a: _celu(nn, x, a)),
    ],
    "silu": [("beta", 1.0, (1.702, 0.5, 2.0), lambda nn, x, a: x * nn.sigmoid(x * a))],
    "softplus": [("beta", 1.0, (2.0, 0.5, 5.0), lambda nn, x, a: nn.softplus(x * a) / a)],
    "sigmoid": [("temperature", 1.0, (2.0, 0.5), lambda nn, x, a: nn.sigmoid(x / a))],
    "tanh": [("temperature", 1.0, (2.0, 0.5), lambda nn, x, a: nn.tanh(x / a))],
    "relu": [("negative_slope", 0.0, (0.01, 0.2), lambda nn, x, a: nn.leaky_relu(x, a))],
    "relu6": [("upper bound", 6.0, (5.0, 1.0, 20.0), lambda nn, x, a: nn.clip(x, 0.0, a))],
    "hardsigmoid": [
        ("slope", 1.0 / 6.0, (0.2, 0.1, 0.25), lambda nn, x, a: nn.clip(x * a + 0.5, 0.0, 1.0))
    ],
    "hardswish": [
        ("slope", 1.0 / 6.0, (0.2, 0.1, 0.25), lambda nn, x, a: x * nn.clip(x * a + 0.5, 0.0, 1.0))
    ],
    "gelu": [
        (
            "scale within erf",
            0.5**0.5,
            (1.0, 0.5),
            lambda nn, x, a: 0.5 * x * (1.0 + nn.erf(x * a)),
        ),
        (
            "slope of the sigmoid in its place",
            None,
            (1.7, 1.5),
            lambda nn, x, a: x * nn.sigmoid(x * a),
        ),
    ],
}
_GATES: dict[str, Function] = {
    "silu": lambda nn, x: nn.sigmoid(x),
    "gelu": lambda nn, x: 0.5 * (1.0 + nn.erf(x * math.sqrt(0.5))),
    "hardswish": lambda nn, x: nn.hardsigmoid(x),
}
_DERIVATIVES: dict[str, tuple[str, Function]] = {
    "relu": ("derivative 1 at 0 instead of 0", lambda nn, x: nn.where(x >= 0, x, x * 0.0)),
    "relu6": ("derivative 1 at both ends instead of 0", lambda nn, x: nn.clip(x, 0.0, 6.0)),
    "abs": ("derivative 1 at 0 instead of 0", lambda nn, x: nn.where(x >= 0, x, -x)),
}


def activation(name: str, b: Bound) -> Iterator[tuple]:
    """Other numbers within the function, then all other functions."""
    yield f"identity instead of {name}", lambda nn, b: b["x"]
    if name == "gelu":
        other = {"none": "tanh", "tanh": "none"}[b["approximate"]]
        words = {"tanh": "tanh approximation of GELU", "none": "exact (erf) GELU"}
        yield (
            f"{words[other]} instead of {words[b['approximate']]}",
            lambda nn, b: nn.gelu(b["x"], other),
        )
    if name in _DERIVATIVES:
        cause, slope = _DERIVATIVES[name]
        yield cause, partial(_on_x, slope)
    if name in _GATES:
        gate = _GATES[name]
        yield "no gradient of the gate", lambda nn, b: b["x"] * nn.stop_gradient(gate(nn, b["x"]))
        yield (
            "no gradient but the gate's",
            lambda nn, b: nn.stop_gradient(b["x"]) * gate(nn, b["x"]),
        )
    for other, function in ACTIVATIONS.items():
        yield f"{other} instead of {name}", partial(_on_x, function)
    for setting, usual, starts, free in _FREE.get(name, ()):
        usual = b.get(setting, usual)
        cause = fitted(setting, usual) if usual is not None else f"{setting} {{}}"
        yield cause, partial(_with_number, free), starts
    if name in ("sigmoid", "tanh", "relu"):
        yield f"{name} twice", lambda nn, b: getattr(nn, name)(getattr(nn, name)(b["x"]))


def _on_x(function: Function, nn: Any, b: Bound) -> Any:
    return function(nn, b["x"])


def _with_number(
    function: Callable[[Any, Any, float], Any], nn: Any, b: Bound, value: float
) -> Any:
    return function(nn, b["x"], value)


def _celu(nn: Any, x: Any, alpha: float) -> Any:
    return nn.relu(x) - alpha * (1.0 - nn.exp(-nn.relu(-x) * (1.0 / alpha)))


def _slopes_along(nn: Any, b: Bound, axis: int) -> Any:
    """Return slopes by the position along an axis; they repeat where the axis is longer."""
    shape = b["x"].shape
    index = np.arange(shape[axis]) % b["weight"].shape[0]
    slopes = nn.select(b["weight"], nn.constant(index, like=b["weight"]), 0)
    slopes = nn.reshape(slopes, tuple(-1 if d == axis else 1 for d in range(len(shape))))
    return nn.where(b["x"] > 0, b["x"], b["x"] * slopes)


def prelu(b: Bound) -> Iterator[tuple]:
    """Slopes taken elsewhere."""
    yield (
        "slope of PReLU not learned (fixed {})",
        lambda nn, b, value: nn.leaky_relu(b["x"], value),
        (0.25, 0.01),
    )
    yield (
        "slope on what is positive instead of negative",
        lambda nn, b: -nn.prelu(-b["x"], b["weight"]),
    )
    for axis in [
        axis for axis in range(len(b["x"].shape)) if axis != 1 and b["weight"].shape[0] > 1
    ]:
        yield f"slopes along axis {axis} instead of 1", partial(_slopes_along, axis=axis)
    yield "sign of the slope reversed", lambda nn, b: nn.prelu(b["x"], -b["weight"])
    if b["weight"].shape[0] > 1:
        yield (
            "one slope (the first) for all channels",
            lambda nn, b: nn.prelu(b["x"], b["weight"][:1]),
        )
        yield (
            "one slope (the mean) for all channels",
            lambda nn, b: nn.prelu(b["x"], nn.reshape(nn.mean(b["weight"]), (1,))),
        )
    for other, function in ACTIVATIONS.items():
        yield f"{other} instead of prelu", partial(_on_x, function)


def softmax(b: Bound, logarithm: bool = False) -> Iterator[tuple]:
    """Other axes, temperatures, and what is not a softmax."""
    rank, usual = len(b["x"].shape), b["dim"] % len(b["x"].shape)
    name, other = ("log_softmax", "softmax") if logarithm else ("softmax", "log_softmax")
    for dim in [dim for dim in range(rank) if dim != usual]:
        yield (
            f"{name} over axis {dim} instead of {usual}",
            lambda nn, b, dim=dim: getattr(nn, name)(b["x"], dim),
        )
    yield (
        fitted("temperature", 1.0),
        lambda nn, b, value: getattr(nn, name)(b["x"] * (1.0 / value), b["dim"]),
        (2.0, 0.5),
    )
    yield f"{other} instead of {name}", lambda nn, b: getattr(nn, other)(b["x"], b["dim"])
    yield (
        f"{name} over all axes but the first",
        lambda nn, b: nn.reshape(getattr(nn, name)(nn.flatten(b["x"]), 1), tuple(b["x"].shape)),
    )
    yield (
        f"{name} twice",
        lambda nn, b: getattr(nn, name)(getattr(nn, name)(b["x"], b["dim"]), b["dim"]),
    )
    yield f"{name} of the negated input", lambda nn, b: getattr(nn, name)(-b["x"], b["dim"])
    yield (
        "logarithm to base 2",
        lambda nn, b: nn.log_softmax(b["x"], b["dim"]) * (1.0 / math.log(2.0)),
    )
    yield "base 2 instead of e", lambda nn, b: getattr(nn, name)(b["x"] * math.log(2.0), b["dim"])
    if not logarithm:
        yield "not normalised: exponentials whose sum is not one", lambda nn, b: nn.exp(b["x"])
        yield (
            "not normalised: exponentials relative to the largest one, whose sum is not one",
            lambda nn, b: nn.exp(b["x"] - nn.max(b["x"], b["dim"], keepdim=True)),
        )
    yield f"one added to the denominator of {name}", lambda nn, b: _with_one(nn, b, logarithm)
    for another, function in ACTIVATIONS.items():
        yield f"{another} instead of {name}", partial(_on_x, function)


def _with_one(nn: Any, b: Bound, logarithm: bool) -> Any:
    e = nn.exp(b["x"])
    y = e / (1.0 + nn.sum(e, b["dim"], keepdim=True))
    return nn.log(y) if logarithm else y


def normalize(b: Bound) -> Iterator[tuple]:
    """Other norms, epsilons and axes of L2 normalisation."""

    def norm(nn: Any, b: Bound) -> Any:
        return nn.sqrt(nn.sum(b["x"] * b["x"], b["dim"], keepdim=True))

    yield (
        f"eps={{}} added to the norm instead of max(norm, {b['eps']:g})",
        (lambda nn, b, value: b["x"] / (norm(nn, b) + value)),
        (1e-5, 1e-3, 1e-8),
        0.0,
    )
    yield (
        "eps={} under the root",
        lambda nn, b, value: (
            b["x"] / nn.sqrt(nn.sum(b["x"] * b["x"], b["dim"], keepdim=True) + value)
        ),
        (1e-5, 1e-3, 1e-8),
        0.0,
    )
    for dim in range(len(b["x"].shape)):
        yield instead("dim", dim, b["dim"]), lambda nn, b, dim=dim: nn.normalize(b["x"], dim)
    yield (
        "sum of magnitudes (L1) instead of the L2 norm",
        lambda nn, b: b["x"] / nn.sum(nn.abs(b["x"]), b["dim"], keepdim=True),
    )
    yield "squared norm", lambda nn, b: b["x"] / nn.sum(b["x"] * b["x"], b["dim"], keepdim=True)
    yield (
        "root mean square instead of the norm",
        lambda nn, b: b["x"] / nn.sqrt(nn.mean(b["x"] * b["x"], b["dim"], keepdim=True)),
    )
    yield "norm without a gradient", lambda nn, b: b["x"] / nn.stop_gradient(norm(nn, b))
