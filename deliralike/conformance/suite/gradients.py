"""Checks of gradients: of parameters, of inputs, of gradients; and where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    BY_DIFFERENCES,
    agree,
    differences,
    dtype_of,
    equal,
    gradients,
    made,
    native,
    true,
    values,
)
from deliralike.conformance.suite.nets import Dense, dense

_X, _LABELS = values(5, 3), np.array([0, 2, 1, 1, 0])
_NAMES = ("first.weight", "first.bias", "second.weight", "second.bias")


def _loss(network: Any, x: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(x), labels)


def _value(*arrays: np.ndarray) -> float:
    return formulas.cross_entropy(
        dense(dict(zip(_NAMES, arrays[:-1], strict=True)), arrays[-1]), _LABELS
    )


@check("gradients", "L1")
def of_parameters_and_inputs(backend: Backend) -> None:
    """The loss, each parameter's gradient, each input's."""
    network, limit = made(backend, Dense), BY_DIFFERENCES[dtype_of(backend)]
    state = network.neutral_state()
    arrays = [*(state[name].astype(np.float64) for name in _NAMES), _X]
    found = backend.gradients(_loss, network, _X, _LABELS)
    agree("the loss", np.array(found.loss), np.array(_value(*arrays)), limit)
    for which, name in enumerate(_NAMES):
        agree(
            f"gradient of {name}", found.parameters[name], differences(_value, arrays, which), limit
        )
    agree("gradient of the input", found.inputs[0], differences(_value, arrays, 4), limit)
    agree("gradient of the labels", found.inputs[1], None)
    for name, value in network.neutral_state().items():
        agree(f"{name} after gradients", value, state[name], 0.0)
    for name, gradient in found.parameters.items():
        equal(
            f"the type of the gradient of {name}",
            "" if gradient is None else str(gradient.dtype),
            "" if name == "spare" else dtype_of(backend),
        )


@check("gradients", "L0")
def none_where_unused(backend: Backend) -> None:
    """A parameter that takes no part has the gradient None, not zeros; a frozen one is not named."""
    network = made(backend, Dense)
    network.set_trainable("first.weight", False)
    found = backend.gradients(_loss, network, _X, _LABELS).parameters
    equal(
        "names of gradients", sorted(found), ["first.bias", "second.bias", "second.weight", "spare"]
    )
    agree("gradient of a parameter that takes no part", found["spare"], None)
    network.set_trainable("first.weight", True)
    true(
        "a thawed parameter has a gradient",
        backend.gradients(_loss, network, _X, _LABELS).parameters["first.weight"] is not None,
    )
    used = backend.gradients(
        lambda net, x: net.nn.sum(net.spare * 0.0) + net.nn.sum(net(x)), network, _X
    ).parameters
    agree("gradient of a parameter that is multiplied with zero", used["spare"], np.zeros(2))


@check("gradients", "L0")
def nests_of_inputs(backend: Backend) -> None:
    """Gradients of inputs have the form of the inputs; other results of a loss are returned too."""
    batch: dict[str, Any] = {"x": _X, "more": [values(5, 3, seed=1), _LABELS]}

    def loss(network: Any, at: Any) -> Any:
        value = network.nn.sum(at["x"] * at["more"][0]) + 0.0 * network.nn.sum(network(at["x"]))
        return value, at["x"] * 2.0

    result = backend.gradients(loss, made(backend, Dense), batch)
    equal("the number of results beside the loss", len(result.beside), 1)
    agree("what the loss returned beside its value", result.beside[0], 2.0 * _X)
    found = result.inputs[0]
    agree("gradient of a leaf", found["x"], batch["more"][0])
    agree("gradient of a leaf in a list", found["more"][0], _X)
    agree("gradient of labels in a list", found["more"][1], None)


@check("gradients", "L1")
def of_arrays_used_twice(backend: Backend) -> None:
    """Contributions are added, also where one of them was broadcast."""
    x, row = values(3, 4), values(4, seed=1)
    found = gradients(backend, lambda nn, a, b: nn.sum(a * a * b + a * b), x, row)
    agree("gradient of an array used three times", found.inputs[0], (2.0 * x + 1.0) * row)
    agree("gradient of an array that was broadcast", found.inputs[1], (x * x + x).sum(0))


@check("gradients", "L1")
def evaluating(backend: Backend) -> None:
    """Without a graph the outputs are the same, and gradients can be taken afterwards."""
    network, x = made(backend, Dense), native(backend, _X)
    with backend.evaluating():
        inside = backend.numpy(network(x))
    agree("outputs without a graph", inside, backend.numpy(network(x)))
    true(
        "gradients afterwards",
        backend.gradients(_loss, network, _X, _LABELS).parameters["first.bias"] is not None,
    )


@check("second derivatives", "L1", "double_backward")
def gradient_within_a_loss(backend: Backend) -> None:
    """Check the penalty ``sum(grad(sum(tanh(x @ w)))**2)`` and its gradients for w and x."""
    x, w = values(3, 2), values(2, 4)

    def penalty(nn: Any, at: Any, weight: Any) -> Any:
        slope = nn.gradient(lambda z: nn.sum(nn.tanh(nn.matmul(z, weight))), at)
        return nn.sum(slope * slope)

    def formula(at: np.ndarray, weight: np.ndarray) -> float:
        slope = (1.0 - np.tanh(at @ weight) ** 2) @ weight.T
        return float((slope * slope).sum())

    found, limit = gradients(backend, penalty, x, w), BY_DIFFERENCES[dtype_of(backend)]
    agree("the penalty", np.array(found.loss), np.array(formula(x, w)), limit)
    for which, name in enumerate(("x", "w")):
        agree(
            f"gradient of the penalty with respect to {name}",
            found.inputs[which],
            differences(formula, (x, w), which),
            limit,
        )


@check("second derivatives", "L1", "double_backward")
def gradient_through_a_network(backend: Backend) -> None:
    """The penalty on a network's gradient moves the network's weights."""
    network = made(backend, Dense)
    state = network.neutral_state()
    arrays = [*(state[name].astype(np.float64) for name in _NAMES), _X]

    def penalty(here: Any, x: Any) -> Any:
        slope = here.nn.gradient(lambda at: here.nn.sum(here(at)), x)
        return here.nn.sum(slope * slope)

    def formula(*at: np.ndarray) -> float:
        weights = dict(zip(_NAMES, at[:-1], strict=True))
        hidden = np.tanh(at[-1] @ weights["first.weight"].T + weights["first.bias"])
        slope = ((1.0 - hidden**2) * weights["second.weight"].sum(0)) @ weights["first.weight"]
        return float((slope * slope).sum())

    found, limit = backend.gradients(penalty, network, _X), BY_DIFFERENCES[dtype_of(backend)]
    for which, name in enumerate(_NAMES[:3]):
        agree(
            f"gradient of the penalty with respect to {name}",
            found.parameters[name],
            differences(formula, arrays, which),
            limit,
        )


@check("second derivatives", "L7")
def gradient_of_what_does_not_depend(backend: Backend) -> None:
    """`nn.gradient` gives zeros where the function does not depend on its argument."""
    nn = backend.nn
    x = native(backend, values(3))
    agree(
        "gradient of x", backend.numpy(nn.gradient(lambda at: nn.sum(at * at), x)), 2.0 * values(3)
    )
    agree(
        "gradient of a constant",
        backend.numpy(nn.gradient(lambda at: nn.sum(x * x), x)),
        np.zeros(3),
    )
