"""Level L4: each optimizer, step by step, at forced parameters, gradients and learning rates.

Both sides are given the same parameters before each step, and the same gradients: those of a linear
loss. So their states follow from the same numbers, and the update of each step is judged alone,
relative to itself. Schedules are compared apart from that, over more steps than a proof could make.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from deliralike.conformance.explain import optimizers as explaining
from deliralike.conformance.explain.schedules import explain_schedule
from deliralike.conformance.explain.updates import Form, Trace, form_of, merged
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    PASSED,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError
from deliralike.network.base import AbstractNetwork
from deliralike.nn import start
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.replicas.hooks import AccumulateGradients

TITLE = "optimizer steps at forced parameters and gradients"
SCALES = (
    1e-6,
    1.0,
    1e-3,
    1e2,
)  # of gradients, step by step: small ones show an epsilon, large ones are clipped
DROP = 0.1  # of the learning rate in the middle: where it stands in a velocity shows only then
FLOAT32_NOTED, FLOAT32_LIMIT = 16 * 2.0**-23, 1e-5
HORIZON = 10_000  # steps over which schedules are compared
_TRACED = (
    1000  # elements of vectors, and as many of other parameters, that an explanation is made from
)

T = TypeVar("T")
Arrays = dict[str, np.ndarray]
Make = Callable[[AbstractNetwork], AbstractOptimizer]


def level(
    reference: Subject,
    candidate: Subject,
    names: Mapping[str, str] | None = None,
    steps: int = 12,
    seed: int = 0,
    in_float32: bool = True,
    unused: bool = True,
    never: Collection[str] = (),
) -> Level:
    """Judge the optimizers that both sides have, by name.

    Args:
        reference, candidate: Networks in float64 with the same parameters; they stay as they are.
        names: The candidate's name of a parameter by the reference's, where they differ.
        steps: How many updates; the learning rate drops in the middle.
        seed: Of the forced gradients and parameters.
        in_float32: Whether the candidate is judged in float32, too, where its backend can change a
            network's type.
        unused: Whether some parameters take no part in some steps.
        never: Parameters that take no part in any step, as the network does not use them.
    """
    shared = [name for name in reference.optimizers if name in candidate.optimizers]
    alone = [
        name for name in {**reference.optimizers, **candidate.optimizers} if name not in shared
    ]
    notes = [f"optimizer {name} is on one side only" for name in alone]
    if not shared:
        return Level(
            "L4", TITLE, NOT_REACHED, notes=(*notes, "there is no optimizer on both sides")
        )
    short = _in_float32(candidate.network) if in_float32 else None
    if in_float32 and short is None:
        notes.append(
            "not judged in float32: the candidate's backend cannot change the type of its network"
        )
    forced = Forced.of(reference.network, steps, seed, unused)
    shapes = {
        name: shape
        for name, shape in forced.shapes.items()
        if _shape(candidate.network, (names or {}).get(name, name)) == shape
    }
    left_out = [name for name in forced.shapes if name not in shapes]
    notes += (
        [f"not judged, without a parameter like it in the candidate: {', '.join(left_out)}"]
        if left_out
        else []
    )
    if not shapes:
        return Level("L4", TITLE, NOT_REACHED, notes=tuple(notes))
    pausing = tuple(shapes)[1::2] if unused else ()
    forced = replace(forced, shapes=shapes, unused=pausing, never=frozenset(never))
    findings = list(_of_schedules(reference, candidate, shared[0]))
    updates: dict[str, dict[str, list[float]]] = {}
    for name in shared:
        make, other = reference.optimizers[name], candidate.optimizers[name]
        networks = [candidate.network] if short is None else [candidate.network, short]
        try:
            sides = [
                _Side(reference.network, make),
                *(_tried(partial(_Side, one, other, names)) for one in networks),
            ]
            run = _Run(
                name,
                forced,
                sides,
                rates_are_own=reference.schedule is None and candidate.schedule is None,
            )
        except _CandidateRaised as raised:
            findings.append(Finding("L4", f"optimizer {name}", f"raises {raised}", np.inf))
            continue
        findings += run.findings()
        notes += run.notes()
        updates[name] = run.by_step()
    differences = {name: max(curves["float64"]) for name, curves in updates.items()}
    figures = {"differences": differences, "updates": updates}
    worst = max([*differences.values(), *(f.difference for f in findings)])
    return Level(
        "L4", TITLE, FAILED if findings else PASSED, worst, tuple(findings), tuple(notes), figures
    )


# What is forced
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Forced:
    """The parameters and gradients of each step, the same on every machine.

    Attributes:
        shapes: Of the trainable parameters, by neutral name; of a tied one under its first name.
        steps: How many.
        seed: Keys the numbers, together with each parameter's name and the step.
        unused: Parameters that take no part at the steps of `pauses`.
        never: Parameters that take no part in any step.
    """

    shapes: Mapping[str, tuple[int, ...]]
    steps: int
    seed: int
    unused: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()

    @classmethod
    def of(cls, network: AbstractNetwork, steps: int, seed: int, unused: bool) -> Forced:
        """For the parameters of a network; every second one pauses, unless there is only one."""
        shapes: dict[str, tuple[int, ...]] = {}
        seen: set[int] = set()
        for name, slot in network.neutral_slots().items():
            if slot.trainable and id(slot.native) not in seen:
                seen.add(id(slot.native))
                shapes[name] = slot.shape
        return cls(shapes, steps, seed, tuple(shapes)[1::2] if unused else ())

    @property
    def middle(self) -> int:
        """The first step with the lower learning rate."""
        return self.steps // 2

    @property
    def pauses(self) -> tuple[int, ...]:
        """The steps at which the unused parameters take no part.

        One is before the learning rate drops, and one after.
        """
        return (self.middle // 2, self.middle + 2)

    def parameters(self, step: int) -> Arrays:
        """Return the parameters before a step.

        They are as small as the gradients, so that no update is lost in rounding.
        """
        scale = min(SCALES[step % len(SCALES)], 1.0)
        return {name: _rounded(self._draw("parameter", name, step) * scale) for name in self.shapes}

    def gradients(self, step: int) -> Arrays:
        """The gradients of a step, without those that take no part; some are exactly zero."""
        absent = {*self.never, *(self.unused if step in self.pauses else ())}
        taking_part = [name for name in self.shapes if name not in absent]
        return {name: self._gradient(name, step) for name in taking_part}

    def _gradient(self, name: str, step: int) -> np.ndarray:
        gradient = _rounded(self._draw("gradient", name, step) * SCALES[step % len(SCALES)])
        if step == self.middle - 1 and name == next(iter(self.shapes)):
            return (
                gradient * 0.0
            )  # taking part with a gradient of zero is not the same as taking no part
        if step % 3 == 1:
            gradient.reshape(-1)[::3] = 0.0
        return gradient

    def _draw(self, what: str, name: str, step: int) -> np.ndarray:
        key = start.key(self.seed, f"{what} {name}")
        generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))
        return generator.standard_normal(self.shapes[name])


def _rounded(value: np.ndarray) -> np.ndarray:
    """To numbers that float32 holds, too."""
    return value.astype(np.float32).astype(np.float64)


def linear(network: AbstractNetwork, gradients: Mapping[str, Any]) -> Any:
    """Return a loss whose gradients are the given ones, in the native layout.

    It is the sum of each parameter times its gradient.
    """
    slots = network.neutral_slots()
    return sum(
        network.nn.sum(slots[name].native * gradient) for name, gradient in gradients.items()
    )


class _Side:
    """A copy of one side's network with its optimizer."""

    def __init__(
        self, network: AbstractNetwork, make: Make, names: Mapping[str, str] | None = None
    ) -> None:
        self.network = copy.deepcopy(network)
        self.optimizer = make(self.network)
        # where the learning rate is part of a state, it is there from now on
        self.optimizer.neutral_state()
        self.slots = self.network.neutral_slots()
        self.names = names or {}

    @property
    def lr(self) -> float | None:
        """The learning rate; None where the optimizer hides it."""
        try:
            return self.optimizer.lr
        except DeliralikeError:
            return None

    def step(self, parameters: Arrays, gradients: Arrays, lr: float | None) -> Arrays:
        """What one update adds to each parameter."""
        for name, value in parameters.items():
            self._slot(name).write(value)
        self.network.parallelism.copy_parameters()
        before = {name: self._slot(name).read() for name in parameters}
        if lr is not None:
            self.optimizer.lr = lr
        batch = {
            self._name(name): self._slot(name).in_native_layout(value)
            for name, value in gradients.items()
        }
        self.optimizer.update(linear, batch)
        return {
            name: self._slot(name).read().astype(np.float64) - before[name] for name in parameters
        }

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _slot(self, name: str) -> Any:
        return self.slots[self._name(name)]


def _shape(network: AbstractNetwork, name: str) -> tuple[int, ...] | None:
    """The shape of a trainable parameter; None where there is none of that name."""
    slot = network.neutral_slots().get(name)
    return slot.shape if slot is not None and slot.trainable else None


def _in_float32(network: AbstractNetwork) -> AbstractNetwork | None:
    """The same network in float32; None where the backend cannot make one."""
    try:
        return network.backend.in_dtype(network, "float32")
    except DeliralikeError:
        return None


class _CandidateRaised(Exception):
    """What a candidate's optimizer raised, in words."""


def _tried(act: Callable[[], T]) -> T:
    """What the candidate does; whatever it raises is a finding."""
    try:
        return act()
    except Exception as error:
        raise _CandidateRaised(f"{type(error).__name__}: {error}") from error


# One optimizer
# -----------------------------------------------------------------------------


@dataclass
class _Judged:
    """How far one candidate is from the reference, at each step.

    Attributes:
        limit: What is allowed.
        rounding: The relative rounding of the parameters, which is no fault of an update's.
        updates: The relative difference of each parameter's update, by step.
        unused: How far parameters have moved without a gradient, relative to themselves, by step.
    """

    limit: float
    rounding: float
    updates: list[dict[str, float]] = field(default_factory=list)
    unused: list[dict[str, float]] = field(default_factory=list)

    def add(
        self, reference: Arrays, candidate: Arrays, parameters: Arrays, used: Mapping[str, Any]
    ) -> None:
        """Take note of a step."""
        self.updates.append(
            {
                name: _difference(
                    reference[name], candidate[name], self.rounding * _norm(parameters[name])
                )
                for name in reference
                if name in used
            }
        )
        self.unused.append(
            {
                name: _norm(candidate[name]) / (_norm(parameters[name]) or 1.0)
                for name in reference
                if name not in used
            }
        )

    def by_step(self) -> list[float]:
        """The largest difference of each step."""
        return [max(step.values(), default=0.0) for step in self.updates]

    def findings(
        self, optimizer: str, explanation: Explanation | None, suffix: str = ""
    ) -> Iterator[Finding]:
        """A finding for parameters that differ, and one for those that move without a gradient."""
        for what, steps in (("update", self.updates), ("unused parameter", self.unused)):
            found = [
                (step, name)
                for step, values in enumerate(steps)
                for name in values
                if self._fails(values[name])
            ]
            if found:
                step, name = found[0]
                wrong, all_names = (
                    {name for _, name in found},
                    {name for values in steps for name in values},
                )
                yield Finding(
                    level="L4",
                    place=f"optimizer {optimizer}",
                    what=f"{what} {name} at step {step + 1}{suffix}",
                    difference=max(steps[step][name] for step, name in found),
                    limit=self.limit,
                    explanation=explanation,
                    remarks=(f"It concerns {len(wrong)} of {len(all_names)} parameters.",),
                )

    def _fails(self, difference: float) -> bool:
        return not difference <= self.limit


class _Run:
    """One optimizer of all sides, in step."""

    def __init__(
        self, name: str, forced: Forced, sides: Sequence[_Side], rates_are_own: bool
    ) -> None:
        self.name, self.forced, self.sides = name, forced, sides
        self.reference, self.candidate = sides[:2]
        self.start = (self.reference.lr, self.candidate.lr)
        self.rates_are_own = rates_are_own
        self.judged = [_Judged(LIMIT, 4 * 2.0**-52), _Judged(FLOAT32_LIMIT, 2 * 2.0**-23)][
            : len(sides) - 1
        ]
        self.drift: tuple[int, float, float] | None = None
        self.recorded: list[tuple[Arrays, Arrays, Arrays, Arrays]] = []
        self.rates = [self._rate(step) for step in range(forced.steps)]
        self.traced = _traced(forced.shapes)
        self.rest: list[list[float]] = []
        for step in range(forced.steps):
            self._step(step)

    def _rate(self, step: int) -> float | None:
        """The forced learning rate; None where a side hides its own."""
        base = self.start[0]
        if base is None or self.start[1] is None:
            return None
        return (base or 0.1) * (1.0 if step < self.forced.middle else DROP)

    def _step(self, step: int) -> None:
        parameters, gradients, rate = (
            self.forced.parameters(step),
            self.forced.gradients(step),
            self.rates[step],
        )
        updates = [self.reference.step(parameters, gradients, rate)]
        updates += [
            _tried(partial(side.step, parameters, gradients, rate)) for side in self.sides[1:]
        ]
        for judged, update in zip(self.judged, updates[1:], strict=True):
            judged.add(updates[0], update, parameters, gradients)
        mine, its = self.reference.lr, self.candidate.lr
        if (
            rate is not None
            and mine is not None
            and its is not None
            and self.drift is None
            and _relative(mine, its)
        ):
            self.drift = (step + 1, mine, its)
        traced = tuple(_only(self.traced, x) for x in (parameters, gradients, *updates[:2]))
        self.recorded.append(traced)  # type: ignore[arg-type]
        others = [
            (parameters[name], gradients[name]) for name in gradients if name not in self.traced
        ]
        self.rest.append(
            [
                sum(float((x * y).sum()) for x, y in pairs)
                for pairs in (
                    [(g, g) for _, g in others],
                    [(g, p) for p, g in others],
                    [(p, p) for p, _ in others],
                )
            ]
        )

    def findings(self) -> Iterator[Finding]:
        """Yield what differs: the learning rate, the updates, unused parameters.

        Differences in float32 are given only where nothing else differs.
        """
        place, (mine, its) = f"optimizer {self.name}", self.start
        found = []
        if self.rates_are_own and mine is not None and its is not None and _relative(mine, its):
            cause = Explanation.seen(
                f"lr={its:g} instead of {mine:g} (learning rate times {_ratio(its, mine):g})"
            )
            found.append(
                Finding("L4", place, "learning rate", _relative(mine, its), explanation=cause)
            )
        if self.drift is not None:
            step, mine, its = self.drift
            cause = Explanation.seen(
                "a schedule of the candidate's own: its learning rate changes with the update"
            )
            what = f"schedule: lr={its:g} instead of {mine:g} after step {step}"
            found.append(Finding("L4", place, what, _relative(mine, its), explanation=cause))
        wrong = self._differs(self.judged[0])
        found += self.judged[0].findings(
            self.name, explaining.explain(self.trace()) if wrong else None
        )
        if not found and len(self.judged) > 1:
            found += self.judged[1].findings(self.name, None, " in float32")
        yield from found

    def _differs(self, judged: _Judged) -> bool:
        return any(judged.findings(self.name, None))

    def notes(self) -> Iterator[str]:
        """What a reader should know."""
        if self.rates[0] is None:
            yield f"optimizer {self.name}: a side hides its learning rate, which did not change therefore"
        worst = max((max(judged.by_step()) for judged in self.judged[1:]), default=0.0)
        if worst > FLOAT32_NOTED and not self._differs(self.judged[0]):
            yield f"optimizer {self.name}: in float32 an update is {worst:.1e} off, beyond the parameter's own rounding"

    def by_step(self) -> dict[str, list[float]]:
        """The largest difference of each step, in both types."""
        return dict(
            zip(("float64", "float32"), (judged.by_step() for judged in self.judged), strict=False)
        )

    def trace(self) -> Trace:
        """What an explanation is made from."""
        names = self.traced
        shapes = [self.forced.shapes[name] for name in names]
        sizes = tuple(int(np.prod(shape)) for shape in shapes)

        def rows(place: int) -> np.ndarray:
            nothing = {name: np.zeros(size) for name, size in zip(names, sizes, strict=True)}
            steps = [nothing | recorded[place] for recorded in self.recorded]
            return np.stack(
                [np.concatenate([step[name].ravel() for name in names]) for step in steps]
            )

        present = [[name in recorded[1] for name in names] for recorded in self.recorded]
        return Trace(
            names=names,
            sizes=sizes,
            axes=tuple(map(len, shapes)),
            parameters=rows(0),
            gradients=rows(1),
            present=np.repeat(np.array(present), sizes, axis=1),
            rates=np.array([1.0 if rate is None else rate for rate in self.rates]),
            reference=rows(2),
            candidate=rows(3),
            form=_form(self.reference.optimizer, names, sizes),
            rest=np.array(self.rest),
        )


def _form(
    optimizer: AbstractOptimizer, names: Sequence[str], sizes: tuple[int, ...]
) -> Form | None:
    """The form of an optimizer that follows neutral rules; None for others."""
    groups = optimizer.groups
    if groups is None:
        return None
    hooks = [
        hook for hook in optimizer.pre_update_hooks if not isinstance(hook, AccumulateGradients)
    ]
    forms = []
    for name in names:
        rule = groups.rules[groups.index(name)]
        form = form_of(rule, hooks)
        forms.append(None if form is None else form.but(rate=_ratio(rule.lr, groups.rules[0].lr)))
    return merged(forms, sizes)


def _traced(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return some parameters with one axis and some with several, at least one of each.

    The smallest come first.
    """
    chosen: set[str] = set()
    for is_vector in (True, False):
        names = sorted(
            (name for name in shapes if (len(shapes[name]) < 2) is is_vector),
            key=partial(_size, shapes),
        )
        total = 0
        for name in names:
            total += _size(shapes, name)
            if total <= _TRACED or name == names[0]:
                chosen.add(name)
    return tuple(name for name in shapes if name in chosen)


def _size(shapes: Mapping[str, tuple[int, ...]], name: str) -> int:
    return int(np.prod(shapes[name]))


def _only(names: Sequence[str], arrays: Arrays) -> Arrays:
    return {name: arrays[name] for name in names if name in arrays}


# Schedules
# -----------------------------------------------------------------------------


def _of_schedules(reference: Subject, candidate: Subject, name: str) -> Iterator[Finding]:
    """A finding where the learning rates of some step differ."""
    if reference.schedule is None and candidate.schedule is None:
        return
    mine, its = (_rates(subject, name) for subject in (reference, candidate))
    if mine is None or its is None:
        return
    differences = np.array([_relative(one, two) for one, two in zip(mine, its, strict=True)])
    wrong = np.flatnonzero(differences > LIMIT)
    if wrong.size:
        first = int(wrong[0])
        yield Finding(
            level="L4",
            place="schedule",
            what=f"schedule: lr={its[first]:g} instead of {mine[first]:g} at step {first + 1}",
            difference=float(differences.max()),
            explanation=explain_schedule(mine, its),
            remarks=(f"It concerns {wrong.size} of {HORIZON} steps.",),
        )


def _rates(subject: Subject, name: str) -> np.ndarray | None:
    """Return the learning rate before each step; None where the optimizer hides it.

    It is that of the schedule, or else the optimizer's own.
    """
    if subject.schedule is not None:
        return np.array([float(subject.schedule(step)) for step in range(HORIZON)])
    own = _Side(subject.network, subject.optimizers[name]).lr
    return None if own is None else np.full(HORIZON, own)


# Numbers
# -----------------------------------------------------------------------------


def _difference(reference: np.ndarray, candidate: np.ndarray, allowed: float) -> float:
    """Return the relative difference of two updates beyond what rounding of the parameter allows."""
    size, difference = _norm(reference), _norm(candidate - reference)
    if difference <= allowed:
        return 0.0
    return (difference - allowed) / size if size and np.isfinite(difference) else np.inf


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.ravel()))


def _relative(reference: float, candidate: float) -> float:
    difference = abs(candidate - reference)
    return 0.0 if difference <= LIMIT * abs(reference) else difference / (abs(reference) or 1.0)


def _ratio(above: float, below: float) -> float:
    return above / below if below else 1.0
