"""Why an optimizer's updates differ: the reference's rule is simulated with known mistakes.

What the reference follows is known from its rule, or found from its updates. One convention is
changed at a time, then two; numbers are searched for. The change whose updates are nearest to the
candidate's is the cause.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.conformance.explain.updates import Form, Trace, simulate
from deliralike.conformance.findings import MATCH, Explanation

Changes = Mapping[str, Any]
_SAME = 1e-9  # up to here a simulation is what was simulated
_IN_PAIRS, _REFINED = (
    60,
    4,
)  # of changes that are tried two at a time; of the nearest ones, with numbers searched for


def explain(trace: Trace) -> Explanation | None:
    """The cause of a candidate's updates; None where nothing can be said.

    Args:
        trace: What both were fed, and what they made of it.
    """
    if not np.isfinite(trace.candidate).all():
        return Explanation("updates that are not finite", float("inf"))
    base = _reference_form(trace)
    if base is None:
        found = identify(trace, trace.candidate)
        return Explanation(f"the candidate following {described(found.form)}", found.distance)
    return _Search(trace, base).explanation()


def explain_schedule(reference: np.ndarray, candidate: np.ndarray) -> Explanation:
    """Return the cause of other learning rates: such as late, scaled or never applied.

    Both arrays hold one rate for each step.
    """
    steps = np.arange(len(reference))
    size = float(np.linalg.norm(candidate)) or 1.0
    found = []
    for cause, source, factor in _schedules(reference, candidate, steps):
        inside = (source >= 0) & (source < len(reference))
        rates = factor * reference[np.clip(source, 0, len(reference) - 1)]
        found.append((float(np.linalg.norm((rates - candidate)[inside])) / size, cause))
    (match, cause), following = _nearest(found)
    return Explanation(cause, match, following)


def _schedules(
    reference: np.ndarray, candidate: np.ndarray, steps: np.ndarray
) -> Iterator[tuple[str, Any, Any]]:
    """Causes, with the step whose rate is taken at each step, and a factor."""
    moved = _first_change(candidate) - _first_change(reference)
    for shift in dict.fromkeys((1, -1, moved, 2, -2)):
        direction = "late" if shift > 0 else "early"
        amount = "one step" if abs(shift) == 1 else f"{abs(shift)} steps"
        yield f"schedule {amount} {direction}", np.maximum(steps - shift, 0), 1.0
    yield "schedule never applied: the learning rate stays", steps * 0, 1.0
    ratio = candidate[0] / reference[0] if reference[0] else 1.0
    yield f"learning rate times {ratio:.6g}", steps, ratio
    for stretch in dict.fromkeys((2, 10, 100, _ratio_of_changes(candidate, reference))):
        yield (
            f"schedule {stretch} times as slow, as if counted in other units",
            steps // stretch,
            1.0,
        )
    for stretch in dict.fromkeys((2, 10, 100, _ratio_of_changes(reference, candidate))):
        yield (
            f"schedule {stretch} times as fast, as if counted in other units",
            steps * stretch,
            1.0,
        )
    with np.errstate(all="ignore"):
        powers = np.log(candidate / candidate[0]) / np.log(reference / reference[0])
        known = powers[np.isfinite(powers)]
        power = float(np.median(known)) if known.size else 1.0
        bent = (reference / reference[0]) ** (power - 1.0)
        yield (
            f"schedule with other factors: each is the reference's to the power of {power:.6g}",
            steps,
            bent,
        )
    differing = np.flatnonzero(candidate != reference)
    start = int(differing[-1]) + 1 if differing.size else 0
    if 0 < start < len(steps) // 2:
        ratios = np.where(steps < start, candidate / np.where(reference, reference, 1.0), 1.0)
        yield (
            f"schedule that differs in the first {start} steps alone, as a warm-up does",
            steps,
            ratios,
        )


def _first_change(rates: np.ndarray) -> int:
    changes = np.flatnonzero(np.diff(rates))
    return int(changes[0]) + 1 if changes.size else 0


def _ratio_of_changes(slow: np.ndarray, fast: np.ndarray) -> int:
    return max(2, round(_first_change(slow) / max(_first_change(fast), 1)))


def _nearest(found: Sequence[tuple[float, str]]) -> tuple[tuple[float, str], float | None]:
    """Return the nearest with its cause, and the distance of the next one.

    Causes that match as well are named beside it.
    """
    ordered = sorted(found, key=lambda one: one[0])  # stable: of equal ones the first
    best, limit = ordered[0], max(_SAME, 10 * ordered[0][0]) if ordered[0][0] <= MATCH else -1.0
    equal = [cause for distance, cause in found if distance <= limit]
    following = [distance for distance, _ in ordered if distance > limit and distance > best[0]]
    return (best[0], ", or ".join(dict.fromkeys(equal[:4])) or best[1]), following[
        0
    ] if following else None


# Conventions
# -----------------------------------------------------------------------------

_EPS_FORMS = {
    "outside": "epsilon outside of the root",
    "root": "epsilon inside the root",
    "root squared": "epsilon squared inside the root",
    "unscaled": "epsilon unscaled: added before the bias correction, as in Chainer",
    "unscaled root": "epsilon inside the root, before the bias correction",
    "floor": "epsilon as a least value of the root",
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
    "largest": "clipping by the largest element",
    "root mean square": "clipping by the root mean square instead of the norm",
    "squared norm": "clipping by the squared norm: its root was forgotten",
}
_WITH_MOMENTS = ("adam", "nadam", "radam", "adamax", "lamb")
_WITH_ROOT = (*_WITH_MOMENTS, "rmsprop", "adagrad", "adadelta")


def conventions(form: Form, trace: Trace) -> Iterator[tuple[str, Changes]]:
    """Known ones that differ from a form's own: the cause, and what to change in the form."""
    for cause, changes in itertools.chain(
        _of_gradients(form),
        _of_decay(form, trace),
        _of_momentum(form),
        _of_roots(form),
        _of_time(form),
    ):
        if any(not np.array_equal(getattr(form, name), value) for name, value in changes.items()):
            yield cause, changes


def _of_gradients(form: Form) -> Iterator[tuple[str, Changes]]:
    yield "gradient ascent: the sign of the gradient is flipped", {"factor": -form.factor}
    if form.clip is not None:
        yield "no clipping of gradients", {"clip": None}
        for how, cause in _CLIPS.items():
            yield cause, {"clip": how}
        yield "clipping to bound / (norm + 1e-6)", {"clip_eps": 1e-6}
    yield "no update at all", {"rate": 0.0}
    yield "gradients that are never cleared and add up", {"gradient": "accumulated"}
    yield "the gradient of the step before", {"gradient": "stale"}


def _of_decay(form: Form, trace: Trace) -> Iterator[tuple[str, Changes]]:
    if not np.any(form.decay):
        return
    yield "no weight decay", {"decay": 0.0}
    if form.clip is not None:
        yield (
            "decay before clipping: the clipped gradient holds it",
            {"decay_first": True, "decay_form": "l2"},
        )
    for how, cause in _DECAY_FORMS.items():
        yield cause, {"decay_form": how}
    yield "weight decay with the wrong sign", {"decay": -1.0 * form.decay}
    vectors = trace.spread(np.array(trace.axes)) < 2
    yield (
        "no weight decay of biases and other vectors",
        {"decay": np.where(vectors, 0.0, form.decay)},
    )
    yield "weight decay of biases and other vectors too", {"decay": float(np.max(form.decay))}
    yield (
        "weight decay of biases and other vectors alone",
        {"decay": np.where(vectors, form.decay, 0.0)},
    )


def _of_momentum(form: Form) -> Iterator[tuple[str, Changes]]:
    if form.kind not in ("sgd", "rmsprop") or not np.any(form.momentum):
        return
    yield "no momentum", {"momentum": 0.0, "nesterov": False}
    for how, cause in _VELOCITIES.items():
        yield cause, {"velocity": how}
    nesterov = (
        "Nesterov momentum instead of the plain one"
        if not form.nesterov
        else "Nesterov lost: plain momentum"
    )
    yield nesterov, {"nesterov": not form.nesterov}
    mean = "dampening: the velocity is a mean, (1 - momentum) g"
    yield f"{mean}, after the first gradient", {"dampening": form.momentum}
    yield f"{mean}, from the first step on", {"dampening": form.momentum, "dampen_first": True}


def _of_roots(form: Form) -> Iterator[tuple[str, Changes]]:
    if form.kind not in _WITH_ROOT:
        return
    for how, cause in _EPS_FORMS.items():
        if form.kind in _WITH_MOMENTS or not how.startswith("unscaled"):
            yield cause, {"eps_form": how}
    yield "no epsilon", {"eps": 0.0}
    for value in (1.0, 0.1):
        yield f"squares that start at {value:g} instead of {_shown(form.start)}", {"start": value}
    if form.kind == "rmsprop":
        yield "centered: the squared mean is subtracted", {"centered": not form.centered}
    if form.kind == "lamb":
        yield "no ratio of norms", {"trust": "none"}
    if form.kind == "lamb" and np.any(form.decay):
        yield "weight decay outside of the ratio of norms", {"decay_form": "decoupled"}


def _of_time(form: Form) -> Iterator[tuple[str, Changes]]:
    yield "schedule one step late: the learning rate of the step before", {"rate_from": -1}
    yield "schedule one step early: the learning rate of the step after", {"rate_from": 1}
    yield (
        "unused parameters updated, with gradients of zero: decay and momentum go on",
        {"unused": "zeros"},
    )
    yield "parameters left out whose gradient is zero everywhere", {"zero": "skipped"}
    if form.kind != "sgd" or np.any(form.momentum):
        yield "the optimizer's state forgotten after each step", {"memory": "forgotten"}
    if form.kind in (*_WITH_MOMENTS, "lion"):
        yield "beta1 and beta2 swapped", {"beta1": form.beta2, "beta2": form.beta1}
    if form.kind not in _WITH_MOMENTS:
        return
    yield "no bias correction", {"corrected": "none"}
    yield "no bias correction of the second mean", {"corrected": "first"}
    yield "no bias correction of the first mean", {"corrected": "second"}
    yield "step count off by one: one too many", {"offset": 1}
    yield "step count off by one: one too few", {"offset": -1}
    yield "Nesterov's momentum in Adam's mean, as in NAdam", {"nesterov": not form.nesterov}
    yield "one step count for all parameters, which unused ones follow", {"count": "all"}
    yield "one step count that each parameter moves on", {"count": "each"}
    yield "bias correction in float32", {"correction_dtype": "float32"}
    yield "bias correction in float32, by products", {"correction_dtype": "float32 products"}
    for how, cause in {
        "": "no amsgrad",
        "plain": "amsgrad",
        "corrected": "amsgrad of corrected means",
    }.items():
        yield cause, {"amsgrad": how}


# Numbers
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number:
    """A number of a form that can be searched for.

    Attributes:
        name: Of the form's field.
        text: How a report says it.
        starts: Where searches begin.
        weight: Whether it lies between 0 and 1, and is near to 1 most of the time.
    """

    name: str
    text: str
    starts: tuple[float, ...]
    weight: bool = False

    def changes(self, form: Form, value: float) -> dict[str, Any]:
        """Return the form's field at a value.

        Factors, and fields that differ between parameters, are multiplied by it.
        """
        usual = getattr(form, self.name)
        return {
            self.name: usual * value if self.name in ("rate", "factor") or np.ndim(usual) else value
        }

    def said(self, form: Form, value: float) -> str:
        """What a report says."""
        usual = getattr(form, self.name)
        if np.ndim(usual) and "instead of" in self.text:
            return f"{self.name} times {value:.6g}"
        return self.text.format(f"{value:.6g}", _shown(usual))

    def to_line(self, value: float) -> float:
        """Onto the axis that is searched along."""
        return float(np.log1p(-min(value, 1 - 1e-12)) if self.weight else np.log(max(value, 1e-30)))

    def from_line(self, place: float) -> float:
        """From that axis."""
        return float(
            0.0 - np.expm1(np.clip(place, -27.0, 0.0))
            if self.weight
            else np.exp(np.clip(place, -70.0, 70.0))
        )


_WEIGHTS, _DECADES = (0.0, 0.5, 0.9, 0.99, 0.999), tuple(10.0**power for power in range(-12, 0))


def _numbers(form: Form) -> Iterator[_Number]:
    """Those that matter to a form."""
    square = {"rmsprop": "alpha", "adadelta": "rho"}.get(form.kind, "beta2")
    yield _Number("rate", "learning rate times {}", (1e-3, 0.03, 0.3, 0.9, 1.1, 3.0, 30.0, 1e3))
    yield _Number(
        "factor",
        "gradients times {} (a sum for a mean, or the other way round)",
        (1e-3, 0.03, 0.3, 3.0, 30.0),
    )
    yield _Number(
        "decay", "weight_decay={} instead of {}", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3)
    )
    if form.kind in ("sgd", "rmsprop"):
        yield _Number("momentum", "momentum={} instead of {}", (0.3, 0.8, 0.95, 0.99), weight=True)
        yield _Number("dampening", "dampening={} instead of {}", (0.1, 0.5, 0.9), weight=True)
    if form.kind in (*_WITH_MOMENTS, "lion"):
        yield _Number("beta1", "beta1={} instead of {}", _WEIGHTS, weight=True)
    if form.kind not in ("sgd", "adagrad"):
        yield _Number("beta2", f"{square}={{}} instead of {{}}", _WEIGHTS, weight=True)
    if form.kind in _WITH_ROOT:
        yield _Number("eps", "eps={} instead of {}", _DECADES)
        yield _Number("start", "squares that start at {} instead of {}", (1e-3, 0.1, 1.0, 10.0))
    if form.clip is not None:
        yield _Number("bound", "clipping bound={} instead of {}", (1e-3, 0.1, 0.5, 2.0, 10.0))
        yield _Number("clip_eps", "{} instead of {} added to the norm", (1e-8, 1e-6, 1e-4, 1e-2))


def _bounds(form: Form) -> Iterator[tuple[str, Changes, _Number]]:
    """Clipping that the reference lacks."""
    if form.clip is None:
        for how, cause in _CLIPS.items():
            number = _Number(
                "bound",
                f"{cause}, bound {{}}, where the reference does not clip",
                (1e-3, 0.03, 1.0, 30.0),
            )
            yield cause, {"clip": how}, number


@dataclass(frozen=True)
class _Trial:
    """A form with what makes it differ, and how far it is from the candidate."""

    cause: str
    changes: Changes
    distance: float


class _Search:
    """The search for the explanation of one candidate.

    Parameters that behave as the reference's do are left out.
    """

    def __init__(self, trace: Trace, base: Form) -> None:
        self.trace, self.base = trace, base
        self.measure = _Measure(trace, trace.candidate)
        self.wrong = self.measure.by_parameter(simulate(base, trace)) > _SAME
        self.trials: list[_Trial] = []

    def explanation(self) -> Explanation | None:
        """The nearest trial."""
        if not self.wrong.any():
            return None
        attempts = (
            self._single,
            self._fitted,
            self._pairs,
            self._structures,
            self._other_rules,
            self._refined,
        )
        for attempt in attempts:
            attempt()
            if min(trial.distance for trial in self.trials) <= MATCH:
                break
        own = self._distance(simulate(self.base, self.trace))
        nearer = [trial for trial in self.trials if trial.distance < own]
        if not nearer:
            return Explanation(f"nothing that is known of {self.base.kind}", own)
        if min(trial.distance for trial in nearer) > MATCH:
            best = min(
                nearer, key=lambda trial: trial.distance * 2 ** len(trial.changes)
            )  # a short sentence
            return Explanation(best.cause, best.distance)
        found = [(trial.distance, self._qualified(trial)) for trial in nearer]
        found.sort(
            key=lambda one: (
                one[0] > MATCH,
                one[1].endswith(" alone"),
                0.0 if one[0] <= MATCH else one[0],
            )
        )
        (match, cause), following = _nearest(found)
        return Explanation(cause, match, following)

    def _distance(self, updates: np.ndarray) -> float:
        """Over the parameters that differ from the reference."""
        return float(np.sqrt(np.mean(self.measure.by_parameter(updates)[self.wrong] ** 2)))

    def _try(self, cause: str, changes: Changes) -> None:
        distance = self._distance(simulate(self.base.but(**changes), self.trace))
        self.trials.append(_Trial(cause, changes, distance))

    def _single(self) -> None:
        for cause, changes in conventions(self.base, self.trace):
            self._try(cause, changes)

    def _fitted(self, around: Changes | None = None, prefix: str = "") -> None:
        changed = self.base.but(**(around or {}))
        for number in _numbers(changed):
            if number.name not in (around or {}):
                self._fit(prefix, around or {}, number)
        for _, changes, number in _bounds(changed):
            self._fit(prefix, {**(around or {}), **changes}, number)

    def _fit(self, prefix: str, around: Changes, number: _Number) -> None:
        base = self.base.but(**around)
        value, distance = _fitted_number(base, number, self.trace, self.measure, self.wrong)
        changes = {**around, **number.changes(base, value)}
        self.trials.append(_Trial(prefix + number.said(base, value), changes, distance))

    def _pairs(self) -> None:
        """Two conventions at a time, the nearest of them alone first."""
        singles = sorted(self.trials, key=lambda trial: trial.distance)[:_IN_PAIRS]
        for one, two in itertools.combinations(singles, 2):
            if not one.changes.keys() & two.changes.keys():
                self._try(f"{one.cause}; and {two.cause}", {**one.changes, **two.changes})
                if self.trials[-1].distance > 0.95 * min(one.distance, two.distance):
                    self.trials.pop()  # one of the two does nothing for it

    def _structures(self) -> None:
        """Several conventions and all numbers at a time, of the same rule."""
        found = identify(self.trace, self.trace.candidate, self.wrong, [*_structures(self.base)])
        changes = {
            name: value
            for name, value in vars(found.form).items()
            if _differs(value, getattr(self.base, name))
        }
        causes = [_cause(name, value, self.base) for name, value in changes.items()]
        self.trials.append(_Trial("; and ".join(causes), changes, found.distance))

    def _refined(self) -> None:
        """The nearest ones so far, each with a number that is searched for."""
        for trial in sorted(self.trials, key=lambda trial: trial.distance)[:_REFINED]:
            self._fitted(trial.changes, f"{trial.cause}; and ")

    def _other_rules(self) -> None:
        starts = [form.but(clip=self.base.clip, bound=self.base.bound) for form in _STARTS]
        found = identify(self.trace, self.trace.candidate, self.wrong, starts)
        text = f"{described(found.form)} instead of {self.base.kind}"
        self.trials.append(_Trial(text, vars(found.form), found.distance))

    def _qualified(self, trial: _Trial) -> str:
        """The cause, with the parameters that it concerns where others follow the reference."""
        if self.wrong.all() or trial.distance > MATCH:
            return trial.cause
        everywhere = self.measure.by_parameter(simulate(self.base.but(**trial.changes), self.trace))
        if (everywhere <= MATCH).all():
            return trial.cause
        return f"{trial.cause}, of {self._concerned()} alone"

    def _concerned(self) -> str:
        vectors = np.array(self.trace.axes) < 2
        if np.array_equal(self.wrong, vectors):
            return "biases and other vectors"
        if np.array_equal(self.wrong, ~vectors):
            return "parameters with several axes"
        names = [name for name, wrong in zip(self.trace.names, self.wrong, strict=True) if wrong]
        return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")


class _Measure:
    """How far updates are from a target, relative, at each step and for each parameter."""

    def __init__(self, trace: Trace, target: np.ndarray) -> None:
        self.trace, self.target = trace, target
        sizes = [
            trace.by_parameter(x * x) ** 0.5 for x in (target, trace.reference, trace.parameters)
        ]
        largest = np.maximum(sizes[0], sizes[1])
        floor = 1e-3 * np.maximum(sizes[2], np.finfo(float).tiny)  # where neither moved
        self.size = np.where(largest > 0, largest, floor)

    def residual(self, updates: np.ndarray) -> np.ndarray:
        """The differences, ``(T, N)``, each relative to the size of its parameter's update."""
        return (updates - self.target) / self.trace.spread(self.size)

    def by_parameter(self, updates: np.ndarray) -> np.ndarray:
        """The root mean square over steps; at most 10, and so where it is not finite."""
        squares = self.trace.by_parameter(
            np.nan_to_num(self.residual(updates), nan=1e3, posinf=1e3, neginf=-1e3) ** 2
        )
        return np.sqrt(np.minimum(squares, 100.0).mean(0))


def _fitted_number(
    base: Form, number: _Number, trace: Trace, measure: _Measure, wrong: np.ndarray
) -> tuple[float, float]:
    """The value that is nearest, and its distance."""
    usual = getattr(base, number.name)
    own = () if np.ndim(usual) or not usual else (float(usual),)
    starts = dict.fromkeys([*own, *number.starts])

    def distance(values: Sequence[float]) -> float:
        updates = simulate(base.but(**number.changes(base, values[0])), trace)
        return float(np.sqrt(np.mean(measure.by_parameter(updates)[wrong] ** 2)))

    nearest = sorted((distance([start]), start) for start in starts)
    for _, start in nearest[
        :2
    ]:  # the best one may be the reference's own, from where nothing leads downhill
        (value,), found = _improved(base, [number], [start], trace, measure, wrong)
        nearest.append((found, value))
    found, value = min(nearest)
    (value,), found = _plain([value], found, distance)
    return value, found


def _at(base: Form, numbers: Sequence[_Number], values: Sequence[float]) -> Form:
    for number, value in zip(numbers, values, strict=True):
        base = base.but(**number.changes(base, value))
    return base


def _improved(
    base: Form,
    numbers: Sequence[_Number],
    values: Sequence[float],
    trace: Trace,
    measure: _Measure,
    wrong: np.ndarray,
    iterations: int = 15,
) -> tuple[list[float], float]:
    """Levenberg and Marquardt's steps along the axes of several numbers."""
    chosen = trace.spread(wrong)

    def left(places: np.ndarray) -> np.ndarray:
        found = [number.from_line(place) for number, place in zip(numbers, places, strict=True)]
        residual = measure.residual(simulate(_at(base, numbers, found), trace))[:, chosen].ravel()
        return np.clip(np.nan_to_num(residual, nan=10.0), -10.0, 10.0)

    places = np.array(
        [number.to_line(value) for number, value in zip(numbers, values, strict=True)]
    )
    residual, damping = left(places), 1e-3
    for _ in range(iterations):
        cost = float(residual @ residual)
        if cost <= 1e-26:
            break
        steps = 1e-6 * np.eye(len(places)) * -1.0  # weights of 0 cannot become smaller
        slopes = np.stack([(left(places + step) - residual) / -1e-6 for step in steps], axis=1)
        square, gradient = slopes.T @ slopes, slopes.T @ residual
        for _ in range(8):
            moved = (
                places
                - np.linalg.lstsq(
                    square + damping * np.diag(np.diag(square) + 1e-300), gradient, rcond=None
                )[0]
            )
            moved = np.clip(moved, places - 3.0, places + 3.0)
            after = left(moved)
            if float(after @ after) < cost:
                break
            damping *= 10.0
        else:
            break
        places, residual, damping = moved, after, max(damping * 0.01, 1e-15)
        if float(residual @ residual) > cost * (1 - 1e-9):
            break
    values = [number.from_line(place) for number, place in zip(numbers, places, strict=True)]
    distances = measure.by_parameter(simulate(_at(base, numbers, values), trace))[wrong]
    return values, float(np.sqrt(np.mean(distances**2)))


def _plain(values: list[float], found: float, distance: Any) -> tuple[list[float], float]:
    """The same numbers with as few digits as do as well."""
    for place, value in enumerate(values):
        for digits in range(6):
            plain = [*values]
            plain[place] = float(f"{value:.{digits}e}")
            near = abs(plain[place] - value) <= 1e-3 * abs(value) + 1e-12
            if near and (reached := distance(plain)) <= max(2 * found, 1e-11):
                values, found = plain, reached
                break
    return values, found


# Which rule
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Identified:
    """The form that is nearest to some updates."""

    form: Form
    distance: float


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
_FREE = {
    "sgd": ("rate", "momentum"),
    "adam": ("rate", "beta1", "beta2", "eps"),
    "nadam": ("rate", "beta1", "beta2", "eps"),
    "radam": ("rate", "beta1", "beta2", "eps"),
    "adamax": ("rate", "beta1", "beta2", "eps"),
    "rmsprop": ("rate", "beta2", "eps", "momentum"),
    "adagrad": ("rate", "eps"),
    "adadelta": ("rate", "beta2", "eps"),
    "lion": ("rate", "beta1", "beta2"),
    "lamb": ("rate", "beta1", "beta2", "eps"),
}


_CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "sgd": {"velocity": ("plain", "rate inside"), "nesterov": (False, True)},
    "adam": {
        "eps_form": ("outside", "root", "unscaled"),
        "corrected": ("both", "none"),
        "amsgrad": ("", "plain"),
    },
    "nadam": {},
    "radam": {},
    "adamax": {},
    "rmsprop": {
        "eps_form": ("outside", "root"),
        "velocity": ("plain", "rate inside"),
        "start": (0.0, 1.0),
    },
    "adagrad": {"eps_form": ("outside", "root"), "start": (0.0, 0.1)},
    "adadelta": {"eps_form": ("root", "outside")},
    "lion": {},
    "lamb": {"eps_form": ("outside", "root"), "trust": ("layer", "none")},
}


def _structures(base: Form) -> Iterator[Form]:
    """The same rule in all its usual forms, with decay and without."""
    choices = _CHOICES[base.kind]
    decays = dict.fromkeys((base.decay_form, "l2", "decoupled"))
    for values in itertools.product(*choices.values()):
        form = base.but(**dict(zip(choices, values, strict=True)))
        yield form.but(decay=0.0, decay_form=base.decay_form)
        for how in decays:
            yield form.but(decay=base.decay if np.any(base.decay) else 0.01, decay_form=how)


def _cause(name: str, value: Any, base: Form) -> str:
    """What a report says of a field that is not the reference's."""
    texts = {"eps_form": _EPS_FORMS, "decay_form": _DECAY_FORMS, "velocity": _VELOCITIES}.get(
        name, {}
    )
    usual = getattr(base, name)
    known = {number.name: number for number in _numbers(base)}
    if name in known and not np.ndim(value) and not np.ndim(usual):
        return known[name].said(base, value)
    return texts.get(value, f"{name}={_shown(value)} instead of {_shown(usual)}")


def _differs(value: Any, usual: Any) -> bool:
    if isinstance(value, float):
        return not np.allclose(value, usual, rtol=1e-9, atol=0.0)
    return not np.array_equal(value, usual)


def identify(
    trace: Trace,
    target: np.ndarray,
    among: np.ndarray | None = None,
    starts: Sequence[Form] | None = None,
) -> Identified:
    """The rule, with its numbers, whose updates are nearest to these.

    Args:
        trace: What the optimizer was fed.
        target: Its updates.
        among: The parameters to look at; all when None.
        starts: Forms whose numbers are improved; all usual rules when None.
    """
    measure = _Measure(trace, target)
    chosen = np.ones(len(trace.names), bool) if among is None else among
    forms = [*_STARTS] if starts is None else [*starts]
    if starts is None:
        forms += [
            form.but(decay=0.01, decay_form=how) for form in _STARTS for how in ("l2", "decoupled")
        ]
    rough: list[Identified] = []
    for form in forms:
        rough.append(_settled(form, trace, measure, chosen, 6))
        if rough[-1].distance <= _SAME:
            return _settled(rough[-1].form, trace, measure, chosen, 10)
    nearest = sorted(rough, key=lambda one: one.distance)[:4]
    return min(
        (_settled(one.form, trace, measure, chosen, 40) for one in nearest),
        key=lambda one: one.distance,
    )


def _settled(
    form: Form, trace: Trace, measure: _Measure, chosen: np.ndarray, iterations: int
) -> Identified:
    """A form with better numbers."""
    free = [name for name in (*_FREE[form.kind], "start", "decay") if np.any(getattr(form, name))]
    free = [name for name in free if not np.ndim(getattr(form, name))]
    known = {number.name: number for number in _numbers(form)}
    numbers = [known[name] for name in free]
    values = [
        1.0 if name == "rate" else getattr(form, name) for name in free
    ]  # which is relative to the form's own
    values, distance = _improved(form, numbers, values, trace, measure, chosen, iterations)

    def distance_of(plain: Sequence[float]) -> float:
        updates = simulate(_at(form, numbers, plain), trace)
        return float(np.sqrt(np.mean(measure.by_parameter(updates)[chosen] ** 2)))

    values, distance = _plain(values, distance, distance_of)
    return Identified(_at(form, numbers, values), distance)


def _reference_form(trace: Trace) -> Form | None:
    """Return the reference's own form if it reproduces its updates, else one that does, else None."""
    measure = _Measure(trace, trace.reference)
    if trace.form is not None and measure.by_parameter(simulate(trace.form, trace)).max() <= _SAME:
        return trace.form
    found = identify(trace, trace.reference)
    return found.form if found.distance <= MATCH else None


def described(form: Form) -> str:
    """A form in a few words: ``"rmsprop(beta2=0.99, eps=1e-08)"``; what is standard is left out."""
    standard = Form(form.kind)
    shown = {
        name: value
        for name, value in vars(form).items()
        if not np.array_equal(value, getattr(standard, name))
    }
    relevant = set(_FREE[form.kind]) | shown.keys()
    settings = [
        f"{name}={_shown(getattr(form, name))}"
        for name in vars(form)
        if name in relevant and name != "kind"
    ]
    return f"{form.kind}({', '.join(settings)})"


def _shown(value: Any) -> str:
    """A number as a report writes it."""
    if np.ndim(value):
        return " or ".join(f"{each:.6g}" for each in np.unique(value)[:3])
    return f"{value:.6g}" if isinstance(value, float) else str(value)
