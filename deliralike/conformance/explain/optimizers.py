"""Why an optimizer's updates differ: the reference's rule is simulated with other conventions.

What the reference follows is known from its rule, or found from its updates. The conventions are
rows of a table; each is simulated on what both sides were fed, and compared with the candidate's
updates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.conventions import (
    LOG,
    WEIGHT,
    Changes,
    Convention,
    Trial,
    improved,
    plainest,
    search,
    with_numbers,
)
from deliralike.conformance.explain.updates import Form, Trace, simulate
from deliralike.conformance.findings import MATCH, Explanation

_SAME = 1e-9  # up to here a simulation is what was simulated
_FEW = 3  # steps that tell most conventions apart
_REFINED = 4  # of the nearest conventions that are tried with a number as well


def explain(trace: Trace) -> Explanation | None:
    """The cause of a candidate's updates; None where nothing can be said.

    Args:
        trace: What both were fed, and what they made of it.
    """
    if not np.isfinite(trace.candidate).all():
        return Explanation("updates that are not finite", np.inf)
    base = _reference_form(trace)
    if base is None:
        return _of_unknown(trace)
    judge = _Judge.of(trace, trace.candidate, base)
    if not judge.among.any():
        return None
    table = list(conventions(base, trace))
    trials = search(table, judge, np.inf, thorough=True, depth=3)
    nearest = sorted(trials, key=lambda trial: trial.distance)[:_REFINED]
    free = [one for one in table if one.number]
    for attempt in (_other_forms, _other_rules, partial(with_numbers, nearest, free)):
        if not any(trial.distance <= MATCH for trial in trials):
            trials += attempt(judge)
    met = [trial for trial in trials if trial.distance <= MATCH]
    if not met:
        return _unknown(judge)
    limit = max(_SAME, 10 * min(trial.distance for trial in met))
    causes = dict.fromkeys(judge.qualified(trial) for trial in met if trial.distance <= limit)
    ordered = sorted(causes, key=lambda cause: cause.endswith(" alone"))
    others = [trial.distance for trial in trials if trial.distance > limit]
    own = judge.distance(judge.residual({}))
    best = min(trial.distance for trial in met)
    return Explanation(", or ".join(ordered[:4]), best, min([*others, own]))


def _of_unknown(trace: Trace) -> Explanation:
    """Neither side says what it follows, and the reference is no known rule."""
    found, distance = identify(trace, trace.candidate)
    said = "the reference follows no known rule"
    if distance <= MATCH:
        said += f", the candidate {described(found)}"
    return Explanation(said, np.inf)


def _unknown(judge: _Judge) -> Explanation:
    """The element whose updates are farthest apart, with its numbers side by side."""
    trace = judge.trace
    apart = np.abs(trace.candidate - trace.reference) / trace.spread(judge.size)
    step, place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    position = int(np.searchsorted(trace.starts, place, side="right")) - 1
    numbers = {
        "parameter": trace.parameters[step, place],
        "gradient": trace.gradients[step, place],
        "learning rate": trace.rates[step],
        "update": trace.candidate[step, place],
    }
    shown = ", ".join(f"{name} {value:.9g}" for name, value in numbers.items())
    name, element = trace.names[position], place - trace.starts[position]
    wanted = f"{trace.reference[step, place]:.9g}"
    said = f"{name}[{element}] at step {step + 1}: {shown} instead of {wanted}"
    return Explanation(said, np.inf)


# What executes forms
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """Simulated updates against those of one side, relative, step by step.

    Attributes:
        trace: What was fed.
        target: The updates.
        base: What conventions change.
        size: Of each parameter's updates, by step.
        among: The parameters that are compared.
    """

    trace: Trace
    target: np.ndarray
    base: Form
    size: np.ndarray
    among: np.ndarray

    data = 1000  # there are steps and elements enough for any few numbers

    @classmethod
    def of(
        cls, trace: Trace, target: np.ndarray, base: Form, among: np.ndarray | None = None
    ) -> _Judge:
        """For all parameters that do not behave as the base does, or those that are named."""
        sizes = [
            trace.by_parameter(x * x) ** 0.5 for x in (target, trace.reference, trace.parameters)
        ]
        largest = np.maximum(sizes[0], sizes[1])
        floor = 1e-3 * np.maximum(sizes[2], np.finfo(float).tiny)  # where neither moved
        size = np.where(largest > 0, largest, floor)
        every = cls(trace, target, base, size, np.ones(len(trace.names), bool))
        if among is None:
            among = every.by_parameter({}) > _SAME
        return cls(trace, target, base, size, among)

    def residual(self, changes: Changes, steps: int | None = None) -> np.ndarray:
        updates = simulate(self.base.but(**changes), self.trace, steps)
        count = len(updates)
        apart = (updates - self.target[:count]) / self.trace.spread(self.size[:count])
        apart = np.nan_to_num(apart, nan=1e3, posinf=1e3, neginf=-1e3)
        return apart[:, self.trace.spread(self.among)]

    def distance(self, residual: np.ndarray) -> float:
        """The root mean square over steps and parameters; at most 10."""
        starts = np.cumsum([0, *np.array(self.trace.sizes)[self.among][:-1]])
        squares = np.add.reduceat(residual**2, starts, axis=1)
        return float(np.sqrt(np.minimum(squares, 100.0).mean()))

    def bound(self, changes: Changes) -> float:
        share = _FEW / len(self.trace.rates)
        return self.distance(self.residual(changes, _FEW)) * share**0.5

    def by_parameter(self, changes: Changes) -> np.ndarray:
        """The distance of each parameter, of all."""
        updates = simulate(self.base.but(**changes), self.trace)
        apart = (updates - self.target) / self.trace.spread(self.size)
        squares = self.trace.by_parameter(np.nan_to_num(apart, nan=1e3) ** 2)
        return np.sqrt(np.minimum(squares, 100.0).mean(0))

    def qualified(self, trial: Trial) -> str:
        """The cause, with the parameters that it concerns where others follow the reference."""
        if self.among.all() or (self.by_parameter(trial.changes) <= MATCH).all():
            return trial.cause
        return f"{trial.cause}, of {self._concerned()} alone"

    def _concerned(self) -> str:
        vectors = np.array(self.trace.axes) < 2
        if np.array_equal(self.among, vectors):
            return "biases and other vectors"
        if np.array_equal(self.among, ~vectors):
            return "parameters with several axes"
        names = list(itertools.compress(self.trace.names, self.among))
        return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


# The table
# -----------------------------------------------------------------------------

_MOMENTS = ("adam", "nadam", "radam", "adamax", "lamb")
_ROOTS = (*_MOMENTS, "rmsprop", "adagrad", "adadelta")
_BETAS = (*_MOMENTS, "lion")
_VELOCITY = ("sgd", "rmsprop")
_ALL = (*_ROOTS, "sgd", "lion")

_EPS_FORMS = {
    "outside": "epsilon outside of the root",
    "root": "epsilon inside the root",
    "root squared": "epsilon squared inside the root",
    "unscaled": "epsilon unscaled: added before the bias correction, as in Chainer",
}
_DECAY_FORMS = {
    "l2": "weight decay coupled: as L2, into the gradient",
    "decoupled": "weight decay decoupled from the gradient, as in AdamW",
    "absolute": "weight decay decoupled and not times the learning rate",
    "first rate": "weight decay times the first learning rate instead of the scheduled one",
    "after": "weight decay after the update",
    "sign": "weight decay as L1: by the sign of the parameter",
}
_VELOCITIES = {
    "plain": "the learning rate outside of the velocity",
    "rate inside": "the learning rate inside the velocity",
    "chainer nesterov": "Nesterov in the form of Chainer's NesterovAG",
    "late": "the velocity of the step before",
}
_CLIPS = {
    "norm": "clipping by the joint norm",
    "tensor": "clipping per tensor: each gradient by its own norm",
    "value": "clipping by value instead of norm",
    "always": "gradients scaled to the norm always, from below too",
    "squared norm": "clipping by the squared norm: its root was forgotten",
}
_AMSGRADS = {"": "no amsgrad", "plain": "amsgrad", "corrected": "amsgrad of corrected means"}
_CORRECTIONS = {
    "none": "no bias correction",
    "first": "no bias correction of the second mean",
    "second": "no bias correction of the first mean",
}
_COUNTS = {
    "all": "one step count for all parameters, which unused ones follow",
    "each": "one step count that each parameter moves on",
}


@dataclass(frozen=True)
class _Row:
    """Other values of one setting.

    Attributes:
        setting: Of a form.
        values: With what a report says of each.
        kinds: The rules that have the setting.
        needs: A setting without which it means nothing; empty for none.
    """

    setting: str
    values: Mapping[Any, str]
    kinds: tuple[str, ...] = _ALL
    needs: str = ""


_ROWS = (
    _Row("clip", {None: "no clipping of gradients", **_CLIPS}, needs="clip"),
    _Row("clip_eps", {1e-6: "clipping to bound / (norm + 1e-6)"}, needs="clip"),
    _Row("rate", {0.0: "no update at all"}),
    _Row("gradient", {"accumulated": "gradients that are never cleared and add up"}),
    _Row("gradient", {"stale": "the gradient of the step before"}),
    _Row("decay", {0.0: "no weight decay"}, needs="decay"),
    _Row("decay_form", _DECAY_FORMS, needs="decay"),
    _Row(
        "decay_form",
        {"decoupled": "weight decay outside of the ratio of norms"},
        ("lamb",),
        "decay",
    ),
    _Row("velocity", _VELOCITIES, _VELOCITY, "momentum"),
    _Row("eps_form", _EPS_FORMS, _MOMENTS),
    _Row("eps_form", dict(list(_EPS_FORMS.items())[:3]), ("rmsprop", "adagrad", "adadelta")),
    _Row("eps", {0.0: "no epsilon"}, _ROOTS),
    _Row("start", {1.0: "squares that start at 1 instead of 0"}, _ROOTS),
    _Row("start", {0.1: "squares that start at 0.1 instead of 0"}, _ROOTS),
    _Row("centered", {True: "centered: the squared mean is subtracted"}, ("rmsprop",)),
    _Row("trust", {"none": "no ratio of norms"}, ("lamb",)),
    _Row("rate_from", {-1: "schedule one step late: the learning rate of the step before"}),
    _Row("rate_from", {1: "schedule one step early: the learning rate of the step after"}),
    _Row(
        "unused",
        {"zeros": "unused parameters updated, with gradients of zero: decay and momentum go on"},
    ),
    _Row("zero", {"skipped": "parameters left out whose gradient is zero everywhere"}),
    _Row("memory", {"forgotten": "the optimizer's state forgotten after each step"}),
    _Row("corrected", _CORRECTIONS, _MOMENTS),
    _Row("offset", {1: "step count off by one: one too many"}, _MOMENTS),
    _Row("offset", {-1: "step count off by one: one too few"}, _MOMENTS),
    _Row("count", _COUNTS, _MOMENTS),
    _Row("correction_dtype", {"float32": "bias correction in float32"}, _MOMENTS),
    _Row("amsgrad", _AMSGRADS, _MOMENTS),
)


def conventions(form: Form, trace: Trace) -> Iterator[Convention]:
    """Known ones that differ from a form's own, the likely ones first."""
    for row in _ROWS:
        if form.kind not in row.kinds or (row.needs and not np.any(getattr(form, row.needs))):
            continue
        for value, cause in row.values.items():
            if not np.array_equal(getattr(form, row.setting), value):
                yield Convention(cause, {row.setting: value})
    yield from _of_values(form, trace)
    yield from numbers(form)


def _of_values(form: Form, trace: Trace) -> Iterator[Convention]:
    """Conventions that are made of the form's own values."""
    yield Convention(
        "gradient ascent: the sign of the gradient is flipped", {"factor": -form.factor}
    )
    if np.any(form.decay):
        vectors = trace.spread(np.array(trace.axes)) < 2
        every = float(np.max(form.decay))
        of_matrices = np.where(vectors, 0.0, form.decay)
        yield Convention("weight decay with the wrong sign", {"decay": -1.0 * form.decay})
        yield Convention("no weight decay of biases and other vectors", {"decay": of_matrices})
        yield Convention("weight decay of biases and other vectors too", {"decay": every})
    if np.any(form.decay) and form.clip is not None:
        first = {"decay_first": True, "decay_form": "l2"}
        yield Convention("decay before clipping: the clipped gradient holds it", first)
    if form.kind in _VELOCITY and np.any(form.momentum):
        yield Convention("no momentum", {"momentum": 0.0, "nesterov": False})
        mean = "dampening: the velocity is a mean, (1 - momentum) g"
        after, from_start = {"dampening": form.momentum}, {"dampen_first": True}
        yield Convention(f"{mean}, after the first gradient", after)
        yield Convention(f"{mean}, from the first step on", {**after, **from_start})
        words = "Nesterov lost: plain momentum"
        words = words if form.nesterov else "Nesterov momentum instead of the plain one"
        yield Convention(words, {"nesterov": not form.nesterov})
    if form.kind in _MOMENTS:
        words = "Nesterov's momentum in Adam's mean, as in NAdam"
        yield Convention(words, {"nesterov": not form.nesterov})
    if form.kind in _BETAS:
        swapped = {"beta1": form.beta2, "beta2": form.beta1}
        yield Convention("beta1 and beta2 swapped", swapped)


_TIMES = (1e-3, 0.03, 0.3, 0.9, 1.1, 3.0, 30.0, 1e3)
_DECADES = tuple(10.0**power for power in range(-12, 0))
_WEIGHTS = (0.0, 0.5, 0.9, 0.99, 0.999)
# Numbers that are searched for: the setting, its name in a report, its axis, where searches begin,
# and the rules that have it.
_NUMBERS = (
    ("decay", "weight_decay", LOG, (1e-6, 1e-4, 1e-2, 0.1, 0.3), _ALL),
    ("momentum", "momentum", WEIGHT, (0.3, 0.8, 0.95, 0.99), _VELOCITY),
    ("dampening", "dampening", WEIGHT, (0.1, 0.5, 0.9), _VELOCITY),
    ("beta1", "beta1", WEIGHT, _WEIGHTS, _BETAS),
    ("beta2", "beta2", WEIGHT, _WEIGHTS, (*_BETAS, "rmsprop", "adadelta")),
    ("eps", "eps", LOG, _DECADES, _ROOTS),
    ("eps_root", "eps_root", LOG, _DECADES, _MOMENTS),
    ("start", "squares that start at", LOG, (1e-3, 0.1, 1.0, 10.0), _ROOTS),
)
_SQUARES = {"rmsprop": "alpha", "adadelta": "rho"}  # names of their weight of squares


def numbers(form: Form) -> Iterator[Convention]:
    """Those that matter to a form; one that differs between parameters is multiplied."""
    sums = "gradients times {} (a sum for a mean, or the other way round)"
    yield Convention("learning rate times {}", {}, "rate", _TIMES, LOG, usual=form.rate)
    yield Convention(sums, {}, "factor", _TIMES, LOG, usual=form.factor)
    for setting, name, axis, starts, kinds in _NUMBERS:
        if form.kind in kinds:
            name = _SQUARES.get(form.kind, name) if setting == "beta2" else name
            yield _number(form, setting, name, axis, starts)
    if not np.any(form.decay):
        words = "weight_decay={} decoupled from the gradient, as in AdamW, instead of none"
        yield Convention(words, {"decay_form": "decoupled"}, "decay", (1e-4, 1e-2), LOG)
    if form.clip is not None:
        yield _number(form, "bound", "clipping bound", LOG, (1e-3, 0.1, 0.5, 2.0, 10.0))
    for how, cause in _CLIPS.items() if form.clip is None else ():
        words = f"{cause}, bound {{}}, where the reference does not clip"
        yield Convention(words, {"clip": how}, "bound", (1e-3, 0.03, 1.0, 30.0), LOG)


def _number(form: Form, setting: str, name: str, axis: Any, starts: Sequence[float]) -> Convention:
    usual = getattr(form, setting)
    if np.ndim(usual):
        return Convention(f"{name} times {{}}", {}, setting, (0.5, 2.0), LOG, usual=usual)
    sign = " " if name.endswith("at") else "="
    own = (float(usual),) if usual else ()
    words = f"{name}{sign}{{}} instead of {usual:.6g}"
    return Convention(words, {}, setting, tuple(dict.fromkeys((*own, *starts))), axis)


# Which rule
# -----------------------------------------------------------------------------

_STARTS = (
    Form("sgd"),
    Form("sgd", momentum=0.9),
    Form("sgd", momentum=0.9, nesterov=True),
    Form("sgd", momentum=0.9, velocity="rate inside"),
    Form("adam"),
    Form("adam", eps_form="unscaled"),
    Form("adam", amsgrad="plain"),
    Form("nadam"),
    Form("radam"),
    Form("adamax"),
    Form("rmsprop", beta2=0.99),
    Form("rmsprop", beta2=0.99, eps_form="root"),
    Form("rmsprop", beta2=0.99, momentum=0.9),
    Form("adagrad", eps=1e-10),
    Form("adagrad", eps=1e-7, start=0.1, eps_form="root"),
    Form("adadelta", beta2=0.9, eps=1e-6, eps_form="root"),
    Form("lion", beta1=0.9, beta2=0.99, decay_form="decoupled"),
    Form("lamb", eps=1e-6, decay_form="inside"),
)
# What the same rule may be in several ways at once.
_CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "sgd": {"velocity": ("plain", "rate inside"), "nesterov": (False, True)},
    "adam": {
        "eps_form": ("outside", "root", "unscaled"),
        "corrected": ("both", "none"),
        "amsgrad": ("", "plain"),
    },
    "rmsprop": {
        "eps_form": ("outside", "root"),
        "velocity": ("plain", "rate inside"),
        "start": (0.0, 1.0),
    },
    "adagrad": {"eps_form": ("outside", "root"), "start": (0.0, 0.1)},
    "adadelta": {"eps_form": ("root", "outside")},
    "lamb": {"eps_form": ("outside", "root"), "trust": ("layer", "none")},
}


def _other_forms(judge: _Judge) -> Iterator[Trial]:
    """Several conventions and all numbers at a time, of the same rule."""
    base, starts = judge.base, []
    choices = _CHOICES.get(base.kind, {})
    for values in itertools.product(*choices.values()):
        form = base.but(**dict(zip(choices, values, strict=True)))
        starts.append(form.but(decay=0.0, decay_form=base.decay_form))
        decay = base.decay if np.any(base.decay) else 0.01
        for how in dict.fromkeys((base.decay_form, "l2", "decoupled")):
            starts.append(form.but(decay=decay, decay_form=how))
    found, distance = identify(judge.trace, judge.target, judge.among, starts)
    changes = {
        name: value
        for name, value in vars(found).items()
        if not _is_same(value, getattr(base, name))
    }
    causes = [_cause(name, value, base) for name, value in changes.items()]
    yield Trial("; and ".join(causes), changes, distance)


def _cause(name: str, value: Any, base: Form) -> str:
    """What a report says of a setting that is not the reference's."""
    for row in _ROWS:
        if row.setting == name and isinstance(value, str) and value in row.values:
            return row.values[value]
    known = {one.number: one for one in numbers(base)}
    if name in known and not np.ndim(value):
        return known[name].said(value)
    return f"{name}={_shown(value)} instead of {_shown(getattr(base, name))}"


def _is_same(value: Any, usual: Any) -> bool:
    if isinstance(value, float):
        return bool(np.allclose(value, usual, rtol=1e-9, atol=0.0))
    return np.array_equal(value, usual)


def _other_rules(judge: _Judge) -> Iterator[Trial]:
    starts = [form.but(clip=judge.base.clip, bound=judge.base.bound) for form in _STARTS]
    found, distance = identify(judge.trace, judge.target, judge.among, starts)
    yield Trial(f"{described(found)} instead of {judge.base.kind}", vars(found), distance)


def identify(
    trace: Trace,
    target: np.ndarray,
    among: np.ndarray | None = None,
    starts: Sequence[Form] | None = None,
) -> tuple[Form, float]:
    """The rule, with its numbers, whose updates are nearest to these; and how far it is.

    Args:
        trace: What the optimizer was fed.
        target: Its updates.
        among: The parameters to look at; all when None.
        starts: Forms whose numbers are improved; all usual rules, with decay, when None.
    """
    chosen = np.ones(len(trace.names), bool) if among is None else among
    forms = list(_STARTS if starts is None else starts)
    for how in ("l2", "decoupled") if starts is None else ():
        forms += [form.but(decay=0.01, decay_form=how) for form in _STARTS]
    rough: list[tuple[float, Form]] = []
    for form in forms:
        judge = _Judge.of(trace, target, form, chosen)
        rough.append(_settled(judge, 6))
        if rough[-1][0] <= _SAME:
            break
    rough.sort(key=lambda one: one[0])
    best = [_settled(_Judge.of(trace, target, form, chosen), 40) for _, form in rough[:4]]
    distance, form = min(best, key=lambda one: one[0])
    return form, distance


def _settled(judge: _Judge, iterations: int) -> tuple[float, Form]:
    """A form with better numbers: all that are not zero."""
    form = judge.base
    free = [
        one
        for one in numbers(form)
        if not one.changes and one.number != "factor" and _is_number(getattr(form, one.number))
    ]
    values = [1.0 if one.usual is not None else getattr(form, one.number) for one in free]

    def changed(found: Sequence[float]) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for one, value in zip(free, found, strict=True):
            changes |= one.at(value)
        return changes

    def distance(found: Sequence[float]) -> float:
        return judge.distance(judge.residual(changed(found)))

    axes = [one.axis for one in free]
    values = improved(lambda found: judge.residual(changed(found)), values, axes, iterations)
    values = plainest(values, distance)
    return distance(values), form.but(**changed(values))


def _is_number(value: Any) -> bool:
    return not np.ndim(value) and bool(value)


def _reference_form(trace: Trace) -> Form | None:
    """The reference's own form if it reproduces its updates, else one that does, else None.

    A clipping that the reference does not tell is looked for, too.
    """
    if trace.form is not None:
        judge = _Judge.of(trace, trace.reference, trace.form)
        if not judge.among.any():
            return trace.form
    form, distance = identify(trace, trace.reference)
    for how in ("norm", "value") if distance > MATCH else ():
        starts = [form.but(clip=how, bound=bound) for form in _STARTS[:6] for bound in (0.1, 1.0)]
        starts += [start.but(decay=0.01) for start in starts]
        form, distance = identify(trace, trace.reference, starts=starts)
        if distance <= MATCH:
            break
    return form if distance <= MATCH else None


def described(form: Form) -> str:
    """A form in a few words: ``"rmsprop(beta2=0.99, eps=1e-08)"``; what is standard is left out."""
    standard = vars(Form(form.kind))
    known = {one.number for one in numbers(form)} - {
        "factor",
        "dampening",
        "start",
        "decay",
        "bound",
    }
    shown = [
        f"{name}={_shown(value)}"
        for name, value in vars(form).items()
        if name in known or not np.array_equal(value, standard[name])
    ]
    return f"{form.kind}({', '.join(one for one in shown if not one.startswith('kind='))})"


def _shown(value: Any) -> str:
    """A number as a report writes it."""
    if np.ndim(value):
        return " or ".join(f"{each:.6g}" for each in np.unique(value)[:3])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
