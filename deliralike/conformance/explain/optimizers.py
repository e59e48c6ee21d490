"""Why an optimizer's updates differ: the reference's rule is simulated with other conventions.

What the reference follows is known from its settings. The conventions are rows of a table; each is
simulated on what both sides were fed, and compared with the candidate's updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from deliralike.conformance.causes import in_words
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    rules,
)
from deliralike.conformance.explain.trials import Executor, Trial, number, run
from deliralike.conformance.explain.updates import Form, Trace, simulate
from deliralike.conformance.findings import Explanation
from deliralike.conformance.kinds import Named

_SAME = 1e-9  # up to here a simulation is what was simulated
_CAUSES = 4  # that fit equally and are named
_MOST = 1e3  # in the place of what is not finite


def explain(trace: Trace) -> Explanation | None:
    """The cause of a candidate's updates; None where nothing can be said.

    Args:
        trace: What both were fed, and what they made of it.
    """
    if not np.isfinite(trace.candidate).all():
        return Explanation("updates that are not finite", np.inf)
    base = trace.form
    if base is None or _Bench(trace, trace.reference, base).itself > _SAME:
        text = (
            "the rule of the reference is not known, or is not one for all parameters"
        )
        return Explanation(f"{text}; {_farthest(trace)}", np.inf)
    bench = _Bench(trace, trace.candidate, base)
    if bench.itself <= _SAME:
        return None
    own = _of_settings(bench)
    if own is not None:
        return own
    table = conventions(base, trace)
    return _explanation(bench, list(run(table, bench, bench.formula)))


def form_of_groups(trace: Trace, forms: Sequence[Form]) -> Form | None:
    """The form of an optimizer with these for its parameter groups; None where it is not known.

    Which of two groups holds the biases and other vectors is seen in the reference's updates.
    """
    if len(forms) != 2:
        return forms[0] if len(forms) == 1 else None
    vectors = trace.spread(trace.are_vectors)
    for one, other in (forms, forms[::-1]):
        changes = dict(one.changes)
        for name, value in one.changes.items():
            beside = getattr(other, name)
            if isinstance(value, float) and value != beside:
                changes[name] = np.where(vectors, value, beside)
        form = Form(one.kind, changes)
        if _Bench(trace, trace.reference, form).itself <= _SAME:
            return form
    return None


def _of_settings(bench: _Bench) -> Explanation | None:
    """The settings that differ, where the candidate's are known and give its updates."""
    base, other = bench.base, bench.trace.other
    if other is None or other.kind is not base.kind:
        return None
    match = bench.distance(lambda nn, given: simulate(other, bench.trace))
    if match > _SAME:
        return None
    causes = []
    for name in dict.fromkeys((*base.changes, *other.changes)):
        usual, value = getattr(base, name), getattr(other, name)
        if np.ndim(usual) or np.ndim(value):
            return None  # of parameter groups: the table has the words for it
        if not np.array_equal(usual, value):
            words = _WORDS_OF.get((name, value))
            if name == "bound" and base.clip is None:
                usual = None
            causes.append(words or in_words(name, value, usual))
    return Explanation("; ".join(causes), match, bench.itself) if causes else None


def _explanation(bench: _Bench, trials: Sequence[Trial]) -> Explanation:
    """All that fit equally well."""
    met = [trial for trial in trials if trial.is_met]
    if not met:
        return Explanation(_farthest(bench.trace), np.inf)
    best = min(trial.distance for trial in met)
    limit = max(_SAME, 10 * best)
    causes = dict.fromkeys(one.cause for one in met if one.distance <= limit)
    others = [trial.distance for trial in trials if trial.distance > limit]
    return Explanation(
        ", or ".join(list(causes)[:_CAUSES]), best, min([*others, bench.itself])
    )


def _farthest(trace: Trace) -> str:
    """The element whose updates are farthest apart, with its numbers side by side."""
    size = np.abs(trace.reference).max(axis=1, keepdims=True) + np.finfo(float).tiny
    apart = np.abs(trace.candidate - trace.reference) / size
    at = step, place = np.unravel_index(int(np.argmax(apart)), apart.shape)
    position = int(np.searchsorted(trace.starts, place, side="right")) - 1
    text = f"{trace.names[position]}[{place - trace.starts[position]}] at step {step + 1}: "
    text += f"parameter {trace.parameters[at]:.9g}, gradient {trace.gradients[at]:.9g}, update "
    return f"{text}{trace.candidate[at]:.9g} instead of {trace.reference[at]:.9g}"


# What executes forms
# -----------------------------------------------------------------------------


class _Bench(Executor):
    """Simulated updates against those of one side, relative to each parameter's, step by step."""

    data = 1000  # there are steps and elements enough for any few numbers

    def __init__(self, trace: Trace, target: np.ndarray, base: Form) -> None:
        """Compare changes of a form with updates."""
        self.trace, self.target, self.base = trace, target, base
        # A formula is told other values of what the base changes, or of other settings.
        self.given = base.changes
        candidate_size, reference_size, whole = (
            trace.by_parameter(x * x) ** 0.5
            for x in (target, trace.reference, trace.parameters)
        )
        floor = 1e-3 * np.maximum(whole, np.finfo(float).tiny)  # where neither moved
        size = np.maximum(candidate_size, reference_size)
        self.size = trace.spread(np.where(size > 0, size, floor))

    def formula(self, nn: Any, given: Arguments) -> np.ndarray:
        """The updates of a form: `nn` is not used."""
        return simulate(Form(self.base.kind, given), self.trace)

    def distance(self, formula: Formula) -> float:
        """The root mean square over steps and parameters, of relative differences; at most 10."""
        apart = (formula(np, self.given) - self.target) / self.size
        squares = self.trace.by_parameter(np.nan_to_num(apart, nan=_MOST) ** 2)
        return float(np.sqrt(np.minimum(squares, 100.0).mean()))

    @cached_property
    def itself(self) -> float:
        """The distance of the base."""
        return self.distance(self.formula)


# The table
# -----------------------------------------------------------------------------

# Other values of one setting, with what a report says of each; rules without the setting have none.
_ROWS: Sequence[tuple[str, Named]] = (
    (
        "clip",
        {
            "no clipping of gradients": None,
            "clipping by the joint norm": "norm",
            "clipping per tensor: each gradient by its own norm": "tensor",
            "clipping by value instead of norm": "value",
        },
    ),
    ("weight_decay", {"no weight decay": 0.0}),
    (
        "decay_form",
        {
            "weight decay coupled: as L2, into the gradient": "l2",
            "weight decay decoupled from the gradient, as in AdamW": "decoupled",
            "weight decay decoupled and not times the learning rate": "absolute",
        },
    ),
    (
        "velocity",
        {
            "the learning rate outside of the velocity": "plain",
            "the learning rate inside the velocity": "rate inside",
            "Nesterov in the form of Chainer's NesterovAG": "chainer nesterov",
        },
    ),
    (
        "eps_form",
        {
            "epsilon outside of the root": "outside",
            "epsilon inside the root": "root",
            "epsilon unscaled: added before the bias correction, as in Chainer": "unscaled",
        },
    ),
    ("eps", {"no epsilon": 0.0}),
    (
        "corrected",
        {
            "no bias correction": "none",
            "no bias correction of the second mean": "first",
            "no bias correction of the first mean": "second",
        },
    ),
    (
        "offset",
        {
            "step count off by one: one too many": 1,
            "step count off by one: one too few": -1,
        },
    ),
    (
        "amsgrad",
        {
            "no amsgrad": False,
            "amsgrad": True,
        },
    ),
    (
        "centered",
        {"squares that are not centered": False, "squares centered": True},
    ),
    ("rate", {"no update at all": 0.0}),
    (
        "rate_from",
        {
            "schedule one step late: the learning rate of the step before": -1,
            "schedule one step early: the learning rate of the step after": 1,
        },
    ),
    ("gradient", {"gradients that are never cleared and add up": "accumulated"}),
    (
        "unused",
        {
            "unused parameters updated, with gradients of zero: decay and momentum go on": "zeros"
        },
    ),
)
_WORDS_OF = {
    (name, value): words for name, values in _ROWS for words, value in values.items()
}


def conventions(form: Form, trace: Trace) -> Iterator[Convention]:
    """Known ones that differ from a form's own, the likely ones first."""
    absent = [] if form.clip else ["clip"]
    if not np.any(form.weight_decay):
        absent += ["weight_decay", "decay_form"]
    for name, values in _ROWS:
        if form.has(name) and name not in absent:
            own = getattr(form, name)
            others = {
                words: v for words, v in values.items() if not np.array_equal(own, v)
            }
            yield rules("", {words: {name: value} for words, value in others.items()})
    yield rules("", dict(_of_values(form, trace)))
    sums = "a sum for a mean, or the other way round: gradients times"
    yield number("learning rate times", "rate", _TIMES, unit=form.rate)
    yield number(sums, "factor", _TIMES, unit=form.factor)
    for name, starts in _NUMBERS.items():
        usual = getattr(form, name) if form.has(name) else None
        if usual is not None and np.ndim(usual) == 0:
            yield number(name, name, starts, usual=usual)


def _of_values(form: Form, trace: Trace) -> Iterator[tuple[str, Named]]:
    """Conventions that are made of the form's own values."""
    yield (
        "gradient ascent: the sign of the gradient is flipped",
        {"factor": -form.factor},
    )
    decay = form.weight_decay
    if np.any(decay):
        vectors = trace.spread(trace.are_vectors)
        of_matrices = {"weight_decay": np.where(vectors, 0.0, decay)}
        yield "no weight decay of biases and other vectors", of_matrices
        every = {"weight_decay": float(np.max(decay))}
        yield "weight decay of biases and other vectors too", every
        if form.clip is not None:
            first = {"decay_first": True, "decay_form": "l2"}
            yield "decay before clipping: the clipped gradient holds it", first
    if form.has("momentum") and np.any(form.momentum):
        yield "no momentum", {"momentum": 0.0, "nesterov": False}
        mean = "dampening: the velocity is a mean, (1 - momentum) g"
        after = {"dampening": form.momentum}
        yield f"{mean}, after the first gradient", after
        yield f"{mean}, from the first step on", {**after, "dampen_first": True}
        words = "Nesterov momentum instead of the plain one"
        if form.nesterov:
            words = "Nesterov lost: plain momentum"
        yield words, {"nesterov": not form.nesterov}
    if form.has("beta1"):
        yield "beta1 and beta2 swapped", {"beta1": form.beta2, "beta2": form.beta1}


_TIMES = (1e-3, 0.03, 0.3, 0.9, 1.1, 3.0, 30.0, 1e3)
# Settings of a rule that are searched for, and where.
_NUMBERS: Mapping[str, Sequence[float]] = {
    "weight_decay": (1e-6, 1e-4, 1e-2, 0.1, 0.3),
    "eps": (1e-10, 1e-7, 1e-4, 1e-2),
    **dict.fromkeys(("momentum", "alpha", "beta1", "beta2"), (0.5, 0.9, 0.99, 0.999)),
}
