"""Level L5 (free curves): training steps in float64 from the same start.

In float32 two right backends drift apart, so that nothing could be said of such a curve.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike import random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.agreement import differences as each_difference
from deliralike.conformance.by_name import block_kinds, only, owner, without
from deliralike.conformance.findings import LIMIT, NOT_REACHED, Finding, Level
from deliralike.conformance.freeing import collect
from deliralike.conformance.kinds import Batch, Named
from deliralike.conformance.last_bit import allowed, shake_parameters
from deliralike.conformance.levels.stepping import rate_of
from deliralike.conformance.matching import Match
from deliralike.conformance.one_step import null_gradients
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import value_of
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.weights.matching.pairing import COUNTER

TITLE = "loss curve in float64"


def level(
    reference: Subject,
    candidate: Subject,
    batches: Sequence[Batch],
    steps: int = 20,
    match: Match | None = None,
    null: Sequence[str] | None = None,
) -> Level:
    """Train both sides with the first optimizer that they share; compare losses and parameters.

    Args:
        reference, candidate: Networks in float64 with the same parameters; they stay as they are.
        batches: What the losses take after the network, NumPy arrays; after the last one comes the
            first again.
        steps: How many.
        match: Of the candidate's names, where they differ.
        null: Parameters whose gradient on the first batch is zero but for rounding, as of a bias in
            front of a batch norm; found out when None.
    """
    shared = list(only(reference.optimizers, candidate.optimizers))
    if not shared:
        return Level("L5", TITLE, NOT_REACHED, notes=("there is no optimizer on both sides",))
    if not batches:
        return Level("L5", TITLE, NOT_REACHED, notes=("there are no batches",))
    optimizer = shared[0]
    if null is None:
        null = null_gradients(reference, batches[0])
    train = partial(_Training, optimizer=optimizer, batches=batches)
    compared = _Compared.of(reference.network, null, match)
    curves, ends = {}, []
    for name, side in (("reference", reference), ("candidate", candidate)):
        curves[name], end = _trained(train(side), steps)
        ends.append(end)
        collect(side.network)  # its gradients and states, before the other side's are made
    differences = [relative_difference(one, two) for one, two in zip(*curves.values(), strict=True)]
    notes = []
    if null:
        notes.append(f"the gradient of {', '.join(null)} is zero up to rounding: not compared")
    found = [*_of_losses(differences), *_at_the_end(compared.tensors(*ends), steps)]
    findings = found
    if found:
        again = train(reference)
        findings = _beyond_rounding(found, differences, curves["reference"], again, ends[0], null)
    if findings:
        ends.clear()
        first = list(_parting(train(reference), train(candidate), compared, steps))
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
    end: Named,
    null: Sequence[str],
) -> list[Finding]:
    """Return the findings that are not rounding magnified by the network, found by experiment.

    Args:
        found: What differs by more than the limit.
        differences: Of the losses, step by step.
        losses: Of the reference.
        again: The reference at its start; it is trained once more with an error in the last bit of
            its parameters.
        end: The parameters and buffers of the reference after its last step.
    """
    shake_parameters(again.network)
    pairs = zip(losses, again.losses(len(differences)), strict=True)
    moved = np.maximum.accumulate([relative_difference(one, two) for one, two in pairs])
    is_within = np.asarray(differences) <= np.maximum(LIMIT, [allowed(one) for one in moved])
    ends = compare(without(end, null), without(again.network.neutral_state(), null))
    limit = allowed(max(ends.difference, moved[-1]))
    kept = []
    for one in found:
        if one.place == "loss":
            is_rounding = bool(is_within.all())
        else:
            is_rounding = one.difference <= limit
        if not is_rounding:
            kept.append(one)
    return kept


class _Training:
    """A copy of one side, trained with one of its optimizers."""

    def __init__(self, subject: Subject, optimizer: str, batches: Sequence[Batch]) -> None:
        self.subject, self.batches = subject, batches
        self.network: AbstractNetwork = copy.deepcopy(subject.network)
        self.network.train()
        self.optimizer: AbstractOptimizer = subject.optimizers[optimizer](self.network)

    def losses(self, steps: int) -> Iterator[float]:
        """Yield the loss of each step before its update, when that is made."""
        for step in range(steps):
            if self.subject.schedule is not None:
                self.optimizer.lr = self.subject.schedule(step)
            batch = self.batches[step % len(self.batches)]
            with random.portable(step=step):
                result = self.optimizer.update(self.subject.loss, *batch)
            yield self.network.backend.number(value_of(result))


def _trained(training: _Training, steps: int) -> tuple[list[float], Named]:
    """Return the losses of all steps, and the parameters and buffers after the last one."""
    losses = []
    for loss in training.losses(steps):
        losses.append(loss)
        collect(training.network)  # what the step has left, before the next one needs more
    del training.optimizer  # its states
    return losses, training.network.neutral_state()


@dataclass(frozen=True)
class _Compared:
    """The tensors of two networks in training that correspond.

    Attributes:
        names: The parameters of the reference without those whose gradient is rounding, and the
            buffers if there are none of these.
        match: Of the candidate's names, where they differ.
    """

    names: Sequence[str]
    match: Match | None = None

    @classmethod
    def of(cls, network: AbstractNetwork, null: Sequence[str], match: Match | None) -> _Compared:
        """Of the reference's network, with the parameters whose gradient is rounding."""
        names = []
        for name, slot in network.neutral_slots().items():
            if name not in null and (slot.is_parameter or not null):
                names.append(name)
        return cls(names, match)

    def tensors(self, mine: Named, its: Named) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return those of the reference and of the candidate, under the reference's names."""
        names: Sequence[str] = self.names
        if self.match is not None:
            its = self.match.to_reference(its)
            names = [name for name in names if name in its and not name.endswith(COUNTER)]
        return {name: mine[name] for name in names}, {name: its.get(name) for name in names}


def _of_losses(differences: Sequence[float]) -> Iterator[Finding]:
    wrong = [step for step, difference in enumerate(differences) if not difference <= LIMIT]
    if wrong:
        count = f"It concerns {len(wrong)} of {len(differences)} steps."
        what = f"first at step {wrong[0] + 1}"
        yield Finding(
            "L5", "loss", what, max(differences[step] for step in wrong), remarks=(count,)
        )


def _at_the_end(tensors: tuple[Named, Named], steps: int) -> Iterator[Finding]:
    """Yield the tensor that differs most in the end."""
    found = compare(*tensors)
    if not found.difference <= LIMIT:
        yield Finding("L5", found.worst, f"value after {steps} steps", found.difference)


def _parting(
    mine: _Training, other: _Training, compared: _Compared, steps: int
) -> Iterator[Finding]:
    """Yield the tensor that differs most after the first step that leaves a difference.

    Args:
        mine, other: The reference and the candidate at their start.
        compared: The tensors that are compared.
        steps: How many steps are made at most.
    """
    sides = mine, other
    for step, _ in enumerate(zip(*(side.losses(steps) for side in sides), strict=True), 1):
        states = [side.network.neutral_state() for side in sides]
        found = each_difference(*compared.tensors(*states))
        apart = {name: size for name, size in found.items() if not size <= LIMIT}
        if not apart:
            continue
        worst = max(apart, key=apart.__getitem__)
        remarks = [f"It concerns {len(apart)} of {len(found)} parameters and buffers."]
        if step > 1:
            remarks.append("Up to the step before, all of them are the same.")
        rate, its = (rate_of(side.optimizer) for side in sides)
        if rate is not None and its is not None and relative_difference(rate, its) > LIMIT:
            remarks.append(f"The learning rate of this step is {its:.6g} instead of {rate:.6g}.")
        kind = block_kinds(mine.network).get(owner(worst), "")
        what = f"first after step {step}"
        yield Finding("L5", worst, what, apart[worst], kind, remarks=tuple(remarks))
        return
