"""The neutral update rules: the arithmetic of one optimizer step on one parameter.

A rule is a frozen value with its numbers. Its state for a parameter is a dict of arrays (its
slots). Its arithmetic uses operators, ``** 0.5``, ``sum()`` and the functions ``sign``, ``maximum``
and ``where`` of the framework's module, so it runs on NumPy, CuPy, JAX and PyTorch arrays; on
PyTorch the native optimizers are used where their formulas are the same. Numbers that depend on the
step count are computed on the host in double precision and come in as `scalars`, so a new learning
rate needs no new compilation and bias corrections are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, ClassVar

from deliralike.errors import (
    ArgumentError,
    SettingError,
    UnknownName,
    refuse_unknown_settings,
    suggestion,
)

Array = Any
State = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The settings and methods that all rules share.

    Attributes:
        lr: The learning rate.
        weight_decay: See each rule.
        counts: Whether the state holds each parameter's number of updates, under the name
            ``"step"``.
    """

    counts: ClassVar[bool] = True
    lr: float
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings; whole numbers become floats, lists become tuples.

        Raises:
            SettingError: A setting makes no sense.
        """
        for field in fields(self):
            check = _CHECKS.get(str(field.type))
            if check is not None:
                value = check(f"{type(self).__name__}: {field.name}", getattr(self, field.name))
                object.__setattr__(self, field.name, value)

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the names of the arrays in a parameter's state with these settings.

        They are the names that PyTorch uses.
        """
        return ()

    def scalars(self, step: int) -> dict[str, float]:
        """Return the numbers of update `step` (1 for the first), in double precision."""
        return {"lr": self.lr}

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Return a parameter and its state after one step.

        Args:
            p, g: A parameter and its gradient.
            state: One array for each of `slots`, zeros before the first update.
            scalars: The numbers that `scalars` returned.
            xp: The framework's module of array functions: ``numpy``, ``cupy``, ``jax.numpy``,
                ``torch``.

        Returns:
            The new parameter and the new state; nothing is changed in place.
        """
        raise NotImplementedError

    @classmethod
    def settings(cls) -> list[str]:
        """Return the names of the rule's settings."""
        return [field.name for field in fields(cls)]

    def with_lr(self, lr: float) -> Rule:
        """Return the same rule with another learning rate."""
        return replace(self, lr=lr)

    def _decayed(self, p: Array, g: Array) -> Array:
        """Return the gradient plus that of ``weight_decay / 2 * |p|^2``."""
        if not self.weight_decay:
            return g
        return g + self.weight_decay * p

    def _shrunk(self, p: Array, scalars: Mapping[str, Any]) -> Array:
        """Return the parameter after decay that is decoupled from the gradient."""
        if not self.weight_decay:
            return p
        return p * (1.0 - scalars["lr"] * self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class SGD(Rule):
    """SGD with momentum: ``v = momentum * v + g; p -= lr * v``.

    This is PyTorch's form (the learning rate stays outside of the velocity).

    `weight_decay` is added to the gradient. Nesterov: ``p -= lr * (g + momentum * v)``. Source:
    Sutskever et al. 2013.
    """

    counts: ClassVar[bool] = False
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: `nesterov` is set without a momentum, or a setting makes no sense.
        """
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise SettingError("SGD: nesterov=True needs a momentum above 0")

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, where there is a momentum."""
        if not self.momentum:
            return ()
        return ("momentum_buffer",)

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step; the velocity starts at the first gradient."""
        g = self._decayed(p, g)
        if not self.momentum:
            return p - scalars["lr"] * g, state
        velocity = self.momentum * state["momentum_buffer"] + g
        direction = velocity
        if self.nesterov:
            direction = g + self.momentum * velocity
        return p - scalars["lr"] * direction, {"momentum_buffer": velocity}


@dataclass(frozen=True, kw_only=True)
class Moments(Rule):
    """The base of rules with running means of the gradient and of its square.

    Attributes:
        betas: The weights of the old mean of gradients and of squares.
        eps: Added to the root.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    @property
    def slots(self) -> tuple[str, ...]:
        """The two means."""
        return ("exp_avg", "exp_avg_sq")

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rate and the bias corrections."""
        first, second = self.betas
        return {"lr": self.lr, "first": 1.0 - first**step, "scale": (1.0 - second**step) ** 0.5}

    def _moved(self, g: Array, state: State) -> State:
        """Return the two means after this gradient."""
        beta1, beta2 = self.betas
        return {
            "exp_avg": beta1 * state["exp_avg"] + (1.0 - beta1) * g,
            "exp_avg_sq": beta2 * state["exp_avg_sq"] + (1.0 - beta2) * (g * g),
        }


@dataclass(frozen=True, kw_only=True)
class Adam(Moments):
    """Adam; `weight_decay` is added to the gradient. Source: Kingma and Ba 2015, arXiv 1412.6980.

    Attributes:
        amsgrad: Divide by the root of the largest mean of squares so far, which is kept before its
            bias correction, as in PyTorch. Source: Reddi et al. 2018, arXiv 1904.09237.
    """

    amsgrad: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        """The two means, and the largest one."""
        if not self.amsgrad:
            return super().slots
        return (*super().slots, "max_exp_avg_sq")

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rates and the bias corrections."""
        numbers = super().scalars(step)
        return {"lr": self.lr, "step_size": self.lr / numbers["first"], "scale": numbers["scale"]}

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        return self._adam(p, self._decayed(p, g), state, scalars, xp)

    def _adam(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        new = self._moved(g, state)
        square = new["exp_avg_sq"]
        if self.amsgrad:
            square = new["max_exp_avg_sq"] = xp.maximum(state["max_exp_avg_sq"], square)
        root = square**0.5 / scalars["scale"] + self.eps
        return p - scalars["step_size"] * new["exp_avg"] / root, new


@dataclass(frozen=True, kw_only=True)
class AMSGrad(Adam):
    """`Adam` with ``amsgrad=True``."""

    amsgrad: bool = True

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: `amsgrad` is False, or a setting makes no sense.
        """
        super().__post_init__()
        if not self.amsgrad:
            raise SettingError("AMSGrad: amsgrad=False is Adam, take 'adam'")


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled decay: ``p *= 1 - lr * weight_decay`` first. Source: arXiv 1711.05101."""

    weight_decay: float = 0.01

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        return self._adam(self._shrunk(p, scalars), g, state, scalars, xp)


@dataclass(frozen=True, kw_only=True)
class LAMB(Moments):
    """LAMB: Adam's direction and the decay, as long as the parameter.

    The direction is ``u = m / (sqrt(v) + eps) + weight_decay * p``.

    Then ``p -= lr * |p| / |u| * u``, with bias-corrected means and norms over the whole parameter;
    the ratio is 1 where one of the norms is 0. Source: You et al. 2020, arXiv 1904.00962, algorithm
    2 with the identity for phi.
    """

    eps: float = 1e-6

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        new = self._moved(g, state)
        root = new["exp_avg_sq"] ** 0.5 / scalars["scale"] + self.eps
        u = self._decayed(p, new["exp_avg"] / scalars["first"] / root)
        ratio = _ratio((p * p).sum() ** 0.5, (u * u).sum() ** 0.5, xp)
        return p - scalars["lr"] * ratio * u, new


def _ratio(above: Array, below: Array, xp: Any) -> Array:
    """Return one number over another, and 1 where either is 0."""
    divisor = xp.where(below > 0, below, 1.0)  # nothing is divided by zero
    return xp.where((above > 0) & (below > 0), above / divisor, 1.0)


@dataclass(frozen=True, kw_only=True)
class Lion(Rule):
    """Lion updates a parameter by the sign of a mean.

    ``p *= 1 - lr * weight_decay; p -= lr * sign(beta1 * m + (1 - beta1) * g)``.

    The mean itself follows the second weight: ``m = beta2 * m + (1 - beta2) * g``. A learning rate
    three to ten times smaller than Adam's, and as much more decay, suit it. Source: Chen et al.
    2023, arXiv 2302.06675.
    """

    betas: tuple[float, float] = (0.9, 0.99)

    @property
    def slots(self) -> tuple[str, ...]:
        """The mean of gradients."""
        return ("exp_avg",)

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        beta1, beta2 = self.betas
        mean = state["exp_avg"]
        towards = beta1 * mean + (1.0 - beta1) * g
        # A NaN stays NaN: PyTorch's sign of it would be 0.
        direction = xp.where(towards == towards, xp.sign(towards), towards)
        new = {"exp_avg": beta2 * mean + (1.0 - beta2) * g}
        return self._shrunk(p, scalars) - scalars["lr"] * direction, new


@dataclass(frozen=True, kw_only=True)
class RMSprop(Rule):
    """RMSprop: ``p -= lr * g / (sqrt(v) + eps)``, with an optional momentum.

    The learning rate stays outside of the momentum.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        """The mean of squares, and the velocity where there is a momentum."""
        if not self.momentum:
            return ("square_avg",)
        return ("square_avg", "momentum_buffer")

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        g = self._decayed(p, g)
        square = self.alpha * state["square_avg"] + (1.0 - self.alpha) * (g * g)
        direction = g / (square**0.5 + self.eps)
        new = {"square_avg": square}
        if self.momentum:
            direction = self.momentum * state["momentum_buffer"] + direction
            new["momentum_buffer"] = direction
        return p - scalars["lr"] * direction, new


@dataclass(frozen=True, kw_only=True)
class Adagrad(Rule):
    """``s += g * g; p -= lr * g / (sqrt(s) + eps)``, with a sum that starts at 0.

    `weight_decay` is added to the gradient. Source: Duchi et al. 2011.
    """

    eps: float = 1e-10

    @property
    def slots(self) -> tuple[str, ...]:
        """The sum of squares."""
        return ("sum",)

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        g = self._decayed(p, g)
        total = state["sum"] + g * g
        return p - scalars["lr"] * g / (total**0.5 + self.eps), {"sum": total}


@dataclass(frozen=True, kw_only=True)
class Adadelta(Rule):
    """Adadelta: ``d = sqrt(u + eps) / sqrt(v + eps) * g; p -= lr * d``.

    v and u are means of the squares of g and of d.

    `weight_decay` is added to the gradient; the paper's learning rate is 1. Source: Zeiler 2012,
    arXiv 1212.5701.

    Attributes:
        rho: The weight of the old means.
    """

    rho: float = 0.9
    eps: float = 1e-6

    @property
    def slots(self) -> tuple[str, ...]:
        """The two means."""
        return ("square_avg", "acc_delta")

    def update(
        self, p: Array, g: Array, state: State, scalars: Mapping[str, Any], xp: Any
    ) -> tuple[Array, State]:
        """Make one step."""
        g = self._decayed(p, g)
        square = self.rho * state["square_avg"] + (1.0 - self.rho) * (g * g)
        ratio = (state["acc_delta"] + self.eps) ** 0.5 / (square + self.eps) ** 0.5
        delta = ratio * g
        acc_delta = self.rho * state["acc_delta"] + (1.0 - self.rho) * (delta * delta)
        return p - scalars["lr"] * delta, {"square_avg": square, "acc_delta": acc_delta}


RULES: dict[str, type[Rule]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "amsgrad": AMSGrad,
    "rmsprop": RMSprop,
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "lion": Lion,
    "lamb": LAMB,
}
# rules that update each element by itself, whatever the shape; a subclass need not
BY_ELEMENT = (SGD, Adam, AdamW, AMSGrad, RMSprop, Adagrad, Adadelta, Lion)


def rule(name: str, **settings: Any) -> Rule:
    """Return the rule of that name.

    Raises:
        UnknownName: There is no such rule.
        ArgumentError: It has no such setting, or no learning rate is given.
        SettingError: A setting makes no sense.

    Example:
        >>> rule("sgd", lr=0.1, momentum=0.9)
        SGD(lr=0.1, weight_decay=0.0, momentum=0.9, nesterov=False)
    """
    if name not in RULES:
        raise UnknownName(f"there is no optimizer {name!r}. {suggestion(name, RULES)}")
    refuse_unknown_settings(f"optimizer {name!r}", settings, RULES[name].settings())
    if "lr" not in settings:
        raise ArgumentError(f"optimizer {name!r} needs a learning rate: lr=...")
    return RULES[name](**settings)


def number(value: Any, where: str = "lr") -> float:
    """Return a setting as a float.

    Args:
        where: The name of the setting, for the message.

    Raises:
        SettingError: The value is no number, not finite or below 0.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{where}={value!r} must be a number")
    if not 0 <= float(value) < math.inf:
        raise SettingError(f"{where}={value!r} must be at least 0 and finite")
    return float(value)


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingError(f"{where}={value!r} must be true or false")
    return value


def _weights(where: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingError(f"{where}={value!r} must be two numbers")
    for each in value:
        if number(each, where) >= 1:
            raise SettingError(f"{where}={value!r} must be below 1")
    return tuple(map(float, value))


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "float": lambda where, value: number(value, where),
    "bool": _flag,
    "tuple[float, float]": _weights,
}
