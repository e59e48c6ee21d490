"""The neutral update rules: the arithmetic of one optimizer step on one parameter.

A rule is a frozen value with its numbers. Its state for a parameter is a dict of arrays (its
slots). Its arithmetic uses operators, ``** 0.5``, the methods ``sum`` and ``mean``, and the
functions ``sign``, ``maximum``, ``clip``, ``where`` and ``finfo`` of the framework's module, so it
runs on NumPy, CuPy, JAX, PyTorch and MLX arrays; on PyTorch the native optimizers are used where
their formulas are the same. Numbers that depend on the step count are computed on the host in
double precision and come in as `scalars`, so a new learning rate needs no new compilation and bias
corrections are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from deliralike.errors import (
    ArgumentError,
    SettingError,
    is_number,
    refuse_unknown,
    refuse_unknown_settings,
)

Array = Any
State = dict[str, Array]
Stepped = tuple[Array, State]  # a parameter and its state after a step
Scalars = Mapping[str, Any]  # the numbers of an update, by name
Shape = tuple[int, ...]
_ADJUSTMENTS = ("original", "match_rms_adamw")
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # the coefficients of Muon's iteration
_NEWTON_SCHULZ_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The settings and methods that all rules share.

    Attributes:
        lr: The learning rate.
        weight_decay: See each rule.
        counts: Whether the state holds each parameter's number of updates, under the name
            ``"step"``.
        decoupled_weight_decay: Whether the decay is ``p *= 1 - lr * weight_decay`` before the step;
            else it is added to the gradient.
        any_layout: Whether the arithmetic is the same in any order of a parameter's axes. Where it
            is not, parameters, gradients and state have PyTorch's layout.
    """

    counts: ClassVar[bool] = True
    any_layout: ClassVar[bool] = True
    decoupled_weight_decay = False
    _slots: ClassVar[tuple[str, ...]] = ()
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
                value = check(
                    f"{type(self).__name__}: {field.name}", getattr(self, field.name)
                )
                object.__setattr__(self, field.name, value)

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the names of the arrays in a parameter's state with these settings.

        They are the names that PyTorch uses.
        """
        return self._slots

    def state_shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of each array in the state of a parameter of this shape, by slot."""
        return dict.fromkeys(self.slots, shape)

    def scalars(self, step: int) -> dict[str, float]:
        """Return the numbers of update `step` (1 for the first), in double precision."""
        return {"lr": self.lr}

    def update(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Return a parameter and its state after one step.

        Args:
            p, g: A parameter and its gradient.
            state: One array for each of `state_shapes`, zeros before the first update.
            scalars: The numbers that `scalars` returned.
            xp: The framework's module of array functions: ``numpy``, ``cupy``, ``jax.numpy``,
                ``torch``.

        Returns:
            The new parameter and the new state; nothing is changed in place.
        """
        if self.decoupled_weight_decay:
            return self._step(self._shrunk(p, scalars), g, state, scalars, xp)
        return self._step(p, self._decayed(p, g), state, scalars, xp)

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Return a parameter and its state after the decay and one step; see `update`."""
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

    def _shrunk(self, p: Array, scalars: Scalars) -> Array:
        """Return the parameter after decay that is decoupled from the gradient."""
        if not self.weight_decay:
            return p
        return p * (1.0 - scalars["lr"] * self.weight_decay)


def _mean(weight: float, old: Array, new: Array) -> Array:
    """Return a running mean in which the old one has a weight."""
    return weight * old + (1.0 - weight) * new


@dataclass(frozen=True, kw_only=True)
class SGD(Rule):
    """SGD with momentum: ``v = momentum * v + g; p -= lr * v``.

    This is PyTorch's form (the learning rate stays outside of the velocity).

    `weight_decay` is added to the gradient. Nesterov: ``p -= lr * (g + momentum * v)``. Source:
    Sutskever et al. 2013.

    Attributes:
        dampening: The velocity takes ``1 - dampening`` of each gradient after the first.
    """

    counts: ClassVar[bool] = False
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: `nesterov` is set without a momentum or with dampening, or a setting makes
                no sense.
        """
        super().__post_init__()
        if self.nesterov and (not self.momentum or self.dampening):
            raise SettingError(
                "SGD: nesterov=True needs a momentum above 0 and no dampening"
            )

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rate, and the velocity's part of the gradient."""
        return {"lr": self.lr, "part": 1.0 if step == 1 else 1.0 - self.dampening}

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity, where there is a momentum."""
        if not self.momentum:
            return ()
        return ("momentum_buffer",)

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step; the velocity starts at the first gradient."""
        if not self.momentum:
            return p - scalars["lr"] * g, state
        part = scalars["part"] * g if self.dampening else g
        velocity = self.momentum * state["momentum_buffer"] + part
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

    _slots = ("exp_avg", "exp_avg_sq")
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rate and the bias corrections."""
        beta1, beta2 = self.betas
        return {
            "lr": self.lr,
            "first": 1.0 - beta1**step,
            "scale": (1.0 - beta2**step) ** 0.5,
        }

    def _moved(self, g: Array, state: State) -> State:
        """Return the two means after this gradient."""
        beta1, beta2 = self.betas
        return {
            "exp_avg": _mean(beta1, state["exp_avg"], g),
            "exp_avg_sq": _mean(beta2, state["exp_avg_sq"], g * g),
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
        return {
            "lr": self.lr,
            "step_size": self.lr / numbers["first"],
            "scale": numbers["scale"],
        }

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
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


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled decay: ``p *= 1 - lr * weight_decay`` first. Source: arXiv 1711.05101."""

    decoupled_weight_decay = True
    weight_decay: float = 0.01


@dataclass(frozen=True, kw_only=True)
class RAdam(Moments):
    """RAdam: Adam whose step is rectified for the variance of its early means of squares.

    ``rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)`` with ``rho_inf = 2 / (1 - beta2) - 1``.
    Where it is at most 5, which it is in the first updates, ``p -= lr * m``; later Adam's step
    times a factor that grows to 1. As in PyTorch, `eps` is added to the root before its bias
    correction. Source: Liu et al. 2020, arXiv 1908.03265.

    Attributes:
        decoupled_weight_decay: ``p *= 1 - lr * weight_decay`` first, as in `AdamW`; otherwise the
            decay is added to the gradient.
    """

    decoupled_weight_decay: bool = False

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rates, the scale of the root, and whether the root divides."""
        numbers = super().scalars(step)
        beta2 = self.betas[1]
        longest = 2.0 / (1.0 - beta2) - 1.0
        length = longest - 2.0 * step * beta2**step / (1.0 - beta2**step)
        step_size = self.lr / numbers["first"]
        if length <= 5.0:
            return {"lr": self.lr, "step_size": step_size, "adaptive": 0.0}
        grown = (length - 4.0) * (length - 2.0) * longest
        rectified = (grown / ((longest - 4.0) * (longest - 2.0) * length)) ** 0.5
        step_size *= rectified * numbers["scale"]
        return {"lr": self.lr, "step_size": step_size, "adaptive": 1.0}

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
        new = self._moved(g, state)
        # A compiled program takes no branch: the divisor is the root or 1.
        adaptive = scalars["adaptive"]
        divisor = adaptive * (new["exp_avg_sq"] ** 0.5 + self.eps) + (1.0 - adaptive)
        return p - scalars["step_size"] * new["exp_avg"] / divisor, new


@dataclass(frozen=True, kw_only=True)
class Adafactor(Rule):
    """Adafactor keeps means of squares by row and by column instead of by element.

    The mean of squares of a parameter with several axes is ``row * column / mean(row)`` over its
    last two axes; other parameters have one for each element. The means' weight of the new square
    is ``t**-0.8``. The step ``u = g / sqrt(mean)`` is divided by ``max(1, rms(u))`` and
    multiplied by ``max(0.001, rms(p)) * min(lr, 1 / sqrt(t))``; before it ``p *= 1 - lr *
    weight_decay``. This is PyTorch's form with its numbers: `lr` bounds the paper's relative step,
    and the spacing of the parameter's type at 1 bounds the divisors from below. Source: Shazeer and
    Stern 2018, arXiv 1804.04235.
    """

    _slots = ("row_var", "col_var", "variance")
    any_layout: ClassVar[bool] = False

    def state_shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the means by row and column, or of the mean by element."""
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rate, the relative step, and the weight of the new squares."""
        relative = min(self.lr, step**-0.5)
        return {"lr": self.lr, "relative": relative, "weight": step**-0.8}

    def update(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
        eps = float(xp.finfo(p.dtype).eps)
        mean, new = self._mean_of_squares(g * g, state, scalars["weight"], eps, xp)
        u = g / xp.clip(mean, eps * eps, None) ** 0.5
        u = u / xp.clip(_rms(u), 1.0, None)
        size = xp.clip(_rms(p), 1e-3, None) * scalars["relative"]
        return self._shrunk(p, scalars) - size * u, new

    def _mean_of_squares(
        self, squares: Array, state: State, weight: Any, eps: float, xp: Any
    ) -> Stepped:
        """Return the mean of squares for each element, and the state that it comes from."""
        if squares.ndim < 2:
            mean = state["variance"] + weight * (squares - state["variance"])
            return mean, {"variance": mean}
        row = state["row_var"]
        column = state["col_var"]
        row = row + weight * (squares.mean(axis=-1, keepdims=True) - row)
        column = column + weight * (squares.mean(axis=-2, keepdims=True) - column)
        mean = row * column / xp.clip(row.mean(axis=-2, keepdims=True), eps, None)
        return mean, {"row_var": row, "col_var": column}


def _rms(x: Array) -> Array:
    """Return the root of the mean of squares."""
    return (x * x).sum() ** 0.5 / max(math.prod(x.shape), 1) ** 0.5


@dataclass(frozen=True, kw_only=True)
class Muon(Rule):
    """Muon moves a matrix along its momentum with all singular values brought near 1.

    ``b = momentum * b + (1 - momentum) * g``; the direction is `b`, or with Nesterov's momentum
    ``momentum * b + (1 - momentum) * g``. Newton and Schulz's iteration makes it almost orthogonal:
    ``x = direction / max(|direction|, 1e-7)``, then five times ``x = (a + b y + c y y) x``
    with ``y = x x^T``. Then ``p *= 1 - lr * weight_decay; p -= lr * ratio * x``. This is PyTorch's
    form, which iterates in bfloat16; here it is done in the parameter's own type.

    Parameters without exactly two axes (biases, norms, convolutions), for which PyTorch's Muon is
    an error, follow `AdamW` with the same learning rate and weight decay. Embeddings and the last
    layer, which the authors leave to it as well, follow it by a group:
    ``groups={"head.*": {"adamw": True, "lr": 3e-4}}``.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; Liu et al. 2025, arXiv
    2502.16982.

    Attributes:
        adjust_lr_fn: What the learning rate of a matrix with A rows and B columns is multiplied by:
            ``"original"`` ``sqrt(max(1, A / B))``, ``"match_rms_adamw"`` ``0.2 * sqrt(max(A, B))``,
            with which a learning rate found for AdamW fits all parameters.
        adamw: Follow AdamW for every parameter.
    """

    _slots = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    any_layout: ClassVar[bool] = False
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    adjust_lr_fn: str = "original"
    adamw: bool = False

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SettingError: `adjust_lr_fn` is no such name, or a setting makes no sense.
        """
        super().__post_init__()
        if self.adjust_lr_fn not in _ADJUSTMENTS:
            wanted = " or ".join(map(repr, _ADJUSTMENTS))
            raise SettingError(
                f"Muon: adjust_lr_fn={self.adjust_lr_fn!r} must be {wanted}"
            )

    def state_shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of a matrix's momentum, or of AdamW's means."""
        if self._is_orthogonal(shape):
            return {"momentum_buffer": shape}
        return self._adamw.state_shapes(shape)

    def scalars(self, step: int) -> dict[str, float]:
        """Return AdamW's numbers, of which the learning rate is Muon's too."""
        return self._adamw.scalars(step)

    def update(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step of Muon for a matrix, one of AdamW for others."""
        if not self._is_orthogonal(p.shape):
            return self._adamw.update(p, g, state, scalars, xp)
        buffer = _mean(self.momentum, state["momentum_buffer"], g)
        direction = buffer
        if self.nesterov:
            direction = _mean(self.momentum, buffer, g)
        rows, columns = p.shape
        factor = max(1.0, rows / max(columns, 1)) ** 0.5
        if self.adjust_lr_fn == "match_rms_adamw":
            factor = 0.2 * max(rows, columns) ** 0.5
        rate = scalars["lr"] * factor
        p = self._shrunk(p, scalars) - rate * self._orthogonalized(direction, xp)
        return p, {"momentum_buffer": buffer}

    @property
    def _adamw(self) -> AdamW:
        """The rule of all parameters that are no matrices."""
        return AdamW(lr=self.lr, weight_decay=self.weight_decay)

    def _is_orthogonal(self, shape: Shape) -> bool:
        return len(shape) == 2 and not self.adamw

    def _orthogonalized(self, x: Array, xp: Any) -> Array:
        """Return the matrix with its singular values brought near 1."""
        a, b, c = _NEWTON_SCHULZ
        is_tall = x.shape[0] > x.shape[1]
        if is_tall:
            x = x.T
        x = x / xp.clip((x * x).sum() ** 0.5, 1e-7, None)
        for _ in range(_NEWTON_SCHULZ_STEPS):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x.T if is_tall else x


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
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
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

    decoupled_weight_decay = True
    _slots = ("exp_avg",)
    betas: tuple[float, float] = (0.9, 0.99)

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
        beta1, beta2 = self.betas
        mean = state["exp_avg"]
        direction = _sign(_mean(beta1, mean, g), xp)
        new = {"exp_avg": _mean(beta2, mean, g)}
        return p - scalars["lr"] * direction, new


def _sign(x: Array, xp: Any) -> Array:
    """Return the sign; a NaN stays NaN, of which PyTorch's sign would be 0."""
    return xp.where(x == x, xp.sign(x), x)


@dataclass(frozen=True, kw_only=True)
class RMSprop(Rule):
    """RMSprop: ``p -= lr * g / (sqrt(v) + eps)``, with an optional momentum.

    The learning rate stays outside of the momentum.

    Attributes:
        centered: Take the square of the gradients' mean off their mean of squares. Source: Graves
            2013, arXiv 1308.0850, which has `eps` in the root.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        """The mean of squares, and the velocity and the mean where there are some."""
        slots = {"momentum_buffer": self.momentum, "grad_avg": self.centered}
        return ("square_avg", *(name for name, is_kept in slots.items() if is_kept))

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
        square = _mean(self.alpha, state["square_avg"], g * g)
        new = {"square_avg": square}
        if self.centered:
            mean = _mean(self.alpha, state["grad_avg"], g)
            new["grad_avg"] = mean
            square = square - mean * mean
        direction = g / (square**0.5 + self.eps)
        if self.momentum:
            direction = self.momentum * state["momentum_buffer"] + direction
            new["momentum_buffer"] = direction
        return p - scalars["lr"] * direction, new


@dataclass(frozen=True, kw_only=True)
class Adagrad(Rule):
    """``s += g * g; p -= lr * g / (sqrt(s) + eps)``, with a sum that starts at 0.

    `weight_decay` is added to the gradient. Source: Duchi et al. 2011.

    Attributes:
        lr_decay: ``lr / (1 + (t - 1) * lr_decay)`` is the learning rate of step t.
    """

    _slots = ("sum",)
    eps: float = 1e-10
    lr_decay: float = 0.0

    def scalars(self, step: int) -> dict[str, float]:
        """Return the learning rate of a step."""
        return {"lr": self.lr / (1.0 + (step - 1) * self.lr_decay)}

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
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

    _slots = ("square_avg", "acc_delta")
    rho: float = 0.9
    eps: float = 1e-6

    def _step(
        self, p: Array, g: Array, state: State, scalars: Scalars, xp: Any
    ) -> Stepped:
        """Make one step."""
        square = _mean(self.rho, state["square_avg"], g * g)
        ratio = (state["acc_delta"] + self.eps) ** 0.5 / (square + self.eps) ** 0.5
        delta = ratio * g
        new = {
            "square_avg": square,
            "acc_delta": _mean(self.rho, state["acc_delta"], delta * delta),
        }
        return p - scalars["lr"] * delta, new


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
    "radam": RAdam,
    "adafactor": Adafactor,
    "muon": Muon,
}


def rule(name: str, **settings: Any) -> Rule:
    """Return the rule of that name.

    Raises:
        UnknownName: There is no such rule.
        ArgumentError: It has no such setting, or no learning rate is given.
        SettingError: A setting makes no sense.

    Example:
        >>> rule("sgd", lr=0.1, momentum=0.9)
        SGD(lr=0.1, weight_decay=0.0, momentum=0.9, nesterov=False, dampening=0.0)
    """
    refuse_unknown(name, RULES, f"there is no optimizer {name!r}")
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
    if not is_number(value):
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
    weights = tuple(number(each, where) for each in value)
    if max(weights) >= 1:
        raise SettingError(f"{where}={value!r} must be below 1")
    return weights


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "float": lambda where, value: number(value, where),
    "bool": _flag,
    "tuple[float, float]": _weights,
}
