"""Update rules in plain NumPy, with their conventions as data.

All elements of all parameters stand in one row, so that a step is a handful of operations; a number
of a form may be an array with one value for each of them, as parameter groups have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike.conformance.kinds import Axes, Tensors
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm, ClipValue

Array = np.ndarray
Number = Any  # a float, or an array with one for each element


@dataclass(frozen=True)
class Form:
    """An update rule with its conventions; the standard ones are those of `deliralike.optim.rules`.

    Attributes:
        kind: ``"sgd"``, ``"adam"``, ``"rmsprop"``, ``"adagrad"``, ``"adadelta"`` or
            ``"lion"``.
        rate: What the learning rate of each step is multiplied by.
        rate_from: Where in time the learning rate is read: -1 for that of the step before.
        factor: What gradients are multiplied by.
        gradient: ``"new"`` or ``"accumulated"`` (never cleared).
        clip: How gradients are bounded: None, ``"norm"`` (jointly), ``"tensor"`` (each by its own
            norm), ``"value"``.
        bound, clip_eps: The bound, and what is added to the norm.
        decay: The weight decay.
        decay_form: ``"l2"`` (into the gradient), ``"decoupled"``, ``"absolute"`` (decoupled, not
            times the learning rate).
        decay_first: Whether decay enters the gradient before it is clipped.
        momentum, dampening: Of the velocity.
        dampen_first: Whether the first gradient is dampened, too.
        velocity: ``"plain"``, ``"rate inside"``, ``"chainer nesterov"``.
        nesterov: Whether the step looks ahead.
        betas: The weights of the old means; the first one alone for rules with one mean.
        eps, eps_form: ``"outside"`` of the root, ``"root"`` (in it), ``"unscaled"`` (beside the
            root of the mean before its bias correction).
        eps_root: Added inside the root, beside an epsilon outside of it.
        corrected: Which means have their bias corrected: ``"both"``, ``"none"``, ``"first"``,
            ``"second"``.
        amsgrad: ``""``, ``"plain"`` (largest mean before its correction), ``"corrected"`` (after
            it).
        centered: Whether the mean's square is taken off the squares, in RMSprop.
        lr_decay: By which Adagrad's learning rate falls.
        start: Where a sum or mean of squares starts.
        offset: What is added to the count.
        unused: ``"skipped"`` or ``"zeros"``: parameters without a gradient.
    """

    kind: str
    rate: Number = 1.0
    rate_from: int = 0
    factor: Number = 1.0
    gradient: str = "new"
    clip: str | None = None
    bound: float = 1.0
    clip_eps: float = 0.0
    decay: Number = 0.0
    decay_form: str = "l2"
    decay_first: bool = False
    momentum: Number = 0.0
    dampening: Number = 0.0
    dampen_first: bool = False
    velocity: str = "plain"
    nesterov: bool = False
    beta1: Number = 0.9
    beta2: Number = 0.999
    eps: Number = 1e-8
    eps_form: str = "outside"
    eps_root: Number = 0.0
    corrected: str = "both"
    amsgrad: str = ""
    centered: bool = False
    lr_decay: Number = 0.0
    start: Number = 0.0
    offset: int = 0
    unused: str = "skipped"

    def but(self, **changes: Any) -> Form:
        """The same with other conventions."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Trace:
    """The inputs and updates of a reference and a candidate: T steps, N elements of parameters.

    Attributes:
        names, sizes, axes: Of the parameters: neutral name, number of elements, number of axes.
        parameters, gradients: Before each step, ``(T, N)``; zero where there was no gradient.
        present: Whether there was one, ``(T, N)``.
        rates: The learning rate of each step, ``(T,)``; ones where it is not known.
        reference, candidate: What each added to the parameters, ``(T, N)``.
        form: The reference's own, where it is known.
        rest: Of the parameters that were left out: the sums of ``g * g``, ``g * p`` and ``p * p``,
            ``(T, 3)``.
        later: The learning rates after each step, which a side with a schedule of its own may have
            used.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    axes: Axes
    parameters: Array
    gradients: Array
    present: Array
    rates: Array
    reference: Array
    candidate: Array
    form: Form | None = None
    rest: Array | None = None
    later: Array | None = None

    @property
    def starts(self) -> Array:
        """Where each parameter's elements start."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(int)

    def by_parameter(self, values: Array) -> Array:
        """The sum of values over each parameter: ``(..., N)`` to ``(..., parameters)``."""
        return np.add.reduceat(values, self.starts, axis=-1)

    def spread(self, values: Array) -> Array:
        """One value for each parameter, given to each of its elements."""
        return np.repeat(values, self.sizes, axis=-1)

    def norms(self, values: Array) -> Array:
        """The norm of each parameter's values, given to each of its elements."""
        return self.spread(self.by_parameter(values * values) ** 0.5)


def form_of(rule: rules.Rule, hooks: Any = ()) -> Form | None:
    """Return the form of a neutral rule with pre-update hooks that clip.

    None where a hook is unknown.
    """
    standard = _FORMS.get(type(rule))
    if standard is None:
        return None
    form = _with_settings(standard, rule)
    for hook in hooks:
        if form.clip is not None:
            return None
        if type(hook) is ClipNorm:
            form = form.but(clip="norm", bound=hook.max_norm)
        elif type(hook) is ClipValue:
            form = form.but(clip="value", bound=hook.max_value)
        else:
            return None
    return form


def _with_settings(form: Form, rule: rules.Rule) -> Form:
    """A form with what a rule sets."""
    given = vars(rule)
    changes = {ours: given[name] for name, ours in _SETTINGS.items() if name in given}
    if "betas" in given:
        changes["beta1"], changes["beta2"] = given["betas"]
    if given.get("amsgrad"):
        changes["amsgrad"] = "plain"
    if given.get("decoupled_weight_decay"):
        changes["decay_form"] = "decoupled"
    return form.but(**changes)


# What settings of rules are called in a form.
_SETTINGS = {
    "weight_decay": "decay",
    "momentum": "momentum",
    "nesterov": "nesterov",
    "dampening": "dampening",
    "centered": "centered",
    "lr_decay": "lr_decay",
    "alpha": "beta2",
    "rho": "beta2",
    "eps": "eps",
}
_FORMS: Mapping[type, Form] = {
    rules.SGD: Form("sgd"),
    rules.Adam: Form("adam"),
    rules.AMSGrad: Form("adam"),
    rules.AdamW: Form("adam", decay_form="decoupled"),
    rules.RMSprop: Form("rmsprop"),
    rules.Adagrad: Form("adagrad"),
    rules.Adadelta: Form("adadelta", eps_form="root"),
    rules.Lion: Form("lion", decay_form="decoupled"),
}


def merged(forms: Sequence[Form | None], trace_sizes: tuple[int, ...]) -> Form | None:
    """Return one form for parameters that each have their own; numbers that differ become arrays.

    None if the forms do not fit together.
    """
    known = [form for form in forms if form is not None]
    if not known or len(known) < len(forms):
        return None
    first, changes = known[0], {}
    for name in vars(first):
        values = [getattr(form, name) for form in known]
        if any(value != values[0] for value in values):
            if not all(isinstance(value, float) for value in values):
                return None
            changes[name] = np.repeat(values, trace_sizes)
    return first.but(**changes)


# One run
# -----------------------------------------------------------------------------


def simulate(form: Form, trace: Trace) -> Array:
    """What an optimizer of this form adds to the parameters at each step, ``(T, N)``."""
    run = _Run(form, trace)
    with np.errstate(all="ignore"):
        return np.stack([run.step(t) for t in range(len(trace.rates))])


class _Run:
    """One optimizer of a form, over a trace."""

    def __init__(self, form: Form, trace: Trace) -> None:
        self.form, self.trace = form, trace
        self.state: Tensors = {}
        self.count = np.zeros(trace.parameters.shape[1])
        self.core = _CORES[form.kind]

    def step(self, t: int) -> Array:
        form, p, rates = self.form, self.trace.parameters[t], self.trace.rates
        used, g = self._used(t), self._gradient(t)
        self.count = self.count + used
        lr = form.rate * rates[min(max(t + form.rate_from, 0), len(rates) - 1)]
        new: Tensors = {}
        change = self._decayed(p, -self.core(self, p, g, lr, new), lr)
        self.state |= {name: np.where(used, value, self.get(name)) for name, value in new.items()}
        return np.where(used, change, 0.0)

    def _used(self, t: int) -> Array:
        present = self.trace.present[t]
        return np.ones_like(present) if self.form.unused == "zeros" else present

    def _gradient(self, t: int) -> Array:
        """The gradient as it comes to the rule: scaled, clipped, with decay."""
        form, trace, p = self.form, self.trace, self.trace.parameters[t]
        first = 0 if form.gradient == "accumulated" else t
        g = form.factor * trace.gradients[first : t + 1].sum(0)
        decay = form.decay * p if form.decay_form == "l2" else 0.0 * p
        if form.decay_first:
            both = np.where(self._used(t), g + decay, 0.0)
            return self._clipped(t, both, float(np.max(form.decay)))
        return self._clipped(t, g) + decay

    def _clipped(self, t: int, g: Array, decay: float = 0.0) -> Array:
        """Return the gradients within the bound.

        They include `decay` here, but the sums of the rest do not.
        """
        how, bound = self.form.clip, self.form.bound
        if how is None:
            return g
        if how == "value":
            return np.clip(g, -bound, bound)
        if how == "tensor":
            norm = self.trace.norms(g)
        else:
            factor, square = float(np.mean(self.form.factor)), (g * g).sum()
            if self.trace.rest is not None:
                gg, gp, pp = self.trace.rest[t]
                square = square + factor**2 * gg + 2 * factor * decay * gp + decay**2 * pp
            norm = square**0.5
        shrunk = np.minimum(1.0, bound / (norm + self.form.clip_eps))
        return g * np.nan_to_num(shrunk, nan=1.0)

    def _decayed(self, p: Array, change: Array, lr: Number) -> Array:
        """The change with decay that is decoupled from the gradient."""
        decay = self.form.decay
        if self.form.decay_form == "decoupled":
            return change - lr * decay * p
        return change - decay * p if self.form.decay_form == "absolute" else change

    def get(self, name: str, start: Number = 0.0) -> Array:
        """A part of the state."""
        if name not in self.state:
            self.state[name] = np.zeros_like(self.count) + start
        return self.state[name]

    @property
    def steps_counted(self) -> Array:
        return np.maximum(self.count + self.form.offset, 1.0)

    def correction(self, beta: Number, which: str) -> Array:
        """What the mean is divided by to have no bias."""
        if self.form.corrected not in ("both", which):
            return np.ones_like(self.count)
        return 1.0 - np.power(beta, self.steps_counted)

    def divisor(self, square: Array, correction: Number = 1.0) -> Array:
        """The root of a mean of squares, with its epsilon."""
        form = self.form
        if form.eps_form == "root":
            return (square / correction + form.eps) ** 0.5
        if form.eps_form == "unscaled":
            return (square**0.5 + form.eps) / correction**0.5
        return (square / correction + form.eps_root) ** 0.5 + form.eps

    def with_momentum(self, direction: Array, lr: Number, new: Tensors) -> Array:
        """The step, times the learning rate, of a velocity that follows a direction."""
        form, momentum = self.form, self.form.momentum
        if not np.any(momentum):
            return lr * direction
        first = (self.count <= 1) & (not form.dampen_first)
        dampened = direction * np.where(first, 1.0, 1.0 - form.dampening)
        old = self.get("velocity")
        if form.velocity == "plain":
            moved = new["velocity"] = momentum * old + dampened
            return lr * (direction + momentum * moved if form.nesterov else moved)
        moved = new["velocity"] = momentum * old + lr * dampened
        if form.velocity == "chainer nesterov":
            return (1 + momentum) * lr * direction + momentum**2 * moved
        return lr * direction + momentum * moved if form.nesterov else moved


def _sgd(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    return run.with_momentum(g, lr, new)


def _moments(run: _Run, g: Array, new: Tensors) -> tuple[Array, Array]:
    beta = run.form.beta1
    new["mean"] = beta * run.get("mean") + (1 - beta) * g
    return new["mean"], _squares(run, g, new)


def _squares(run: _Run, g: Array, new: Tensors) -> Array:
    """The mean of squares."""
    beta = run.form.beta2
    new["square"] = beta * run.get("square", run.form.start) + (1 - beta) * g * g
    return new["square"]


def _adam_step(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    mean, square = _moments(run, g, new)
    second = run.correction(run.form.beta2, "second")
    if run.form.amsgrad == "corrected":
        square, second = square / second, np.ones_like(second)
    if run.form.amsgrad:
        square = new["largest"] = np.maximum(run.get("largest"), square)
    first = run.correction(run.form.beta1, "first")
    return lr * mean / first / run.divisor(square, second)


def _lion(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    beta1, beta2, mean = run.form.beta1, run.form.beta2, run.get("mean")
    new["mean"] = beta2 * mean + (1 - beta2) * g
    return lr * np.sign(beta1 * mean + (1 - beta1) * g)


def _rmsprop(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    square, beta = _squares(run, g, new), run.form.beta2
    if run.form.centered:
        new["mean"] = beta * run.get("mean") + (1 - beta) * g
        square = square - new["mean"] ** 2
    return run.with_momentum(g / run.divisor(square), lr, new)


def _adagrad(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    total = new["square"] = run.get("square", run.form.start) + g * g
    lr = lr / (1.0 + (run.steps_counted - 1.0) * run.form.lr_decay)
    return run.with_momentum(g / run.divisor(total), lr, new)


def _adadelta(run: _Run, p: Array, g: Array, lr: Number, new: Tensors) -> Array:
    weight, eps, old = run.form.beta2, run.form.eps, run.get("delta")
    square = _squares(run, g, new)
    if run.form.eps_form == "root":
        delta = ((old + eps) / (square + eps)) ** 0.5 * g
    else:
        delta = (old**0.5 + eps) / (square**0.5 + eps) * g
    new["delta"] = weight * old + (1 - weight) * delta * delta
    return lr * delta


_CORES: Mapping[str, Callable[[_Run, Array, Array, Number, Tensors], Array]] = {
    "sgd": _sgd,
    "adam": _adam_step,
    "lion": _lion,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
}
