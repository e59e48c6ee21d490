"""Update rules with their conventions: subclasses of the neutral rules, run over what was fed.

All elements of all parameters stand in one row; a number may be an array with one value for each of
them, as parameter groups have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.conformance.by_name import without
from deliralike.conformance.kinds import Axes, Named, Shape, Tensors
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm, ClipValue

Array = np.ndarray

# The rules with what other code does there
# -----------------------------------------------------------------------------


def _divisor(rule: Any, square: Array, scale: Any = 1.0) -> Array:
    """The root of a mean of squares, whose bias correction has the root `scale`, with epsilon."""
    if rule.eps_form == "root":
        return (square / scale**2 + rule.eps) ** 0.5
    if rule.eps_form == "unscaled":
        return (square**0.5 + rule.eps) / scale
    return (square / scale**2) ** 0.5 + rule.eps


class SGD(rules.SGD):
    """The velocity may be fed with the learning rate; Chainer's Nesterov step is one of it."""

    velocity, dampen_first = "plain", False

    def scalars(self, step: Any) -> dict[str, Any]:
        """The velocity's part of the gradient."""
        is_whole = (step <= 1) & (not self.dampen_first)
        return {"lr": self.lr, "part": np.where(is_whole, 1.0, 1.0 - self.dampening)}

    def update(self, p: Any, g: Any, state: Any, scalars: Any, xp: Any) -> Any:
        """Make one step."""
        if not np.any(self.momentum):
            return p - self.lr * g, {}
        within, outside = (1.0, self.lr) if self.velocity == "plain" else (self.lr, 1.0)
        g = within * g
        velocity = self.momentum * state["momentum_buffer"] + scalars["part"] * g
        direction = velocity
        if self.velocity == "chainer nesterov":
            direction = (1.0 + self.momentum) * g + self.momentum**2 * velocity
        elif self.nesterov:
            direction = g + self.momentum * velocity
        return p - outside * direction, {"momentum_buffer": velocity}


class Adam(rules.Adam):
    """Epsilon, bias corrections and AMSGrad may be others."""

    beta1, beta2 = 0.9, 0.999
    eps_form, corrected, offset = "outside", "both", 0

    @property
    def betas(self) -> Any:
        """Both weights of old means."""
        return self.beta1, self.beta2

    def scalars(self, step: Any) -> dict[str, Any]:
        """With the corrections that are made."""
        found: dict[str, Any] = super().scalars(step)
        if self.corrected not in ("both", "first"):
            found["step_size"] = self.lr
        if self.corrected not in ("both", "second"):
            found["scale"] = 1.0
        return found

    def _step(self, p: Any, g: Any, state: Any, scalars: Any, xp: Any) -> Any:
        new, scale = self._moved(g, state), scalars["scale"]
        square = new["exp_avg_sq"]
        if self.amsgrad:
            square = new["max_exp_avg_sq"] = xp.maximum(state["max_exp_avg_sq"], square)
        return p - scalars["step_size"] * new["exp_avg"] / _divisor(
            self, square, scale
        ), new


class Lion(rules.Lion):
    """With its weights one by one."""

    beta1, beta2 = 0.9, 0.99
    betas = Adam.betas


class RMSprop(SGD):
    """The square root of a mean, before the momentum of SGD."""

    alpha, eps, eps_form, centered = 0.99, 1e-8, "outside", False

    def update(self, p: Any, g: Any, state: Any, scalars: Any, xp: Any) -> Any:
        """Make one step."""
        square = self.alpha * state["square_avg"] + (1.0 - self.alpha) * g * g
        mean = self.alpha * state["grad_avg"] + (1.0 - self.alpha) * g
        divisor = _divisor(self, square - mean**2 if self.centered else square)
        p, new = super().update(p, g / divisor, state, scalars, xp)
        return p, new | {"square_avg": square, "grad_avg": mean}


class Adagrad(rules.Adagrad):
    """Epsilon may be in the root."""

    eps_form = "outside"

    def update(self, p: Any, g: Any, state: Any, scalars: Any, xp: Any) -> Any:
        """Make one step."""
        total = state["sum"] + g * g
        return p - scalars["lr"] * g / _divisor(self, total), {"sum": total}


# Forms and traces
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """An update rule with its conventions.

    Attributes:
        kind: The rule, of this file if other code does it in other ways.
        changes: What is not as `usual`: settings of the rule, and how gradients and rates come.
    """

    kind: type
    changes: Named

    # What the learning rate of each step is multiplied by, and -1 for that of the step before; what
    # gradients are multiplied by, and whether they add up; the bound;
    # where the decay goes, and whether before the clipping; what unused parameters do.
    usual = {
        "rate": 1.0,
        "rate_from": 0,
        "factor": 1.0,
        "gradient": "new",
        "clip": None,
        "bound": 1.0,
        "weight_decay": 0.0,
        "decay_form": "l2",
        "decay_first": False,
        "unused": "skipped",
    }

    def __getattr__(self, name: str) -> Any:
        """A setting, by its name."""
        if name in self.changes:
            return self.changes[name]
        return self.usual[name] if name in self.usual else getattr(self.kind, name)

    def has(self, name: str) -> bool:
        """Whether it has a setting of that name."""
        return name in self.usual or hasattr(self.kind, name)

    def replace(self, **changes: Any) -> Form:
        """The same with other conventions."""
        return Form(self.kind, {**self.changes, **changes})


@dataclass(frozen=True)
class Trace:
    """The inputs and updates of a reference and a candidate: T steps, N elements of parameters.

    Attributes:
        names, sizes, axes: Of the parameters: neutral name, number of elements, number of axes.
        parameters, gradients: Before each step, ``(T, N)``; zero where there was no gradient.
        present: Whether there was one, ``(T, N)``.
        rates: The learning rate of each step, ``(T,)``; ones where it is not known.
        reference, candidate: What each added to the parameters, ``(T, N)``.
        form, other: The reference's own and the candidate's, where they are known.
    """

    names: tuple[str, ...]
    sizes: Shape
    axes: Axes
    parameters: Array
    gradients: Array
    present: Array
    rates: Array
    reference: Array
    candidate: Array
    form: Form | None = None
    other: Form | None = None

    @property
    def starts(self) -> Array:
        """Where each parameter's elements start."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(int)

    @property
    def are_vectors(self) -> Array:
        """Which parameters have one axis at most: biases, and weights of norms."""
        return np.array(self.axes) < 2

    def by_parameter(self, values: Array) -> Array:
        """The sum of values over each parameter: ``(..., N)`` to ``(..., parameters)``."""
        return np.add.reduceat(values, self.starts, axis=-1)

    def spread(self, values: Array) -> Array:
        """One value for each parameter, given to each of its elements."""
        return np.repeat(values, self.sizes, axis=-1)


def form_of(name: str, settings: Named, hooks: Sequence[Any] = ()) -> Form | None:
    """Return the form of a rule with pre-update hooks that clip.

    None where the rule or a hook is unknown.

    Args:
        name: Of the rule's class, one of ours or of a framework.
        settings: By name; what no rule of ours has is left out.
    """
    if name.lower() not in _KINDS or len(hooks) > 1:
        return None
    kind, changes = _KINDS[name.lower()]
    given, form = dict(settings), Form(kind, changes)
    if "betas" in given:
        given["beta1"], given["beta2"] = given.pop("betas")
    elif "beta1" in given:
        form = form.replace(eps_form="unscaled")  # Chainer's
    if "weight_decay_rate" in given:
        given["weight_decay"] = given.pop("weight_decay_rate")
    known = {name: value for name, value in given.items() if form.has(name)}
    form = form.replace(**without(known, ("lr",)))
    for hook in hooks:
        if type(hook) is ClipNorm:
            form = form.replace(clip="norm", bound=hook.max_norm)
        elif type(hook) is ClipValue:
            form = form.replace(clip="value", bound=hook.max_value)
        else:
            return None
    return form


_KINDS: Mapping[str, tuple[type, Named]] = {
    "sgd": (SGD, {}),
    "momentumsgd": (SGD, {"velocity": "rate inside"}),
    "nesterovag": (SGD, {"velocity": "chainer nesterov"}),
    "adam": (Adam, {}),
    "amsgrad": (Adam, {"amsgrad": True}),
    "adamw": (Adam, {"decay_form": "decoupled"}),
    "rmsprop": (RMSprop, {}),
    "adagrad": (Adagrad, {}),
    "adadelta": (rules.Adadelta, {}),
    "lion": (Lion, {"decay_form": "decoupled"}),
}


# One run
# -----------------------------------------------------------------------------


def simulate(form: Form, trace: Trace) -> Array:
    """What an optimizer of this form adds to the parameters at each step, ``(T, N)``."""
    count, state, updates = np.zeros(trace.parameters.shape[1]), dict[str, Array](), []
    last = len(trace.rates) - 1
    with np.errstate(all="ignore"):
        for t in range(last + 1):
            used = trace.present[t] | (form.unused == "zeros")
            count = count + used
            rate = form.rate * trace.rates[min(max(t + form.rate_from, 0), last)]
            change, new = _step(
                form, rate, count, _gradient(form, trace, t, used), state
            )
            for name, value in new.items():
                state[name] = np.where(used, value, state.get(name, 0.0))
            change = change - _decay(form, rate) * trace.parameters[t]
            updates.append(np.where(used, change, 0.0))
    return np.stack(updates)


def _step(form: Form, rate: Any, count: Array, g: Array, state: Tensors) -> Any:
    """What the rule adds to a parameter of zero, and its state."""
    rule: Any = object.__new__(form.kind)  # unchecked: its numbers may be arrays
    vars(rule).update(without(form.changes, form.usual), lr=rate)
    old = {slot: state.get(slot, 0.0) for slot in _SLOTS}
    scalars = rule.scalars(np.maximum(count + getattr(rule, "offset", 0), 1.0))
    return rule.update(np.zeros_like(g), g, old, scalars, np)


_SLOTS = (
    *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"),
    *("square_avg", "grad_avg", "sum", "acc_delta"),
)


def _decay(form: Form, rate: Any) -> Any:
    """The share of a parameter that decay takes, where that is decoupled from the gradient."""
    shares = {"decoupled": rate * form.weight_decay, "absolute": form.weight_decay}
    return shares.get(form.decay_form, 0.0)


def _gradient(form: Form, trace: Trace, t: int, used: Array) -> Array:
    """The gradient as it comes to the rule: scaled, clipped, with decay."""
    first = 0 if form.gradient == "accumulated" else t
    g = form.factor * trace.gradients[first : t + 1].sum(0)
    decay = form.weight_decay if form.decay_form == "l2" else 0.0
    of_decay = decay * trace.parameters[t]
    if form.decay_first:
        both = np.where(used, g + of_decay, 0.0)
        return _clipped(form, trace, both)
    return _clipped(form, trace, g) + of_decay


def _clipped(form: Form, trace: Trace, g: Array) -> Array:
    """Gradients within the bound."""
    if form.clip is None:
        return g
    if form.clip == "value":
        return np.clip(g, -form.bound, form.bound)
    square = g * g
    if form.clip == "tensor":
        square = trace.spread(trace.by_parameter(square))
    else:
        square = square.sum()
    shrunk = np.minimum(1.0, form.bound / square**0.5)
    return g * np.nan_to_num(shrunk, nan=1.0)
