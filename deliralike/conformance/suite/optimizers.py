"""Checks of optimizers: rules step by step, unused parameters, hooks, groups, states, curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import rules
from deliralike.conformance.suite.check import Check, check, register
from deliralike.conformance.suite.comparing import (
    LIMITS,
    agree,
    dtype_of,
    equal,
    made,
    refused,
    true,
    values,
)
from deliralike.conformance.suite.nets import Moved
from deliralike.errors import StateError, UnknownName
from deliralike.network.base import Network
from deliralike.nn.start import ZEROS
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import rule

_RATES = (0.1, 0.1, 0.03, 0.2, 0.05)  # it changes, since some conventions differ only then
_SHAPES = {"weight": (3, 2), "bias": (2,)}
_GRADIENTS = {
    name: [values(*shape, seed=seed) for seed in range(5)] for name, shape in _SHAPES.items()
}


def given(network: Any, weight: Any, bias: Any) -> Any:
    """A loss whose gradients are the batch."""
    return network(weight, bias)


def _updates(optimizer: Any, steps: range = range(5)) -> list[dict[str, np.ndarray]]:
    """The network's state after each of some updates."""
    path = []
    for step in steps:
        optimizer.lr = _RATES[step]
        optimizer.update(given, *(_GRADIENTS[name][step] for name in _SHAPES))
        path.append(optimizer.network.neutral_state())
    return path


def _follows(
    name: str, settings: Mapping[str, Any], wanted: Callable[[], rules.Step]
) -> Callable[[Backend], None]:
    def function(backend: Backend) -> None:
        network = made(backend, Moved)
        start = {key: value.astype(np.float64) for key, value in network.neutral_state().items()}
        path = _updates(backend.optimizer(rule(name, lr=_RATES[0], **settings), network))
        for key in _SHAPES:
            before = came = start[key]
            for step, value in enumerate(rules.run(wanted(), start[key], _GRADIENTS[key], _RATES)):
                agree(f"{name}: {key} after update {step + 1}", path[step][key], value)
                if (
                    dtype_of(backend) == "float64"
                ):  # each update beside itself: beside the parameter it may be small
                    agree(
                        f"{name}: update {step + 1} of {key}",
                        path[step][key] - came,
                        value - before,
                    )
                before, came = value, path[step][key]
        agree(f"{name}: a parameter without a gradient", path[-1]["unused"], start["unused"], 0.0)

    return function


_RULES: dict[str, tuple[str, dict[str, Any], Callable[[], rules.Step]]] = {
    "sgd": ("sgd", {}, rules.sgd),
    "sgd with momentum": ("sgd", {"momentum": 0.9}, lambda: rules.sgd(0.9)),
    "sgd with Nesterov's momentum": (
        "sgd",
        {"momentum": 0.9, "nesterov": True},
        lambda: rules.sgd(0.9, True),
    ),
    "sgd with weight decay": (
        "sgd",
        {"momentum": 0.9, "weight_decay": 0.1},
        lambda: rules.sgd(0.9, decay=0.1),
    ),
    "adam": ("adam", {"eps": 1e-3}, lambda: rules.adam(eps=1e-3)),
    "adam with weight decay": ("adam", {"weight_decay": 0.1}, lambda: rules.adam(decay=0.1)),
    "adamw": ("adamw", {"weight_decay": 0.1}, lambda: rules.adam(decay=0.1, decoupled=True)),
    "amsgrad": ("amsgrad", {"betas": (0.9, 0.5)}, lambda: rules.adam((0.9, 0.5), amsgrad=True)),
    "rmsprop": ("rmsprop", {"eps": 1e-2}, lambda: rules.rmsprop(eps=1e-2)),
    "rmsprop with momentum": ("rmsprop", {"momentum": 0.9}, lambda: rules.rmsprop(momentum=0.9)),
    "adagrad": ("adagrad", {"eps": 1e-2}, lambda: rules.adagrad(1e-2)),
    "adadelta": ("adadelta", {}, rules.adadelta),
    "lion": ("lion", {"weight_decay": 0.1}, lambda: rules.lion(decay=0.1)),
    "lamb": ("lamb", {"weight_decay": 0.1}, lambda: rules.lamb(decay=0.1)),
}
for _title, (_name, _settings, _wanted) in _RULES.items():
    register(Check("optimizers", "L4", _title, _follows(_name, _settings, _wanted)))


@check("optimizers", "L4")
def unused_parameters(backend: Backend) -> None:
    """No decay and no momentum for a parameter without a gradient, also when it had one before."""
    network = made(backend, Moved)
    optimizer = backend.optimizer(rule("sgd", lr=0.1, momentum=0.9, weight_decay=0.1), network)
    _updates(optimizer, range(2))
    before = network.neutral_state()
    optimizer.update(lambda net, weight: net.nn.sum(net.weight * weight), _GRADIENTS["weight"][0])
    after = network.neutral_state()
    agree("bias after an update without it", after["bias"], before["bias"], 0.0)
    true("weight has moved", not np.array_equal(after["weight"], before["weight"]))
    equal("the parameters that were updated", tuple(optimizer.updated), ("weight",))
    equal("the number of updates", optimizer.steps, 3)


@check("optimizers", "L4")
def frozen_parameters(backend: Backend) -> None:
    """They stay until they are thawed."""
    network = made(backend, Moved)
    network.set_trainable("bias", False)
    start, optimizer = network.neutral_state(), backend.optimizer(rule("adamw", lr=0.1), network)
    agree("a frozen parameter", _updates(optimizer, range(2))[-1]["bias"], start["bias"], 0.0)
    network.set_trainable("bias", True)
    true(
        "a thawed parameter moves",
        not np.array_equal(_updates(optimizer, range(1))[-1]["bias"], start["bias"]),
    )


@check("optimizers", "L4")
def hooks(backend: Backend) -> None:
    """Hooks run in order before and after the update, and may change gradients.

    Before it, they get None for a parameter that took no part.
    """
    network = made(backend, Moved)
    seen: list[tuple] = []
    start = network.neutral_state()
    optimizer = backend.optimizer(rule("sgd", lr=0.5), network)

    def doubled(_: Any, found: dict[str, Any]) -> dict[str, Any]:
        seen.append(("first", sorted(found), found["unused"] is None))
        return {name: None if g is None else g * 2.0 for name, g in found.items()}

    def without_bias(_: Any, found: dict[str, Any]) -> dict[str, Any]:
        seen.append(("second",))
        return found | {"bias": None}

    optimizer.pre_update_hooks += [doubled, without_bias]
    optimizer.post_update_hooks.append(lambda _: seen.append(("third",)))
    optimizer.post_update_hooks.append(
        lambda it: seen.append(("fourth", it.network.neutral_state()["weight"]))
    )
    result = optimizer.update(given, *(_GRADIENTS[name][0] for name in _SHAPES))
    wanted = start["weight"] - 0.5 * 2.0 * _GRADIENTS["weight"][0]
    equal("calls of hooks", [call[0] for call in seen], ["first", "second", "third", "fourth"])
    equal("what the first hook saw", seen[0][1:], (["bias", "unused", "weight"], True))
    agree("weight, as the last hook saw it", seen[-1][1], wanted)
    agree("weight, whose gradient a hook doubled", network.neutral_state()["weight"], wanted)
    agree(
        "bias, whose gradient a hook took away", network.neutral_state()["bias"], start["bias"], 0.0
    )
    loss = sum(float((start[name] * _GRADIENTS[name][0]).sum()) for name in _SHAPES)
    limit = LIMITS[dtype_of(backend)]
    agree(
        "the loss that update gives back", np.array(backend.number(result)), np.array(loss), limit
    )


@check("optimizers", "L4")
def clipping_by_norm(backend: Backend) -> None:
    """The joint norm of all gradients, without an epsilon, before weight decay."""
    network = made(backend, Moved)
    start = network.neutral_state()
    optimizer = backend.optimizer(rule("sgd", lr=1.0, weight_decay=0.1), network)
    optimizer.pre_update_hooks.append(ClipNorm(0.5))
    optimizer.update(given, *(_GRADIENTS[name][0] for name in _SHAPES))
    norm = float(np.sqrt(sum((_GRADIENTS[name][0] ** 2).sum() for name in _SHAPES)))
    for name in _SHAPES:
        wanted = start[name] - (_GRADIENTS[name][0] * 0.5 / norm + 0.1 * start[name])
        agree(f"{name} after a clipped update", network.neutral_state()[name], wanted)


@check("optimizers", "L4")
def groups_and_patterns(backend: Backend) -> None:
    """Settings go by patterns of names, which limit updates; one that matches nothing is refused."""
    network = made(backend, Moved)
    start = network.neutral_state()
    sgd = rule("sgd", lr=0.1, weight_decay=0.5)
    grouped = backend.optimizer(sgd, network, groups={"bias": {"weight_decay": 0.0, "lr": 0.2}})
    grouped.lr = 0.05
    grouped.update(given, *(_GRADIENTS[name][0] for name in _SHAPES))
    state, g = network.neutral_state(), {name: _GRADIENTS[name][0] for name in _SHAPES}
    agree(
        "weight, of no group",
        state["weight"],
        start["weight"] - 0.05 * (g["weight"] + 0.5 * start["weight"]),
    )
    agree(
        "bias, of a group with twice the rate and no decay",
        state["bias"],
        start["bias"] - 0.1 * g["bias"],
    )
    backend.optimizer(sgd, network, parameters="bi*").update(given, *g.values())
    agree(
        "weight, which the pattern leaves out",
        network.neutral_state()["weight"],
        state["weight"],
        0.0,
    )
    true(
        "bias, which the pattern names, moves",
        not np.array_equal(network.neutral_state()["bias"], state["bias"]),
    )
    with refused("a pattern that matches nothing", UnknownName):
        backend.optimizer(sgd, network, parameters="nothing*")


@check("optimizers", "L4")
def state_of_an_optimizer(backend: Backend) -> None:
    """Named by parameter and slot; from it another optimizer goes on as the first would have."""
    for name, slots in {
        "adam": ("exp_avg", "exp_avg_sq", "step"),
        "rmsprop": ("square_avg", "step"),
    }.items():
        first = backend.optimizer(rule(name, lr=0.1), made(backend, Moved))
        _updates(first, range(3))
        state, weights = first.neutral_state(), first.network.neutral_state()
        wanted = sorted([f"{key}/{slot}" for key in _SHAPES for slot in slots] + ["steps"])
        equal(
            f"{name}: names of the state",
            sorted(key for key in state if not key.startswith("unused/")),
            wanted,
        )
        equal(
            f"{name}: number of updates",
            (int(state["steps"]), float(state["weight/step"])),
            (3, 3.0),
        )
        goes_on = _updates(first, range(3, 5))[-1]
        network = made(backend, Moved)
        network.load_neutral_state(weights)
        second = backend.optimizer(rule(name, lr=0.1), network)
        second.load_neutral_state(state)
        for key, value in _updates(second, range(3, 5))[-1].items():
            agree(f"{name}: {key} after the state was taken over", value, goes_on[key])
        with refused("the state of another network", StateError):
            second.load_neutral_state(state | {"elsewhere/exp_avg": np.ones(2)})


@check("optimizers", "L4")
def accumulation(backend: Backend) -> None:
    """Micro-batches of 2 and 3 samples together make the update of all 5."""
    x, y = values(5, 3), values(5, 2, seed=1)

    def loss(network: Any, inputs: Any, target: Any) -> Any:
        return network.nn.mse_loss(network.nn.matmul(inputs, network.weight) + network.bias, target)

    whole, parts = (backend.optimizer(rule("sgd", lr=0.1), made(backend, Moved)) for _ in range(2))
    whole.update(loss, x, y)
    parts.accumulate = 2
    parts.update(loss, x[:2], y[:2])
    equal("updates after the first micro-batch", parts.steps, 0)
    parts.update(loss, x[2:], y[2:])
    for name, value in whole.network.neutral_state().items():
        agree(f"{name} after two micro-batches", parts.network.neutral_state()[name], value)


class _Regression(Network):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.nn.Parameter((3, 2), ZEROS)

    def forward(self, x: Any) -> Any:
        """Compute the outputs."""
        return self.nn.matmul(x, self.weight)


def _squared(network: Any, x: Any, y: Any) -> Any:
    return network.nn.mse_loss(network(x), y)


def _curve(
    name: str, settings: Mapping[str, Any], wanted: Callable[[], rules.Step]
) -> Callable[[Backend], None]:
    """Check a hundred updates of a linear regression over four batches in turn.

    The learning rate falls after one third and after two.
    """

    def function(backend: Backend) -> None:
        batches = [(values(4, 3, seed=seed), values(4, 2, seed=seed + 9)) for seed in range(4)]
        optimizer = backend.optimizer(rule(name, lr=0.1, **settings), made(backend, _Regression))
        step, weight = wanted(), np.zeros((3, 2))
        for t in range(100):
            x, y = batches[t % 4]
            lr = optimizer.lr = 0.1 * 0.3 ** (t // 33)
            error = x @ weight - y
            loss = backend.number(optimizer.update(_squared, x, y))
            agree(
                f"{name}: the loss of update {t + 1}", np.array(loss), np.array((error**2).mean())
            )
            weight = step(weight, 2.0 * x.T @ error / error.size, lr, t + 1)
        agree(
            f"{name}: the weights after 100 updates",
            optimizer.network.neutral_state()["weight"],
            weight,
        )

    return function


register(
    Check(
        "optimizers",
        "L5",
        "a hundred updates by sgd",
        _curve("sgd", {"momentum": 0.9}, lambda: rules.sgd(0.9)),
        ("float64",),
    )
)
register(
    Check(
        "optimizers",
        "L5",
        "a hundred updates by adamw",
        _curve("adamw", {"weight_decay": 0.1}, lambda: rules.adam(decay=0.1, decoupled=True)),
        ("float64",),
    )
)
