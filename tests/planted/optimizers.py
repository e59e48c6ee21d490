"""Mistakes of optimizers and schedules, planted in right ones.

Rules with a mistake are written as a port would have them, each by itself, and run on the host on
every backend; mistakes that concern gradients alone are pre-update hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Array, Rule, State
from tests.planted import Mistake
from tests.planted.planting import Plant

LR, BOUND = 0.05, 0.5
Make = Callable[[AbstractNetwork], AbstractOptimizer]


# What is right
# -----------------------------------------------------------------------------


def following(rule: Rule, bound: float | None = None) -> Make:
    """Return a function that makes an optimizer of a rule.

    Gradients are clipped to a norm if a bound is given.
    """

    def make(network: AbstractNetwork) -> AbstractOptimizer:
        optimizer = network.backend.optimizer(rule, network)
        optimizer.pre_update_hooks += [] if bound is None else [ClipNorm(bound)]
        return optimizer

    return make


OPTIMIZERS: Mapping[str, Make] = {
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
    return subject.but(optimizers=OPTIMIZERS, schedule=schedule)


# How a mistake gets in
# -----------------------------------------------------------------------------


class OnHost(AbstractOptimizer):
    """A right optimizer whose updates follow another rule, computed in NumPy in the native layout.

    Attributes:
        right: What gives the gradients; its hooks stay in force.
        rule: What is followed; its learning rate is the one that counts.
        state, counts: Of each parameter.
    """

    def __init__(self, right: AbstractOptimizer, rule: Rule) -> None:
        """Take over a right optimizer before its first update."""
        super().__init__(right.network, right.pattern)
        self.right, self.rule = right, rule
        self.pre_update_hooks, self.post_update_hooks = (
            right.pre_update_hooks,
            right.post_update_hooks,
        )
        self.state: dict[str, State] = {}
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
                slots[name].value = backend.array(new, str(value.dtype), self.network.device_name)

    def _moved(self, name: str, p: Array, g: Array) -> Array:
        state = self.state.get(name) or {slot: np.zeros_like(p) for slot in self.rule.slots}
        self.counts[name] = self.count(name)
        new, self.state[name] = self.rule.update(
            p, g, state, self.rule.scalars(self.counts[name]), np
        )
        return np.asarray(new, p.dtype).reshape(p.shape)

    def count(self, name: str) -> int:
        """The number of this update of a parameter, 1 for its first."""
        return self.counts.get(name, 0) + 1

    @property
    def lr(self) -> float:
        """The rule's learning rate."""
        return self.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.rule = self.rule.with_lr(value)

    def neutral_state(self) -> dict[str, np.ndarray]:
        """The arrays and counts of all parameters, in the native layout."""
        arrays = {
            f"{name}/{slot}": value
            for name, state in self.state.items()
            for slot, value in state.items()
        }
        counts = {f"{name}/step": np.array(count) for name, count in self.counts.items()}
        return {"steps": np.array(self.steps), **arrays, **counts}

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what `neutral_state` gave."""
        self.steps, self.state, self.counts = int(state["steps"]), {}, {}
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if name and slot == "step":
                self.counts[name] = int(value)
            elif name:
                self.state.setdefault(name, {})[slot] = value


def changed(name: str, change: Callable[[AbstractOptimizer], AbstractOptimizer | None]) -> Plant:
    """The optimizer of a name after a change, in place or by another one."""

    def plant(subject: Subject) -> Subject:
        right = subject.optimizers[name]

        def make(network: AbstractNetwork) -> AbstractOptimizer:
            optimizer = right(network)
            return change(optimizer) or optimizer

        return subject.but(optimizers={**subject.optimizers, name: make})

    return plant


def rule_of(optimizer: AbstractOptimizer) -> Rule:
    """The rule that a right optimizer follows."""
    if optimizer.groups is None:
        raise ValueError(
            "this optimizer follows no neutral rule, in which a mistake could be planted"
        )
    return optimizer.groups.rules[0]


def on_host(
    name: str, kind: type[Rule] | None = None, host: type[OnHost] = OnHost, **settings: Any
) -> Plant:
    """Plant another kind of rule with the same settings except these, or another host."""

    def change(optimizer: AbstractOptimizer) -> AbstractOptimizer:
        rule = rule_of(optimizer)
        return host(optimizer, (kind or type(rule))(**{**asdict(rule), **settings}))

    return changed(name, change)


def with_settings(name: str, **settings: Any) -> Plant:
    """The optimizer of a name, native as it is, with other settings."""

    def change(optimizer: AbstractOptimizer) -> AbstractOptimizer:
        network = optimizer.network
        other = network.backend.optimizer(replace(rule_of(optimizer), **settings), network)
        other.pre_update_hooks = optimizer.pre_update_hooks
        return other

    return changed(name, change)


def with_hook(name: str, *hooks: Any, **settings: Any) -> Plant:
    """The optimizer of a name with these hooks in the place of its clipping, and other settings."""

    def change(optimizer: AbstractOptimizer) -> AbstractOptimizer:
        network = optimizer.network
        other = network.backend.optimizer(replace(rule_of(optimizer), **settings), network)
        other.pre_update_hooks = [
            x for x in optimizer.pre_update_hooks if not isinstance(x, ClipNorm)
        ] + [*hooks]
        return other

    return changed(name, change)


def with_schedule(change: Callable[[Callable[[int], float]], Callable[[int], float]]) -> Plant:
    """A subject with what `change` makes of its schedule."""

    def plant(subject: Subject) -> Subject:
        assert subject.schedule is not None, "there is no schedule to plant a mistake in"
        return subject.but(schedule=change(subject.schedule))

    return plant


# Hooks with mistakes
# -----------------------------------------------------------------------------


def _each(change: Callable[[Any], Any]) -> Any:
    def hook(optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        return {
            name: None if gradient is None else change(gradient)
            for name, gradient in gradients.items()
        }

    return hook


def zeros_for_unused(optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
    """What frameworks do that know no absent gradients."""
    slots = optimizer.network.neutral_slots()
    return {
        name: slots[name].value * 0.0 if gradient is None else gradient
        for name, gradient in gradients.items()
    }


def decay_of(weight: float) -> Any:
    """Decay as a hook of its own, which may then come before another one."""

    def hook(optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        slots = optimizer.network.neutral_slots()
        present = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        return gradients | {
            name: gradient + weight * slots[name].value for name, gradient in present.items()
        }

    return hook


def clip_each(bound: float) -> Any:
    """Clipping by norm, tensor by tensor."""
    return _each(lambda gradient: gradient * _shrinking(bound, (gradient * gradient).sum() ** 0.5))


def clip_jointly(factor: Callable[[Any], Any]) -> Any:
    """Clipping by a factor of the joint norm."""

    def hook(optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        present = {name: gradient for name, gradient in gradients.items() if gradient is not None}
        norm = sum((gradient * gradient).sum() for gradient in present.values()) ** 0.5
        return gradients | {name: gradient * factor(norm) for name, gradient in present.items()}

    return hook


def _shrinking(bound: float, norm: Any) -> Any:
    """``min(1, bound / norm)``."""
    return bound / norm.clip(bound)


# Rules with mistakes
# -----------------------------------------------------------------------------


def _adam_rule(divide: Callable[..., Array], offset: int = 0) -> type[Rule]:
    """Return Adam with another divisor.

    The function takes mean, square, their corrections and eps, and gives the step.
    """

    class Mistaken(rules.Adam):
        def scalars(self, step: int) -> dict[str, float]:
            first, second = self.betas
            return {
                "lr": self.lr,
                "first": 1 - first ** (step + offset),
                "second": 1 - second ** (step + offset),
            }

        def update(
            self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
        ) -> tuple[Array, State]:
            new = self._moved(self._decayed(p, g), state)
            m, v, first, second = (
                new["exp_avg"],
                new["exp_avg_sq"],
                scalars["first"],
                scalars["second"],
            )
            return p - scalars["lr"] * divide(m, v, first, second, self.eps), new

    return Mistaken


class DecayNotTimesRate(rules.AdamW):
    """Chainer's ``weight_decay_rate``."""

    def _shrunk(self, p: Array, scalars: Mapping[str, Any]) -> Array:
        return p * (1.0 - self.weight_decay)


class CorrectedMaximum(rules.AMSGrad):
    """The maximum of corrected means, as in optax."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        new = self._moved(self._decayed(p, g), state)
        new["max_exp_avg_sq"] = xp.maximum(
            state["max_exp_avg_sq"], new["exp_avg_sq"] / scalars["scale"] ** 2
        )
        return p - scalars["step_size"] * new["exp_avg"] / (
            new["max_exp_avg_sq"] ** 0.5 + self.eps
        ), new


class RateInside(rules.SGD):
    """Chainer's MomentumSGD."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        velocity = self.momentum * state["momentum_buffer"] - scalars["lr"] * self._decayed(p, g)
        return p + velocity, {"momentum_buffer": velocity}


class Dampened(rules.SGD):
    """The velocity as a mean of gradients, from its start at zero."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        velocity = self.momentum * state["momentum_buffer"] + (1 - self.momentum) * self._decayed(
            p, g
        )
        return p - scalars["lr"] * velocity, {"momentum_buffer": velocity}


class DampenedLater(rules.SGD):
    """PyTorch's dampening, which spares the first gradient."""

    counts = True

    def scalars(self, step: int) -> dict[str, float]:
        return {"lr": self.lr, "weight": 1.0 if step == 1 else 0.7}

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        velocity = self.momentum * state["momentum_buffer"] + scalars["weight"] * self._decayed(
            p, g
        )
        return p - scalars["lr"] * velocity, {"momentum_buffer": velocity}


class NesterovAG(rules.SGD):
    """Chainer's rule of that name."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        velocity = self.momentum * state["momentum_buffer"] - scalars["lr"] * g
        step = self.momentum**2 * velocity - (1 + self.momentum) * scalars["lr"] * g
        return p + step, {"momentum_buffer": velocity}


class DecayOfMatrices(rules.SGD):
    """Decay that leaves vectors out."""

    def _decayed(self, p: Array, g: Array) -> Array:
        return g + self.weight_decay * p if p.ndim > 1 else g


class BiasesTwiceAsFast(rules.SGD):
    """Caffe's old habit."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        rate = scalars["lr"] * (2.0 if p.ndim == 1 else 1.0)
        return super().update(p, g, state, {"lr": rate}, xp)


class DecoupledSGD(rules.SGD):
    """SGDW for L2."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        velocity = self.momentum * state["momentum_buffer"] + g
        return self._shrunk(p, scalars) - scalars["lr"] * velocity, {"momentum_buffer": velocity}


def _rmsprop_rule(
    root: Callable[[Array, float], Array], inside: bool = False, start: float = 0.0
) -> type[Rule]:
    """Return RMSprop with another divisor, another velocity or other first squares.

    The velocity includes the learning rate if `inside`.
    """

    class Mistaken(rules.RMSprop):
        counts = True

        def scalars(self, step: int) -> dict[str, float]:
            return {"lr": self.lr, "start": start if step == 1 else 0.0}

        def update(
            self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
        ) -> tuple[Array, State]:
            g = self._decayed(p, g)
            square = (
                self.alpha * (state["square_avg"] + scalars["start"]) + (1.0 - self.alpha) * g * g
            )
            step, rate = g / root(square, self.eps), scalars["lr"]
            velocity = self.momentum * state["momentum_buffer"] + (rate * step if inside else step)
            return p - (velocity if inside else rate * velocity), {
                "square_avg": square,
                "momentum_buffer": velocity,
            }

    return Mistaken


def _adagrad_rule(start: float, root: Callable[[Array, float], Array]) -> type[Rule]:
    """Adagrad with another start and divisor."""

    class Mistaken(rules.Adagrad):
        def scalars(self, step: int) -> dict[str, float]:
            return {"lr": self.lr, "start": start if step == 1 else 0.0}

        def update(
            self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
        ) -> tuple[Array, State]:
            total = state["sum"] + scalars["start"] + g * g
            return p - scalars["lr"] * g / root(total, self.eps), {"sum": total}

    return Mistaken


class EpsBesideRoots(rules.Adadelta):
    """Adadelta with its epsilons outside of the roots."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        square = self.rho * state["square_avg"] + (1.0 - self.rho) * g * g
        delta = (state["acc_delta"] ** 0.5 + self.eps) / (square**0.5 + self.eps) * g
        acc_delta = self.rho * state["acc_delta"] + (1.0 - self.rho) * delta * delta
        return p - scalars["lr"] * delta, {"square_avg": square, "acc_delta": acc_delta}


class Unrectified(rules.RAdam):
    """RAdam that divides by the root from its first step on, without a factor."""

    def scalars(self, step):
        """The learning rate with Adam's corrections."""
        first, second = self.betas
        step_size = self.lr / (1.0 - first**step) * (1.0 - second**step) ** 0.5
        return {"lr": self.lr, "step_size": step_size, "adaptive": 1.0}


class MeanFirst(rules.Lion):
    """Lion that moves by the sign of the mean it keeps."""

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        mean = self.betas[1] * state["exp_avg"] + (1.0 - self.betas[1]) * g
        return self._shrunk(p, scalars) - scalars["lr"] * np.sign(mean), {"exp_avg": mean}


# Hosts with mistakes
# -----------------------------------------------------------------------------


class NeverCleared(OnHost):
    """Gradients that are added to those of all steps before."""

    def apply(self, gradients):
        """The update by the sums so far, of those parameters that have a gradient now."""
        sums = self.__dict__.setdefault("sums", {})
        for name, gradient in gradients.items():
            if gradient is not None:
                sums[name] = gradient if name not in sums else sums[name] + gradient
        super().apply(
            {name: None if gradient is None else sums[name] for name, gradient in gradients.items()}
        )


class RateFromBefore(OnHost):
    """A learning rate that comes into force one update too late."""

    def apply(self, gradients):
        """The update at the last rate."""
        wanted = self.rule
        self.rule = self.__dict__.get("before", wanted)
        super().apply(gradients)
        self.rule = self.before = wanted


class TwiceTheRate(rules.Adam):
    """A learning rate that is multiplied on its way in."""

    def scalars(self, step: int) -> dict[str, float]:
        numbers = super().scalars(step)
        return numbers | {"step_size": 2.0 * numbers["step_size"]}


# The list
# -----------------------------------------------------------------------------

_ROOTS: dict[str, Callable[[Array, float], Array]] = {
    "outside": lambda square, eps: square**0.5 + eps,
    "inside": lambda square, eps: (square + eps) ** 0.5,
}
_ADAMS: dict[str, Callable[..., Array]] = {
    "right": lambda m, v, first, second, eps: m / first / ((v / second) ** 0.5 + eps),
    "unscaled": lambda m, v, first, second, eps: second**0.5 / first * m / (v**0.5 + eps),
    "inside": lambda m, v, first, second, eps: m / first / (v / second + eps) ** 0.5,
    "squared": lambda m, v, first, second, eps: m / first / (v / second + eps**2) ** 0.5,
    "uncorrected": lambda m, v, first, second, eps: m / (v**0.5 + eps),
    "first alone": lambda m, v, first, second, eps: m / first / (v**0.5 + eps),
    "second alone": lambda m, v, first, second, eps: m / ((v / second) ** 0.5 + eps),
}


def _mistake(name: str, plant: Plant, *cause: str, place: tuple[str, ...] | None = None) -> Mistake:
    """A mistake of the optimizer whose name comes first in the mistake's."""
    optimizer = name.partition(":")[0]
    return Mistake(
        name, "optimizer", plant, place or (f"optimizer {optimizer}",), cause, fixture="optimizers"
    )


def _schedule_mistake(name: str, change: Callable[[Any], Any], *cause: str) -> Mistake:
    return Mistake(
        name, "optimizer", with_schedule(change), ("schedule",), cause, fixture="optimizers"
    )


MISTAKES: list[Mistake] = [
    _mistake(
        "adam: epsilon unscaled",
        on_host("adam", _adam_rule(_ADAMS["unscaled"])),
        "epsilon unscaled",
    ),
    _mistake(
        "adam: epsilon inside the root",
        on_host("adam", _adam_rule(_ADAMS["inside"])),
        "epsilon inside the root",
    ),
    _mistake("adam: epsilon 1e-7", with_settings("adam", eps=1e-7), "eps=1e-07 instead of 1e-08"),
    _mistake("adam: epsilon 3e-6", with_settings("adam", eps=3e-6), "eps=3e-06 instead of 1e-08"),
    _mistake(
        "adam: no bias correction",
        on_host("adam", _adam_rule(_ADAMS["uncorrected"])),
        "no bias correction",
    ),
    _mistake(
        "adam: first mean corrected alone",
        on_host("adam", _adam_rule(_ADAMS["first alone"])),
        "no bias correction of the second",
    ),
    _mistake(
        "adam: second mean corrected alone",
        on_host("adam", _adam_rule(_ADAMS["second alone"])),
        "no bias correction of the first",
    ),
    _mistake(
        "adam: step off by one",
        on_host("adam", _adam_rule(_ADAMS["right"], offset=1)),
        "step count off by one",
    ),
    _mistake(
        "adam: betas swapped", with_settings("adam", betas=(0.999, 0.9)), "beta1 and beta2 swapped"
    ),
    _mistake("adam: beta1 0.5", with_settings("adam", betas=(0.5, 0.999)), "beta1=0.5"),
    _mistake("adam: beta2 0.99", with_settings("adam", betas=(0.9, 0.99)), "beta2=0.99"),
    _mistake("adam: decay decoupled", on_host("adam", rules.AdamW), "weight decay decoupled"),
    _mistake("adam: amsgrad", on_host("adam", rules.AMSGrad, amsgrad=True), "amsgrad"),
    _mistake(
        "adam: twice the learning rate", on_host("adam", TwiceTheRate), "learning rate times 2"
    ),
    _mistake(
        "adam: unused parameters updated",
        with_hook("adam", zeros_for_unused),
        "unused parameters updated",
        place=("unused parameter",),
    ),
    _mistake("adam: gradients never cleared", on_host("adam", host=NeverCleared), "never cleared"),
    _mistake("adam: rate set too late", on_host("adam", host=RateFromBefore), "one step late"),
    _mistake(
        "adam: built with lr 0.02",
        with_settings("adam", lr=0.02),
        "lr=0.02 instead of 0.01",
        place=("learning rate",),
    ),
    _mistake("amsgrad: lost", on_host("amsgrad", rules.Adam, amsgrad=False), "no amsgrad"),
    _mistake(
        "amsgrad: of corrected means",
        on_host("amsgrad", CorrectedMaximum),
        "amsgrad of corrected means",
    ),
    _mistake("adamw: as L2", on_host("adamw", rules.Adam), "as L2"),
    _mistake(
        "adamw: decay not times lr",
        on_host("adamw", DecayNotTimesRate),
        "not times the learning rate",
    ),
    _mistake(
        "adamw: decay 0.01",
        with_settings("adamw", weight_decay=0.01),
        "weight_decay=0.01 instead of 0.02",
    ),
    _mistake("adamw: decay lost", with_settings("adamw", weight_decay=0.0), "no weight decay"),
    _mistake(
        "rmsprop: epsilon inside the root",
        on_host("rmsprop", _rmsprop_rule(_ROOTS["inside"])),
        "epsilon inside the root",
    ),
    _mistake(
        "rmsprop: lr inside the velocity",
        on_host("rmsprop", _rmsprop_rule(_ROOTS["outside"], inside=True)),
        "inside the velocity",
    ),
    _mistake(
        "rmsprop: both",
        on_host("rmsprop", _rmsprop_rule(_ROOTS["inside"], inside=True)),
        "inside the velocity",
    ),
    _mistake(
        "rmsprop: squares start at one",
        on_host("rmsprop", _rmsprop_rule(_ROOTS["outside"], start=1.0)),
        "start at 1",
    ),
    _mistake(
        "rmsprop: as in TensorFlow",
        on_host("rmsprop", _rmsprop_rule(_ROOTS["inside"], inside=True, start=1.0), alpha=0.9),
        "alpha=0.9",
    ),
    _mistake(
        "rmsprop: alpha 0.9", with_settings("rmsprop", alpha=0.9), "alpha=0.9 instead of 0.99"
    ),
    _mistake("rmsprop: momentum lost", with_settings("rmsprop", momentum=0.0), "no momentum"),
    _mistake(
        "adagrad: sum starts at 0.1",
        on_host("adagrad", _adagrad_rule(0.1, _ROOTS["outside"])),
        "start at 0.1",
    ),
    _mistake(
        "adagrad: sum starts at 0.03",
        on_host("adagrad", _adagrad_rule(0.03, _ROOTS["outside"])),
        "start at 0.03",
    ),
    _mistake(
        "adagrad: epsilon inside the root",
        on_host("adagrad", _adagrad_rule(0.0, _ROOTS["inside"])),
        "epsilon inside the root",
    ),
    _mistake("adagrad: epsilon 1e-8", with_settings("adagrad", eps=1e-8), "eps=1e-08"),
    _mistake("adadelta: rho 0.95", with_settings("adadelta", rho=0.95), "rho=0.95 instead of 0.9"),
    _mistake(
        "adadelta: epsilons outside of the roots",
        on_host("adadelta", EpsBesideRoots),
        "epsilon outside",
    ),
    _mistake("lion: sign of the mean it keeps", on_host("lion", MeanFirst), "beta1=0.99"),
    _mistake(
        "lion: betas swapped", with_settings("lion", betas=(0.99, 0.9)), "beta1 and beta2 swapped"
    ),
    _mistake("sgd: lr inside the velocity", on_host("sgd", RateInside), "inside the velocity"),
    _mistake("sgd: dampening from the start", on_host("sgd", Dampened), "dampening"),
    _mistake("sgd: dampening 0.3", on_host("sgd", DampenedLater), "dampening=0.3"),
    _mistake("sgd: nesterov", with_settings("sgd", nesterov=True), "Nesterov momentum instead"),
    _mistake(
        "sgd: momentum 0.95", with_settings("sgd", momentum=0.95), "momentum=0.95 instead of 0.9"
    ),
    _mistake("sgd: momentum lost", with_settings("sgd", momentum=0.0), "no momentum"),
    _mistake("sgd: decay lost", with_settings("sgd", weight_decay=0.0), "no weight decay"),
    _mistake(
        "sgd: decay doubled",
        with_settings("sgd", weight_decay=0.02),
        "weight_decay=0.02 instead of 0.01",
    ),
    _mistake(
        "sgd: decay of matrices alone", on_host("sgd", DecayOfMatrices), "no weight decay of biases"
    ),
    _mistake("sgd: decay decoupled", on_host("sgd", DecoupledSGD), "weight decay decoupled"),
    _mistake(
        "sgd: biases twice as fast", on_host("sgd", BiasesTwiceAsFast), "learning rate times 2"
    ),
    _mistake(
        "sgd: unused parameters decay",
        with_hook("sgd", zeros_for_unused),
        "unused parameters updated",
        place=("unused parameter",),
    ),
    _mistake("sgd: gradients never cleared", on_host("sgd", host=NeverCleared), "never cleared"),
    _mistake(
        "sgd: gradients times four",
        with_hook("sgd", _each(lambda gradient: gradient * 4.0)),
        "gradients times 4",
    ),
    _mistake(
        "sgd: gradients over seven",
        with_hook("sgd", _each(lambda gradient: gradient / 7.0)),
        "gradients times 0.142857",
    ),
    _mistake("sgd: ascent", with_hook("sgd", _each(lambda gradient: -gradient)), "gradient ascent"),
    _mistake("sgd: clipped where it should not be", with_hook("sgd", ClipNorm(3.0)), "bound 3"),
    _mistake("nesterov: lost", with_settings("nesterov", nesterov=False), "Nesterov lost"),
    _mistake("nesterov: of Chainer", on_host("nesterov", NesterovAG), "Chainer's NesterovAG"),
    _mistake(
        "clipped: decay before clipping",
        with_hook("clipped", decay_of(0.01), ClipNorm(BOUND), weight_decay=0.0),
        "decay before clipping",
    ),
    _mistake("clipped: by value", with_hook("clipped", ClipValue(BOUND)), "clipping by value"),
    _mistake(
        "clipped: tensor by tensor", with_hook("clipped", clip_each(BOUND)), "clipping per tensor"
    ),
    _mistake("clipped: not at all", with_hook("clipped"), "no clipping"),
    _mistake(
        "clipped: 1e-6 added to the norm",
        with_hook("clipped", clip_jointly(lambda norm: _shrinking(BOUND, norm + 1e-6))),
        "1e-6",
    ),
    _mistake(
        "clipped: bound doubled",
        with_hook("clipped", ClipNorm(2 * BOUND)),
        "bound=1 instead of 0.5",
    ),
    _schedule_mistake(
        "schedule: one step late",
        lambda right: lambda step: right(max(step - 1, 0)),
        "one step late",
    ),
    _schedule_mistake(
        "schedule: one step early", lambda right: lambda step: right(step + 1), "one step early"
    ),
    _schedule_mistake(
        "schedule: never applied", lambda right: lambda step: right(0), "never applied"
    ),
    _schedule_mistake(
        "schedule: in other units", lambda right: lambda step: right(step // 5), "5 times as slow"
    ),
    _schedule_mistake(
        "schedule: scaled", lambda right: lambda step: 0.5 * right(step), "times 0.5"
    ),
    _schedule_mistake(
        "schedule: other factors",
        lambda right: lambda step: LR * (right(step) / LR) ** 0.5,
        "power of 0.5",
    ),
    _schedule_mistake(
        "schedule: warm-up",
        lambda right: lambda step: right(step) * min(1.0, (step + 1) / 5),
        "warm-up over the first 5 steps",
    ),
]
