"""Checks of optimizers: rules step by step, unused parameters, hooks, groups, states."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    LIMITS,
    agree,
    agree_all,
    build_network,
    dtype_of,
    equal,
    refused,
    true,
    values,
)
from deliralike.conformance.suite.nets import Moved
from deliralike.errors import StateError, UnknownName
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import rule

_RATES = (
    0.1,
    0.1,
    0.03,
    0.2,
    0.05,
)  # it changes, since some conventions differ only then
_GRADIENTS = [
    {"weight": values(3, 2, seed=seed), "bias": values(2, seed=seed)}
    for seed in range(5)
]


def given(network: Any, weight: Any, bias: Any) -> Any:
    """A loss whose gradients are the batch."""
    return network(weight, bias)


def _optimizer(backend: Backend, name: str, **settings: Any) -> Any:
    return backend.optimizer(
        rule(name, **{"lr": 0.1, **settings}), build_network(backend, Moved)
    )


def _update(optimizer: Any, step: int = 0) -> Tensors:
    """Make one of five updates, and return the network's state after it."""
    optimizer.update(given, *_GRADIENTS[step].values())
    return optimizer.network.neutral_state()


_RULES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "sgd with momentum": {"momentum": 0.9},
    "sgd with Nesterov's momentum": {"momentum": 0.9, "nesterov": True},
    "sgd with dampening": {"momentum": 0.9, "dampening": 0.4},
    "sgd with weight decay": {"momentum": 0.9, "weight_decay": 0.1},
    "adam": {"eps": 1e-3},
    "adam with weight decay": {"weight_decay": 0.1},
    "adamw": {"weight_decay": 0.1},
    "amsgrad": {"betas": (0.9, 0.5)},
    "rmsprop": {"eps": 1e-2},
    "rmsprop with centered squares": {"centered": True, "eps": 1e-2},
    "rmsprop with momentum": {"momentum": 0.9},
    "adagrad": {"eps": 1e-2, "lr_decay": 0.5},
    "adadelta": {},
    "lion": {"weight_decay": 0.1},
    "lamb": {"weight_decay": 0.1},
    "radam": {"betas": (0.9, 0.9)},
    "radam with weight decay": {"weight_decay": 0.1},
    "adafactor": {"weight_decay": 0.1},
    "muon": {},
}
for _title, _settings in _RULES.items():

    @check("optimizers", "L4", name=_title)
    def follows(
        backend: Backend, title: str = _title, settings: dict[str, Any] = _settings
    ) -> None:
        """Each of five updates is that of the neutral rule, in NumPy."""
        name = title.split()[0]
        optimizer, neutral = (
            _optimizer(backend, name, **settings),
            rule(name, lr=0.1, **settings),
        )
        states = [optimizer.network.neutral_state()]
        for step, rate in enumerate(_RATES):
            optimizer.lr = rate
            states.append(_update(optimizer, step))
        for key in ("weight", "bias"):
            p = states[0][key].astype(np.float64)
            state = {
                name: np.zeros(shape)
                for name, shape in neutral.state_shapes(p.shape).items()
            }
            for step, rate in enumerate(_RATES):
                now, before = neutral.with_lr(rate), p
                p, state = now.update(
                    p, _GRADIENTS[step][key], state, now.scalars(step + 1), np
                )
                came = states[step + 1][key]
                agree(f"{key} after update {step + 1}", came, p)
                # the step beside itself: beside the parameter it may be small
                if dtype_of(backend) == "float64":
                    agree(
                        f"update {step + 1} of {key}",
                        came - states[step][key],
                        p - before,
                    )
        agree(
            "a parameter without a gradient",
            states[-1]["unused"],
            states[0]["unused"],
            0.0,
        )


@check("optimizers", "L4")
def unused_parameters(backend: Backend) -> None:
    """No decay and no momentum for a parameter without a gradient, also when it had one before."""
    optimizer = _optimizer(backend, "sgd", momentum=0.9, weight_decay=0.1)
    before = _update(optimizer)
    optimizer.update(lambda net, w: net.nn.sum(net.weight * w), _GRADIENTS[0]["weight"])
    after = optimizer.network.neutral_state()["bias"]
    agree("bias after an update without it", after, before["bias"], 0.0)
    equal("the parameters that were updated", tuple(optimizer.updated), ("weight",))
    equal("the number of updates", optimizer.steps, 2)


@check("optimizers", "L4")
def frozen_parameters(backend: Backend) -> None:
    """They stay until they are thawed."""
    optimizer = _optimizer(backend, "adamw")
    network = optimizer.network
    network.set_trainable("bias", False)
    start = network.neutral_state()["bias"]
    agree("a frozen parameter", _update(optimizer)["bias"], start, 0.0)
    network.set_trainable("bias", True)
    true("a thawed parameter moves", (_update(optimizer)["bias"] != start).all())


@check("optimizers", "L4")
def hooks(backend: Backend) -> None:
    """Hooks run in order before and after the update, and may change gradients.

    Before it, they get None for a parameter that took no part.
    """
    optimizer = _optimizer(backend, "sgd")
    called: list[Any] = []
    start, g = optimizer.network.neutral_state(), _GRADIENTS[0]

    def doubled(_: Any, found: dict[str, Any]) -> dict[str, Any]:
        called.append((sorted(found), found["unused"]))
        return found | {"weight": found["weight"] * 2.0}

    def without_bias(_: Any, found: dict[str, Any]) -> dict[str, Any]:
        called.append("second")
        return found | {"bias": None}

    def after(it: Any) -> None:
        wanted = start | {"weight": start["weight"] - 0.2 * g["weight"]}
        agree_all(
            "after gradients were doubled or taken away",
            it.network.neutral_state(),
            wanted,
        )
        called.append("third")

    optimizer.pre_update_hooks += [doubled, without_bias]
    optimizer.post_update_hooks += [after, lambda _: called.append("fourth")]
    loss = backend.number(optimizer.update(given, *g.values()))
    first = (["bias", "unused", "weight"], None)
    equal("calls of hooks", called, [first, "second", "third", "fourth"])
    wanted = sum(np.vdot(start[name], value) for name, value in g.items())
    agree("the loss that update gives back", loss, wanted, LIMITS[dtype_of(backend)])


@check("optimizers", "L4")
def clipping_by_norm(backend: Backend) -> None:
    """The joint norm of all gradients, without an epsilon, before weight decay."""
    optimizer = _optimizer(backend, "sgd", weight_decay=0.1, lr=1.0)
    start = optimizer.network.neutral_state()
    optimizer.pre_update_hooks.append(ClipNorm(0.5))
    norm = np.sqrt(sum(np.vdot(g, g) for g in _GRADIENTS[0].values()))
    wanted = {
        name: 0.9 * start[name] - g * 0.5 / norm for name, g in _GRADIENTS[0].items()
    }
    agree_all("after a clipped update", _update(optimizer), wanted)


@check("optimizers", "L4")
def groups_and_patterns(backend: Backend) -> None:
    """Settings go by patterns of names, which limit updates; one that matches nothing is refused."""
    network, sgd = build_network(backend, Moved), rule("sgd", lr=0.1, weight_decay=0.5)
    start, g = network.neutral_state(), _GRADIENTS[0]
    grouped = backend.optimizer(
        sgd, network, groups={"bias": {"weight_decay": 0.0, "lr": 0.2}}
    )
    grouped.lr = 0.05
    # the weight is of no group; the bias has twice the rate and no decay
    weight = start["weight"] - 0.05 * (g["weight"] + 0.5 * start["weight"])
    bias = start["bias"] - 0.1 * g["bias"]
    agree_all(
        "after an update in groups", _update(grouped), {"weight": weight, "bias": bias}
    )
    alone = backend.optimizer(sgd, network, parameters="bi*")
    wanted = {"weight": weight, "bias": bias - 0.1 * (g["bias"] + 0.5 * bias)}
    agree_all("after an update of the bias alone", _update(alone), wanted)
    with refused("a pattern that matches nothing", UnknownName):
        backend.optimizer(sgd, network, parameters="nothing*")


@check("optimizers", "L4")
def state_of_an_optimizer(backend: Backend) -> None:
    """Named by parameter and slot; from it another optimizer goes on as the first would have."""
    for name, slots in (
        ("adam", ("exp_avg", "exp_avg_sq", "step")),
        ("rmsprop", ("square_avg", "step")),
    ):
        first, second = _optimizer(backend, name), _optimizer(backend, name)
        for step in range(3):
            weights = _update(first, step)
        state = first.neutral_state()
        names = {key for key in state if not key.startswith("unused/")}
        wanted = {f"{key}/{slot}" for key, slot in product(_GRADIENTS[0], slots)}
        equal(f"{name}: names of the state", names, wanted | {"steps"})
        counts = int(state["steps"]), float(state["weight/step"])
        equal(f"{name}: numbers of updates", counts, (3, 3.0))
        second.network.load_neutral_state(weights)
        second.load_neutral_state(state)
        equal(f"{name}: number of updates taken over", second.steps, 3)
        agree_all(
            f"after {name}'s state was taken over",
            _update(second, 3),
            _update(first, 3),
        )
        with refused("the state of another network", StateError):
            second.load_neutral_state(state | {"elsewhere/exp_avg": np.ones(2)})
        with refused("a state of another shape", StateError):
            second.load_neutral_state(state | {f"weight/{slots[0]}": np.ones(1)})
