"""Mistakes of optimizers and schedules, planted in right ones: settings, formulas and hooks.

A wrong formula is written as a port would have it, and runs on the host on every backend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Rule
from tests.planted import Mistake, Plant

LR, BOUND = 0.05, 0.5
Make = Callable[[AbstractNetwork], AbstractOptimizer]
Gradients = dict[str, Any]


def following(rule: Rule, bound: float | None = None) -> Make:
    """A function that makes an optimizer of a rule, which clips to a norm if there is a bound."""

    def make(network: AbstractNetwork) -> AbstractOptimizer:
        optimizer = network.backend.optimizer(rule, network)
        optimizer.pre_update_hooks += [] if bound is None else [ClipNorm(bound)]
        return optimizer

    return make


OPTIMIZERS = {
    "sgd": following(rules.SGD(lr=LR, momentum=0.9, weight_decay=0.01)),
    "nesterov": following(rules.SGD(lr=LR, momentum=0.9, nesterov=True)),
    "clipped": following(rules.SGD(lr=LR, momentum=0.9, weight_decay=0.01), BOUND),
    "adam": following(rules.Adam(lr=0.01, weight_decay=0.01)),
    "amsgrad": following(rules.AMSGrad(lr=0.01)),
    "adamw": following(rules.AdamW(lr=0.01, weight_decay=0.02)),
    "rmsprop": following(rules.RMSprop(lr=0.01, momentum=0.9)),
    "adagrad": following(rules.Adagrad(lr=0.01)),
    "adadelta": following(rules.Adadelta(lr=1.0)),
    "lion": following(rules.Lion(lr=0.001, weight_decay=0.1)),
    "lamb": following(rules.LAMB(lr=0.01, weight_decay=0.01)),
    "radam": following(rules.RAdam(lr=0.01, weight_decay=0.02)),
}


def schedule(step: int) -> float:
    """The learning rate before each step: it drops after eight steps, and after sixteen."""
    return LR * (0.1 if step >= 8 else 1.0) * (0.5 if step >= 16 else 1.0)


def equipped(subject: Subject) -> Subject:
    """A subject with right optimizers and a schedule."""
    return subject.replace(optimizers=OPTIMIZERS, schedule=schedule)


# How a mistake gets in
# -----------------------------------------------------------------------------


class OnHost(AbstractOptimizer):
    """An optimizer whose updates follow another rule, computed in NumPy in the native layout.

    Attributes:
        right: What gives the gradients; its hooks stay in force.
        rule: What is followed; its learning rate is the one that counts.
        state, counts: Of each parameter.
    """

    def __init__(self, right: AbstractOptimizer, rule: Rule) -> None:
        """Take over a right optimizer before its first update."""
        super().__init__(right.network, right.pattern)
        self.right, self.rule = right, rule
        self.pre_update_hooks = right.pre_update_hooks
        self.post_update_hooks = right.post_update_hooks
        self.state: dict[str, dict[str, Any]] = {}
        self.counts: dict[str, int] = {}

    def prepared(self, batch):
        """As the right one does."""
        return self.right.prepared(batch)

    def gradients(self, loss_function, *batch):
        """As the right one does."""
        return self.right.gradients(loss_function, *batch)

    def apply(self, gradients):
        """One step of the rule for each parameter with a gradient."""
        slots, backend = self.network.neutral_slots(), self.network.backend
        for name, gradient in gradients.items():
            if gradient is not None:
                value = backend.numpy(slots[name].value)
                new = self._moved(name, value, backend.numpy(gradient))
                slots[name].value = backend.array(
                    new, str(value.dtype), self.network.device_name
                )

    def _moved(self, name: str, p: np.ndarray, g: np.ndarray) -> np.ndarray:
        state = self.state.get(name) or {
            slot: np.zeros_like(p) for slot in self.rule.slots
        }
        self.counts[name] = self.counts.get(name, 0) + 1
        scalars = self.rule.scalars(self.counts[name])
        new, self.state[name] = self.rule.update(p, g, state, scalars, np)
        return np.asarray(new, p.dtype).reshape(p.shape)

    @property
    def lr(self) -> float:
        """The rule's learning rate."""
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule = self.rule.with_lr(value)

    def neutral_state(self) -> dict[str, np.ndarray]:
        """The number of steps; no test hands such a state on."""
        return {"steps": np.array(self.steps)}

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Begin anew."""
        self.steps, self.state, self.counts = int(state["steps"]), {}, {}


def changed(
    name: str, change: Callable[[AbstractOptimizer, Rule], AbstractOptimizer]
) -> Plant:
    """The optimizer of a name replaced by what `change` makes of it and of its rule."""

    def plant(subject: Subject) -> Subject:
        def make(network: AbstractNetwork) -> AbstractOptimizer:
            optimizer = subject.optimizers[name](network)
            return change(optimizer, optimizer.groups.rules[0])

        return subject.replace(optimizers={**subject.optimizers, name: make})

    return plant


def on_host(
    name: str, kind: type[Rule] | None = None, host: type = OnHost, **more: Any
) -> Plant:
    """Another kind of rule with the same settings except these, or another host."""
    return changed(
        name,
        lambda right, rule: host(
            right, (kind or type(rule))(**{**asdict(rule), **more})
        ),
    )


def with_hook(name: str, *hooks: Any, **settings: Any) -> Plant:
    """The optimizer of a name with these hooks in the place of its clipping, and other settings."""

    def change(right: AbstractOptimizer, rule: Rule) -> AbstractOptimizer:
        other = right.network.backend.optimizer(
            replace(rule, **settings), right.network
        )
        others = [
            hook for hook in right.pre_update_hooks if not isinstance(hook, ClipNorm)
        ]
        other.pre_update_hooks = [*others, *hooks]
        return other

    return changed(name, change)


def with_settings(name: str, **settings: Any) -> Plant:
    """The optimizer of a name, native as it is, with other settings."""
    return with_hook(
        name, *([ClipNorm(BOUND)] if name == "clipped" else []), **settings
    )


def _formula(name: str, update: Callable[..., Any]) -> Plant:
    """The optimizer of a name with another formula.

    ``update(rule, p, g, state, t)`` gives the parameter and the state after step `t`; the gradient
    has its weight decay, where that is a part of it.
    """
    kind: Any = {
        "sgd": rules.SGD,
        "adam": rules.Adam,
        "adamw": rules.AdamW,
    }[name]

    class Mistaken(kind):
        def scalars(self, step):
            return {"step": step}

        def update(self, p, g, state, scalars, xp):
            if name != "adamw":
                g = self._decayed(p, g)
            return update(self, p, g, state, scalars["step"])

    return on_host(name, Mistaken)


# Formulas
# -----------------------------------------------------------------------------


def _adam(divide: Callable[..., Any], offset: int = 0) -> Callable[..., Any]:
    """Adam; ``divide(m, v, first, second, eps)`` gives the step from means and corrections."""

    def update(rule, p, g, state, t):
        first, second = rule.betas
        m = first * state["exp_avg"] + (1 - first) * g
        v = second * state["exp_avg_sq"] + (1 - second) * g * g
        step = divide(
            m, v, 1 - first ** (t + offset), 1 - second ** (t + offset), rule.eps
        )
        if isinstance(rule, rules.AdamW):  # whose decay is not times the learning rate
            p = p * (1 - rule.weight_decay)
        return p - rule.lr * step, {"exp_avg": m, "exp_avg_sq": v}

    return update


def _right(m, v, first, second, eps):
    return m / first / ((v / second) ** 0.5 + eps)


def _dampened(rule, p, g, state, t):
    velocity = rule.momentum * state["momentum_buffer"] + (1 - rule.momentum) * g
    return p - velocity * rule.lr, {"momentum_buffer": velocity}


# Hosts and hooks
# -----------------------------------------------------------------------------


class NeverCleared(OnHost):
    """Gradients that are added to those of all steps before."""

    def apply(self, gradients):
        """The update by the sums so far."""
        sums = self.__dict__.setdefault("sums", {})
        for name, gradient in gradients.items():
            if gradient is not None:
                sums[name] = gradient + sums.get(name, 0.0)
        super().apply(
            {name: sums.get(name) for name in gradients if gradients[name] is not None}
        )


def _hook(change: Callable[..., Gradients]) -> Any:
    """A hook of ``change(gradients, parameters)``, which sees what has a gradient."""

    def hook(optimizer: AbstractOptimizer, gradients: Gradients) -> Gradients:
        slots = optimizer.network.neutral_slots()
        present = {name: each for name, each in gradients.items() if each is not None}
        return gradients | change(
            present, {name: slots[name].value for name in gradients}
        )

    return hook


def _times(factor: float) -> Any:
    return _hook(
        lambda found, parameters: {name: g * factor for name, g in found.items()}
    )


def _clip_each(found, parameters):
    norms = {name: (g * g).sum() ** 0.5 for name, g in found.items()}
    return {name: g * (BOUND / norms[name].clip(BOUND)) for name, g in found.items()}


_unused = _hook(lambda found, p: {name: found.get(name, p[name] * 0.0) for name in p})
_decay = _hook(lambda found, p: {name: g + 0.01 * p[name] for name, g in found.items()})


# The list
# -----------------------------------------------------------------------------

_SETTINGS = [
    ("adam: epsilon 3e-6", {"eps": 3e-6}, "eps=3e-06 instead of 1e-08"),
    ("adam: betas swapped", {"betas": (0.999, 0.9)}, "beta1=0.999 instead of 0.9"),
    ("adamw: decay lost", {"weight_decay": 0.0}, "no weight decay"),
    ("rmsprop: momentum lost", {"momentum": 0.0}, "momentum=0 instead of 0.9"),
    ("sgd: nesterov", {"nesterov": True}, "nesterov=True instead of False"),
    ("sgd: decay doubled", {"weight_decay": 0.02}, "weight_decay=0.02 instead of 0.01"),
    ("nesterov: lost", {"nesterov": False}, "nesterov=False instead of True"),
]
_FORMULAS = [
    (
        "adam: epsilon inside the root",
        _adam(lambda m, v, first, second, eps: m / first / (v / second + eps) ** 0.5),
        "epsilon inside the root",
    ),
    (
        "adam: no bias correction",
        _adam(lambda m, v, first, second, eps: m / (v**0.5 + eps)),
        "no bias correction",
    ),
    ("adam: step off by one", _adam(_right, offset=1), "step count off by one"),
    ("adamw: decay not times lr", _adam(_right), "not times the learning rate"),
    ("sgd: dampening from the start", _dampened, "dampening"),
]
_OTHERS = [
    ("amsgrad: lost", on_host("amsgrad", rules.Adam, amsgrad=False), "no amsgrad"),
    (
        "adam: gradients never cleared",
        on_host("adam", host=NeverCleared),
        "never cleared",
    ),
    (
        "adam: built with lr 0.02",
        with_settings("adam", lr=0.02),
        "lr=0.02 instead of 0.01",
    ),
    (
        "adam: unused parameters updated",
        with_hook("adam", _unused),
        "unused parameters updated",
    ),
    ("sgd: gradients times four", with_hook("sgd", _times(4.0)), "gradients times 4"),
    ("sgd: ascent", with_hook("sgd", _times(-1.0)), "gradient ascent"),
    (
        "clipped: decay before clipping",
        with_hook("clipped", _decay, ClipNorm(BOUND), weight_decay=0.0),
        "decay before clipping",
    ),
    (
        "clipped: tensor by tensor",
        with_hook("clipped", _hook(_clip_each)),
        "clipping per tensor",
    ),
]
_SCHEDULES = [
    (
        "one step late",
        lambda step: schedule(max(step - 1, 0)),
        "lr=0.05 instead of 0.005 at step 9",
    ),
    ("never applied", lambda step: schedule(0), "lr=0.05 instead of 0.005 at step 9"),
    ("scaled", lambda step: 0.5 * schedule(step), "lr=0.025 instead of 0.05 at step 1"),
]


def _scheduled(wrong: Callable[[int], float]) -> Plant:
    return lambda subject: subject.replace(schedule=wrong)


def _mistakes() -> list[Mistake]:
    found = [
        (name, with_settings(_of(name), **more), cause)
        for name, more, cause in _SETTINGS
    ]
    found += [
        (name, _formula(_of(name), update), cause) for name, update, cause in _FORMULAS
    ]
    found += _OTHERS
    found += [
        (f"schedule: {name}", _scheduled(wrong), cause)
        for name, wrong, cause in _SCHEDULES
    ]
    return [
        Mistake(name, plant, _PLACES.get(name, _of(name)), cause)
        for name, plant, cause in found
    ]


def _of(name: str) -> str:
    """The optimizer that a mistake is in."""
    return name.partition(":")[0]


_PLACES = {
    "adam: unused parameters updated": "unused parameter",
    "adam: built with lr 0.02": "learning rate",
}
MISTAKES = _mistakes()
