"""Level L4: each optimizer, step by step, at forced parameters, gradients and learning rates.

Both sides are given the same parameters before each step, and the same gradients: those of a linear
loss. So their states follow from the same numbers, and the update of each step is judged alone,
relative to itself. No rule asks for the size of a parameter, so a large one is replaced by a small
one with as many axes; and where both sides follow one rule that is known, the first parameter of
each name in each kind of layer stands for the others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from deliralike.conformance.by_name import block_kinds, only, without
from deliralike.conformance.explain import optimizers as explaining
from deliralike.conformance.explain.updates import Form, Trace, form_of
from deliralike.conformance.findings import (
    LIMIT,
    NOT_REACHED,
    Explanation,
    Finding,
    Level,
    like_float32,
)
from deliralike.conformance.kinds import Named, Shape, Tensors
from deliralike.conformance.subject import Following, Make, Subject
from deliralike.errors import DeliralikeError
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot, each_once
from deliralike.nn import start
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.replicas.network import AccumulateGradients
from deliralike.weights.matching.distance import norm, wide

TITLE = "optimizer steps"
# Of gradients, step by step: small ones show an epsilon, large ones are clipped.
SCALES = (1e-6, 1.0, 1e-3, 1e2)
_LARGEST = 64  # elements of a parameter
_ROUNDING = 4 * 2.0**-52  # of a parameter, relative: no fault of an update's
DROP = 0.1  # of the learning rate in the middle: where it stands in a velocity shows only then

T = TypeVar("T")


def level(
    reference: Subject,
    candidate: Subject,
    names: Mapping[str, str] | None = None,
    steps: int = 12,
    seed: int = 0,
    never: Collection[str] = (),
) -> Level:
    """Judge the optimizers that both sides have, by name.

    Args:
        reference, candidate: Networks in float64 with the same parameters; they stay as they are.
        names: The candidate's name of a parameter by the reference's, where they differ.
        steps: How many updates; the learning rate drops in the middle.
        seed: Of the forced gradients and parameters.
        never: Parameters that take no part in any step, as the network does not use them.
    """
    shared = [name for name in reference.optimizers if name in candidate.optimizers]
    alone = without({**reference.optimizers, **candidate.optimizers}, shared)
    notes = [f"optimizer {name} is on one side only" for name in alone]
    if not shared:
        return Level(
            "L4",
            TITLE,
            NOT_REACHED,
            notes=(*notes, "there is no optimizer on both sides"),
        )
    forced = Forced.of(reference.network, steps, seed, frozenset(never))
    candidate_shapes = _trainable_shapes(candidate.network.neutral_slots())
    partners, shapes = names or {}, {}
    for name, shape in forced.shapes.items():
        if candidate_shapes.get(partners.get(name, name)) == shape:
            shapes[name] = shape
    left_out = without(forced.shapes, shapes)
    networks = (reference.network, candidate.network)
    largest = _LARGEST if all(map(_is_resizable, networks)) else math.inf
    shapes = {name: _reduced(shape, largest) for name, shape in shapes.items()}
    if left_out:
        named = ", ".join(left_out)
        notes.append(
            f"not judged, without a parameter like it in the candidate: {named}"
        )
    if not shapes:
        return Level("L4", TITLE, NOT_REACHED, notes=tuple(notes))
    forced = replace(forced, shapes=shapes)
    findings: list[Finding] = []
    differences: dict[str, float] = {}
    few = replace(forced, shapes=_one_of_each_kind(reference.network, forced))
    for name in shared:
        makes = reference.optimizers[name], candidate.optimizers[name]
        make_reference = partial(_Side, reference.network, makes[0], {}, largest)
        make_candidate = partial(_Side, candidate.network, makes[1], partners, largest)
        is_one_rule = isinstance(makes[0], Following) and makes[0] == makes[1]
        try:
            run = _in_step(
                name, few if is_one_rule else forced, make_reference, make_candidate
            )
        except _CandidateRaised as raised:
            findings.append(
                Finding("L4", f"optimizer {name}", f"raises {raised}", np.inf)
            )
            continue
        findings += run.findings()
        if run.hides:
            notes.append(
                f"optimizer {name}: a side hides its learning rate, which did not change therefore"
            )
        differences[name] = run.worst
    worst = max([*differences.values(), *(f.difference for f in findings)])
    return Level.judged("L4", TITLE, worst, findings, notes, differences=differences)


def _one_of_each_kind(network: AbstractNetwork, forced: Forced) -> dict[str, Shape]:
    """The first parameter of each name in each kind of layer: one rule treats the others alike."""
    kinds = block_kinds(network)
    found: dict[Any, str] = {}
    for name in forced.shapes:
        path, _, leaf = name.rpartition(".")
        found.setdefault((kinds.get(path), leaf, name in forced.never), name)
    return only(forced.shapes, found.values())


# What is forced
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Forced:
    """The parameters and gradients of each step, the same on every machine.

    Attributes:
        shapes: Of the trainable parameters, by neutral name; of a tied one under its first name.
        steps: How many.
        seed: Keys the numbers, together with each parameter's name and the step.
        never: Parameters that take no part in any step.
    """

    shapes: Mapping[str, Shape]
    steps: int
    seed: int
    never: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        network: AbstractNetwork,
        steps: int,
        seed: int,
        never: frozenset[str] = frozenset(),
    ) -> Forced:
        """For the parameters of a network."""
        shapes = _trainable_shapes(each_once(network.neutral_slots()))
        return cls(shapes, steps, seed, never)

    @property
    def middle(self) -> int:
        """The first step with the lower learning rate."""
        return self.steps // 2

    def parameters(self, step: int) -> Tensors:
        """Return the parameters before a step, numbers that float32 holds.

        They are as small as the gradients, so that no update is lost in rounding.
        """
        scale = min(SCALES[step % len(SCALES)], 1.0)
        return {
            name: self._draw("parameter", name, step, scale) for name in self.shapes
        }

    def gradients(self, step: int) -> Tensors:
        """The gradients of a step, numbers that float32 holds, without those that take no part.

        Some are exactly zero.
        """
        return {
            name: self._gradient(name, step)
            for name in without(self.shapes, self.never)
        }

    def _gradient(self, name: str, step: int) -> np.ndarray:
        gradient = self._draw("gradient", name, step, SCALES[step % len(SCALES)])
        if step == self.middle - 1 and name == next(iter(self.shapes)):
            return gradient * 0.0  # which is not the same as taking no part
        if step % 3 == 1:
            gradient.reshape(-1)[::3] = 0.0
        return gradient

    def _draw(self, what: str, name: str, step: int, scale: float) -> np.ndarray:
        key = start.key(self.seed, f"{what} {name}")
        generator = np.random.Generator(
            np.random.Philox(key=key, counter=[0, 0, 0, step])
        )
        numbers = generator.standard_normal(self.shapes[name]) * scale
        return numbers.astype(np.float32).astype(np.float64)


def linear(network: AbstractNetwork, gradients: Named) -> Any:
    """Return a loss whose gradients are the given ones, in the native layout.

    It is the sum of each parameter times its gradient.
    """
    slots, nn = network.neutral_slots(), network.nn
    total = sum(
        nn.sum(slots[name].native * gradient) for name, gradient in gradients.items()
    )
    return total.real if "complex" in str(total.dtype) else total


class _Side:
    """A copy of one side's network with its optimizer."""

    def __init__(
        self,
        network: AbstractNetwork,
        make: Make,
        names: Mapping[str, str] | None = None,
        largest: float = _LARGEST,
    ) -> None:
        self.network = copy.deepcopy(network)
        for slot in self.network.neutral_slots().values():
            if slot.trainable and slot.size > largest:
                slot.resize(_reduced(slot.shape, largest))
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

    def step(self, parameters: Tensors, gradients: Tensors, lr: float | None) -> None:
        """Make one update from these parameters with these gradients."""
        for name, value in parameters.items():
            self._slot(name).write(value)
        self.network.parallelism.copy_parameters()
        if lr is not None:
            self.optimizer.lr = lr
        batch = {}
        for name, value in gradients.items():
            batch[self._name(name)] = self._slot(name).in_native_layout(value)
        self.optimizer.update(linear, batch)

    def moved(self, before: Tensors) -> Tensors:
        """What the update added to each parameter."""
        return {
            name: wide(self._slot(name).read()) - value
            for name, value in before.items()
        }

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _slot(self, name: str) -> Any:
        return self.slots[self._name(name)]


def _is_resizable(network: AbstractNetwork) -> bool:
    slots = network.neutral_slots().values()
    return all(slot.is_resizable for slot in slots if slot.trainable)


def _reduced(shape: Shape, largest: float) -> Shape:
    """A shape of few elements, with each axis divided by one number: tall matrices stay tall."""
    divisor = 1
    reduced = shape
    while math.prod(reduced) > largest:
        divisor *= 2
        reduced = tuple(-(-size // divisor) for size in shape)
    return reduced


def _trainable_shapes(slots: Mapping[str, Slot]) -> dict[str, Shape]:
    """The shape of each trainable parameter."""
    return {name: slot.shape for name, slot in slots.items() if slot.trainable}


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


def _in_step(
    name: str,
    forced: Forced,
    make_reference: Callable[[], _Side],
    make_candidate: Callable[[], _Side],
) -> _Run:
    """Both sides with the same rates; by their own ones, if one has a schedule of its own."""
    run = _Run(name, forced, (make_reference(), _tried(make_candidate)), free=False)
    if run.moves:
        longer = replace(forced, steps=2 * forced.steps)
        run = _Run(name, longer, (make_reference(), _tried(make_candidate)), free=True)
    return run


class _Run:
    """One optimizer of both sides, in step.

    Args:
        name: Of the optimizer.
        forced: What they are fed.
        sides: The reference and the candidate.
        free: Whether each goes by its own learning rates: some have a schedule of their own, and
            what counts is the rate that an update uses.
    """

    def __init__(
        self, name: str, forced: Forced, sides: Sequence[_Side], free: bool
    ) -> None:
        self.name, self.forced = name, forced
        self.reference, self.candidate = sides
        self.start = (self.reference.lr, self.candidate.lr)
        self.hides, self.moves = None in self.start, False
        self.free = free or self.hides
        # by step: how far each parameter's update is off, relative to itself, and how far
        # parameters have moved without a gradient, relative to themselves
        self.updates: list[dict[str, float]] = []
        self.unused: list[dict[str, float]] = []
        self.rates: list[float] = []  # of the reference, before each update
        self.recorded: list[
            tuple[Tensors, ...]
        ] = []  # what was fed, and what was made of it
        for step in range(forced.steps):
            self._step(step)

    def _step(self, step: int) -> None:
        parameters = self.forced.parameters(step)
        gradients = self.forced.gradients(step)
        base = self.start[0] or 0.1
        if step >= self.forced.middle:
            base *= DROP
        rate = None if self.free else base
        used = self.reference.lr if rate is None else rate
        self.rates.append(1.0 if used is None else used)
        self.reference.step(parameters, gradients, rate)
        _tried(partial(self.candidate.step, parameters, gradients, rate))
        if rate is not None:
            now = (self.reference.lr, self.candidate.lr)
            self.moves |= any(one is None or _relative(rate, one) > 0 for one in now)
        expected, actual = (
            self.reference.moved(parameters),
            self.candidate.moved(parameters),
        )
        self.recorded.append((parameters, gradients, expected, actual))
        updates, unused = {}, {}
        for name, before in parameters.items():
            size = norm(before)
            if name in gradients:
                updates[name] = _difference(
                    expected[name], actual[name], _ROUNDING * size
                )
            else:
                unused[name] = norm(actual[name]) / (size or 1.0)
        self.updates.append(updates)
        self.unused.append(unused)

    def findings(self) -> Iterator[Finding]:
        """Yield what differs: the learning rate, the updates, unused parameters."""
        place, (expected, actual) = f"optimizer {self.name}", self.start
        if not self.free and expected and actual and _relative(expected, actual):
            words = f"lr={actual:g} instead of {expected:g} (learning rate times {actual / expected:g})"
            yield Finding(
                "L4",
                place,
                "learning rate",
                _relative(expected, actual),
                explanation=Explanation.from_observation(words),
            )
        # Parameters that differ, and those that move without a gradient.
        cause = None
        for what, steps in (
            ("update", self.updates),
            ("unused parameter", self.unused),
        ):
            found = _beyond(steps)
            if not found:
                continue
            cause = cause or explaining.explain(self.trace())
            step, first = next(iter(found))
            wrong, every = {name for _, name in found}, set().union(*steps)
            remark = f"It concerns {len(wrong)} of {len(every)} parameters."
            words, size = f"{what} {first} at step {step + 1}", max(found.values())
            remarks: tuple[str, ...] = (remark,)
            if cause is None or not cause.known:
                remarks += like_float32(size)
            yield Finding("L4", place, words, size, explanation=cause, remarks=remarks)

    @property
    def worst(self) -> float:
        """The largest difference of an update."""
        return max((far for step in self.updates for far in step.values()), default=0.0)

    def trace(self) -> Trace:
        """What an explanation is made from."""
        names, shapes = tuple(self.forced.shapes), self.forced.shapes.values()
        sizes = tuple(map(math.prod, shapes))

        def rows(place: int) -> np.ndarray:
            found = []
            for recorded in self.recorded:
                arrays = map(recorded[place].get, names, map(np.zeros, sizes))
                found.append(np.concatenate(list(map(np.ravel, arrays))))
            return np.stack(found)

        present = []
        for recorded in self.recorded:
            present.append([name in recorded[1] for name in names])
        trace = Trace(
            names=names,
            sizes=sizes,
            axes=tuple(map(len, shapes)),
            parameters=rows(0),
            gradients=rows(1),
            present=np.repeat(np.array(present), sizes, axis=1),
            rates=np.array(self.rates),
            reference=rows(2),
            candidate=rows(3),
        )
        expected, actual = (
            explaining.form_of_groups(trace, _forms(side.optimizer, names))
            for side in (self.reference, self.candidate)
        )
        return replace(trace, form=expected, other=actual)


def _beyond(steps: Sequence[Mapping[str, float]]) -> dict[tuple[int, str], float]:
    """What is above the limit, by step and parameter."""
    found = {}
    for step, values in enumerate(steps):
        for name, value in values.items():
            if not value <= LIMIT:
                found[step, name] = value
    return found


def _settings(optimizer: AbstractOptimizer) -> dict[str, Any]:
    """What an optimizer of a framework's own shows; nothing where it has no learning rate."""
    try:
        return optimizer.settings()
    except DeliralikeError:
        return {}


def _forms(optimizer: AbstractOptimizer, names: Sequence[str]) -> list[Form]:
    """The forms of an optimizer's rule in its groups, as far as they are known, none twice."""
    groups, settings = optimizer.groups, _settings(optimizer)
    if groups is not None:
        rules = [groups.rules[groups.index(name)] for name in names]
        kind, parts = type(rules[0]).__name__, [vars(rule) for rule in rules]
    else:
        kind, parts = settings.get("class", ""), settings.get("groups", [settings])
    hooks, forms = [], []
    for hook in optimizer.pre_update_hooks:
        if not isinstance(hook, AccumulateGradients):
            hooks.append(hook)
    for part in parts:
        form = form_of(kind, part, hooks)
        if form is not None and form not in forms:
            forms.append(form)
    return forms


# Numbers
# -----------------------------------------------------------------------------


def _difference(reference: np.ndarray, candidate: np.ndarray, allowed: float) -> float:
    """Return the relative difference of two updates beyond what rounding of the parameter allows."""
    size, difference = norm(reference), norm(candidate - reference)
    if difference <= allowed:
        return 0.0
    return (difference - allowed) / size if size and np.isfinite(difference) else np.inf


def _relative(reference: float, candidate: float) -> float:
    difference = abs(candidate - reference)
    if difference <= LIMIT * abs(reference):
        return 0.0
    return difference / (abs(reference) or 1.0)
