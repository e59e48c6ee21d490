"""Checks of gradients: of parameters, of inputs, of gradients; and where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    agree_all,
    build_network,
    equal,
    output,
    values,
)
from deliralike.conformance.suite.nets import DENSE, Dense, Moved
from deliralike.conformance.suite.rows import functions, networks

_X, _LABELS = values(5, 3), np.array([0, 2, 1, 1, 0])
_WEIGHT, _BIAS = values(3, 2), values(2)
_TWICE = ("double_backward",)


def _dense(nn: Any, x: Any, *weights: Any) -> Any:
    return nn.linear(nn.tanh(nn.linear(x, *weights[:2])), *weights[2:])


networks(
    "gradients",
    (
        "of parameters and inputs",
        (Dense,),
        DENSE,
        lambda nn, x, labels, *weights: nn.cross_entropy(
            _dense(nn, x, *weights), labels
        ),
        _X,
        _LABELS,
    ),
    call=lambda net, x, labels: net.nn.cross_entropy(net(x), labels),
)


@check("gradients", "L0")
def none_where_unused(backend: Backend) -> None:
    """A parameter that takes no part has the gradient None, not zeros; a frozen one is not named."""
    network = build_network(backend, Moved)
    before = network.neutral_state()
    network.set_trainable("weight", False)
    found = backend.gradients(lambda net, *at: net(*at), network, _WEIGHT, _BIAS)
    equal("names of gradients", sorted(found.parameters), ["bias", "unused"])
    agree(
        "gradient of a parameter that takes no part", found.parameters["unused"], None
    )
    network.set_trainable("weight", True)
    found = backend.gradients(
        lambda net, *at: net(*at) + net.nn.sum(net.unused * 0.0),
        network,
        _WEIGHT,
        _BIAS,
    )
    wanted = {"weight": _WEIGHT, "bias": _BIAS, "unused": np.zeros(2)}
    agree_all(
        "after it was thawed, or multiplied with zero: gradient",
        found.parameters,
        wanted,
    )
    agree_all("after gradients", network.neutral_state(), before, 0.0)
    for name, gradient in found.parameters.items():
        came = np.asarray(gradient).dtype
        equal(f"the type of the gradient of {name}", came, before[name].dtype)


@check("gradients", "L0")
def nests_of_inputs(backend: Backend) -> None:
    """Gradients of inputs have the form of the inputs; other results of a loss are returned too."""
    batch: dict[str, Any] = {"x": _X, "more": [values(5, 3, seed=1), _LABELS]}

    def loss(network: Any, at: Any) -> Any:
        return network.nn.sum(at["x"] * at["more"][0]), at["x"] * 2.0

    result = backend.gradients(loss, build_network(backend, Moved), batch)
    equal("the number of results beside the loss", len(result.beside), 1)
    agree("what the loss returned beside its value", result.beside[0], 2.0 * _X)
    found = result.inputs[0]
    agree("gradient of a leaf", found["x"], batch["more"][0])
    agree("gradient of a leaf in a list", found["more"][0], _X)
    agree("gradient of labels in a list", found["more"][1], None)


@check("gradients", "L1")
def evaluating(backend: Backend) -> None:
    """Without a graph the outputs are the same, and gradients can be taken afterwards."""
    network = build_network(backend, Dense)
    with backend.evaluating():
        inside = output(backend, network, _X)
    agree("outputs without a graph", inside, output(backend, network, _X))
    found = backend.gradients(lambda net, x: net.nn.sum(net(x)), network, _X).parameters
    agree("gradient of second.bias afterwards", found["second.bias"], np.full(3, 5.0))


# Second derivatives
# -----------------------------------------------------------------------------


def _slope(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The gradient of ``sum(tanh(x @ w))`` with respect to x."""
    return (1.0 - np.tanh(x @ w) ** 2) @ w.T


def _penalty(nn: Any, function: Any, at: Any) -> Any:
    slope = nn.gradient(lambda z: nn.sum(function(z)), at)
    return nn.sum(slope * slope)


def _penalty_of_dense(nn: Any, x: Any, *weights: Any) -> Any:
    first, bias, second, last = weights
    hidden = nn.tanh(nn.linear(x, first, bias))
    slope = nn.matmul((1.0 - hidden * hidden) * nn.sum(second, 0), first)
    return nn.sum(slope * slope) + 0.0 * nn.sum(last)


functions(
    "second derivatives",
    "L1",
    (
        "gradient within a loss",
        lambda x, w: (_slope(x, w) ** 2).sum(),
        _WEIGHT,
        values(2, 4),
    ),
    call=lambda nn, x, w: _penalty(nn, lambda at: nn.tanh(nn.matmul(at, w)), x),
    needs=_TWICE,
)
networks(
    "second derivatives",
    ("gradient through a network", (Dense,), DENSE, _penalty_of_dense, _X),
    # the last bias takes no part, but for this zero
    call=lambda net, x: _penalty(net.nn, net, x) + 0.0 * net.nn.sum(net(x)),
    needs=_TWICE,
)


@check("second derivatives", "L7")
def gradient_of_what_does_not_depend(backend: Backend) -> None:
    """`nn.gradient` gives zeros where the function does not depend on its argument."""
    nn, x = backend.nn, values(3)
    squared = output(backend, lambda at: nn.gradient(lambda z: nn.sum(z * z), at), x)
    agree("gradient of x * x", squared, 2.0 * x)
    constant = output(backend, lambda at: nn.gradient(lambda z: nn.sum(at * at), at), x)
    agree("gradient of a constant", constant, np.zeros(3))
