"""The neutral update rules, each written once: what one optimizer step does to one parameter.

A rule is a frozen value with its numbers. Its state for a parameter is a dict of arrays (its slots), its arithmetic
uses operators and ``** 0.5`` alone, so it runs on NumPy, CuPy and JAX arrays; on PyTorch the native optimizers
follow the same formulas. Numbers that depend on the step count are computed on the host in double precision and
come in as `scalars`, so a new learning rate needs no new compilation and bias corrections are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from deliralike.errors import ArgumentError, SettingError, UnknownName, suggestion

Array = Any


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What all rules share.

    Attributes:
        lr: The learning rate.
        weight_decay: See each rule.
    """

    slots: ClassVar[tuple[str, ...]] = ()
    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, float | int) and not value >= 0:
                raise SettingError(f"{type(self).__name__}: {name}={value!r} must be at least 0")

    def scalars(self, step: int) -> dict[str, float]:
        """The numbers of update `step` (1 for the first), in double precision."""
        return {"lr": self.lr}

    def update(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any], first: bool) -> tuple:
        """One step.

        Args:
            p, g: A parameter and its gradient.
            state: One array for each of `slots`, zeros before the first update.
            scalars: What `scalars` gave.
            first: Whether this is the parameter's first update.

        Returns:
            The new parameter and the new state.
        """
        raise NotImplementedError

    def with_lr(self, lr: float) -> Rule:
        """The same rule with another learning rate."""
        return replace(self, lr=lr)


@dataclass(frozen=True, kw_only=True)
class SGD(Rule):
    """``v = momentum * v + g; p -= lr * v``, PyTorch's form (the learning rate stays outside of the velocity).

    `weight_decay` is added to the gradient. Nesterov: ``p -= lr * (g + momentum * v)``. Source: Sutskever et al. 2013.
    """

    slots: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Nesterov needs a momentum."""
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise SettingError("SGD: nesterov=True needs a momentum above 0")

    def update(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any], first: bool) -> tuple:
        """One step; the velocity starts at the first gradient."""
        g = g + self.weight_decay * p if self.weight_decay else g
        if not self.momentum:
            return p - scalars["lr"] * g, state
        velocity = self.momentum * state["momentum_buffer"] + g
        direction = g + self.momentum * velocity if self.nesterov else velocity
        return p - scalars["lr"] * direction, {"momentum_buffer": velocity}


@dataclass(frozen=True, kw_only=True)
class Adam(Rule):
    """Adam; `weight_decay` is added to the gradient. Source: Kingma and Ba 2015, arXiv 1412.6980."""

    slots: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def scalars(self, step: int) -> dict[str, float]:
        """Learning rate and bias corrections."""
        first, second = self.betas
        return {"lr": self.lr, "step_size": self.lr / (1.0 - first**step), "scale": (1.0 - second**step) ** 0.5}

    def update(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any], first: bool) -> tuple:
        """One step."""
        g = g + self.weight_decay * p if self.weight_decay else g
        return self._adam(p, g, state, scalars)

    def _adam(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any]) -> tuple:
        beta1, beta2 = self.betas
        average = beta1 * state["exp_avg"] + (1.0 - beta1) * g
        square = beta2 * state["exp_avg_sq"] + (1.0 - beta2) * (g * g)
        p = p - scalars["step_size"] * average / (square**0.5 / scalars["scale"] + self.eps)
        return p, {"exp_avg": average, "exp_avg_sq": square}


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled decay: ``p *= 1 - lr * weight_decay`` first. Source: arXiv 1711.05101."""

    weight_decay: float = 0.01

    def update(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any], first: bool) -> tuple:
        """One step."""
        return self._adam(p * (1.0 - scalars["lr"] * self.weight_decay), g, state, scalars)


@dataclass(frozen=True, kw_only=True)
class RMSprop(Rule):
    """``p -= lr * g / (sqrt(v) + eps)``, with an optional momentum outside of which the learning rate stays."""

    slots: ClassVar[tuple[str, ...]] = ("square_avg", "momentum_buffer")
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    def update(self, p: Array, g: Array, state: dict[str, Array], scalars: dict[str, Any], first: bool) -> tuple:
        """One step."""
        g = g + self.weight_decay * p if self.weight_decay else g
        square = self.alpha * state["square_avg"] + (1.0 - self.alpha) * (g * g)
        direction = g / (square**0.5 + self.eps)
        if self.momentum:
            direction = self.momentum * state["momentum_buffer"] + direction
        velocity = direction if self.momentum else state["momentum_buffer"]
        return p - scalars["lr"] * direction, {"square_avg": square, "momentum_buffer": velocity}


RULES: dict[str, type[Rule]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "rmsprop": RMSprop}


def rule(name: str, **settings: Any) -> Rule:
    """The rule of that name.

    Example:
        >>> rule("sgd", lr=0.1, momentum=0.9)
        SGD(lr=0.1, weight_decay=0.0, momentum=0.9, nesterov=False)
    """
    if name not in RULES:
        raise UnknownName(f"there is no optimizer {name!r}. {suggestion(name, RULES)}")
    allowed = [field.name for field in fields(RULES[name])]
    for setting in settings:
        if setting not in allowed:
            raise ArgumentError(f"optimizer {name!r} has no setting {setting!r}. {suggestion(setting, allowed)}")
    if "lr" not in settings:
        raise ArgumentError(f"optimizer {name!r} needs a learning rate: lr=...")
    return RULES[name](**settings)
