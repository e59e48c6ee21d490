"""Level L5 (free curves): training steps in float64 from the same start.

In float32 two right backends drift apart, so that nothing could be said of such a curve.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.agreement import differences as each_difference
from deliralike.conformance.findings import LIMIT, NOT_REACHED, Finding, Level
from deliralike.conformance.freeing import collect
from deliralike.conformance.last_bit import allowed, shake_parameters
from deliralike.conformance.levels.stepping import rate_of
from deliralike.conformance.matching import Match
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.weights.matching.pairing import COUNTER

TITLE = "loss curve in float64"

Batch = tuple[Any, ...]


def level(
    reference: Subject,
    candidate: Subject,
    batches: Sequence[Batch],
    steps: int = 20,
    seed: int = 0,
    match: Match | None = None,
    null: Sequence[str] | None = None,
) -> Level:
    """Train both sides with the first optimizer that they share; compare losses and parameters.

    Args:
        reference, candidate: Networks in float64 with the same parameters; they stay as they are.
        batches: What the losses take after the network, NumPy arrays; after the last one comes the
            first again.
        steps: How many.
        seed: Of the portable masks of random layers.
        match: Of the candidate's names, where they differ.
        null: Parameters whose gradient on the first batch is zero but for rounding, as of a bias in
            front of a batch norm; found out when None.
    """
    optimizer = next((name for name in reference.optimizers if name in candidate.optimizers), None)
    if optimizer is None or not batches:
        reason = "there are no batches" if optimizer else "there is no optimizer on both sides"
        return Level("L5", TITLE, NOT_REACHED, notes=(reason,))
    train = partial(_Training, optimizer=optimizer, batches=batches, seed=seed)
    mine, other = train(reference), train(candidate)
    curves = {}
    for name, training in (("reference", mine), ("candidate", other)):
        curves[name] = list(training.losses(steps))
        training.drop_optimizer()
        collect(training.network)
    if null is None:
        gradients = _gradients(reference, batches[0], seed)
        null = compare(gradients, gradients).null
    differences = [relative_difference(one, two) for one, two in zip(*curves.values(), strict=True)]
    notes = (
        [f"the gradient of {', '.join(null)} is zero up to rounding: not compared"] if null else []
    )
    pair = _Pair(mine, other, null, match)
    found = [*_of_losses(differences), *_at_the_end(pair, steps)]
    findings = found
    if found:
        again = train(reference)
        findings = _beyond_rounding(found, differences, curves["reference"], again, mine, null)
    if findings:
        fresh = replace(pair, mine=train(reference), other=train(candidate))
        first = list(_parting(fresh, steps))
        of_loss = [one for one in findings if one.place == "loss"]
        findings = [*first, *of_loss] if first else findings
    if found and not findings:
        notes.append(
            f"free steps magnify rounding here, to {max(differences):.0e}: so much does the "
            "reference differ from itself with an error in the last bit of its parameters"
        )
    worst = max([*differences, *(finding.difference for finding in findings)])
    return Level.judged(
        "L5", TITLE, worst, findings, notes, optimizer=optimizer, curves=curves, null=[*null]
    )


def _beyond_rounding(
    found: list[Finding],
    differences: Sequence[float],
    losses: Sequence[float],
    again: _Training,
    mine: _Training,
    null: Sequence[str],
) -> list[Finding]:
    """Return the findings that are not rounding magnified by the network, found by experiment.

    Args:
        found: What differs by more than the limit.
        differences: Of the losses, step by step.
        losses: Of the reference.
        again: The reference at its start; it is trained once more with an error in the last bit of
            its parameters.
        mine: The reference at its end.
    """
    shake_parameters(again.network)
    pairs = zip(losses, again.losses(len(differences)), strict=True)
    moved = np.maximum.accumulate([relative_difference(one, two) for one, two in pairs])
    beyond = [
        step for step, d in enumerate(differences) if not d <= max(LIMIT, allowed(moved[step]))
    ]
    first, second = (_but(null, one.network.neutral_state()) for one in (mine, again))
    ends = compare(first, second)
    end = allowed(max(ends.difference, moved[-1]))
    kept = {"loss": bool(beyond)}
    return [one for one in found if kept.get(one.place, not one.difference <= end)]


def _but(names: Sequence[str], state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}


class _Training:
    """A copy of one side, trained with one of its optimizers."""

    def __init__(
        self, subject: Subject, optimizer: str, batches: Sequence[Batch], seed: int
    ) -> None:
        self.subject, self.batches, self.seed = subject, batches, seed
        self.network: AbstractNetwork = copy.deepcopy(subject.network)
        self.network.train()
        self.optimizer: AbstractOptimizer = subject.optimizers[optimizer](self.network)

    def losses(self, steps: int) -> Iterator[float]:
        """Yield the loss of each step before its update, when that is made."""
        for step in range(steps):
            if self.subject.schedule is not None:
                self.optimizer.lr = self.subject.schedule(step)
            batch = self.batches[step % len(self.batches)]
            with random.portable(self.seed, step):
                result = self.optimizer.update(self.subject.loss, *batch)
            loss = result[0] if isinstance(result, tuple) else result
            yield self.network.backend.number(loss)

    def drop_optimizer(self) -> None:
        """Free the states of the optimizer, after the last step."""
        del self.optimizer


@dataclass(frozen=True)
class _Pair:
    """Both sides in training, and which of their tensors correspond.

    Attributes:
        null: Parameters whose gradient is rounding.
        match: Of the candidate's names, where they differ.
    """

    mine: _Training
    other: _Training
    null: Sequence[str]
    match: Match | None = None

    def tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of both as they are now, and the buffers that no null gradient reaches."""
        slots, reached = self.mine.network.neutral_slots(), self.other.network.neutral_state()
        wanted = {
            name: slot.read()
            for name, slot in slots.items()
            if name not in self.null and (slot.is_parameter or not self.null)
        }
        if self.match is not None:
            reached = self.match.to_reference(reached)
            both = [name for name in wanted if name in reached and not name.endswith(COUNTER)]
            wanted = {name: wanted[name] for name in both}
        return wanted, {name: reached.get(name) for name in wanted}


def _gradients(subject: Subject, batch: Batch, seed: int) -> Mapping[str, Any]:
    """The gradients in training mode; the subject's network stays as it is."""
    network = copy.deepcopy(subject.network)
    network.train()
    with random.portable(seed, 0):
        return network.backend.gradients(subject.loss, network, *batch).parameters


def _of_losses(differences: Sequence[float]) -> Iterator[Finding]:
    wrong = [step for step, difference in enumerate(differences) if not difference <= LIMIT]
    if wrong:
        count = f"It concerns {len(wrong)} of {len(differences)} steps."
        what = f"first at step {wrong[0] + 1}"
        yield Finding(
            "L5", "loss", what, max(differences[step] for step in wrong), remarks=(count,)
        )


def _at_the_end(pair: _Pair, steps: int) -> Iterator[Finding]:
    """Yield the tensor that differs most in the end."""
    found = compare(*pair.tensors())
    if not found.difference <= LIMIT:
        yield Finding("L5", found.worst, f"value after {steps} steps", found.difference)


def _parting(pair: _Pair, steps: int) -> Iterator[Finding]:
    """Yield the tensor that differs most after the first step that leaves a difference.

    The networks are trained from their start once more.
    """
    sides = pair.mine, pair.other
    for step, _ in enumerate(zip(*(side.losses(steps) for side in sides), strict=True), 1):
        found = each_difference(*pair.tensors())
        apart = {name: size for name, size in found.items() if not size <= LIMIT}
        if not apart:
            continue
        worst = max(apart, key=apart.__getitem__)
        remarks = [f"It concerns {len(apart)} of {len(found)} parameters and buffers."]
        if step > 1:
            remarks.append("Up to the step before, all of them are the same.")
        mine, its = (rate_of(side.optimizer) for side in sides)
        if mine is not None and its is not None and relative_difference(mine, its) > LIMIT:
            remarks.append(f"The learning rate of this step is {its:.6g} instead of {mine:.6g}.")
        block = dict(pair.mine.network.named_blocks()).get(worst.rpartition(".")[0])
        kind = "" if block is None else type(block).__name__
        what = f"first after step {step}"
        yield Finding("L5", worst, what, apart[worst], kind, remarks=tuple(remarks))
        return
