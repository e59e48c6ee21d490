"""Level L5 (free curves): training steps in float64 from the same start.

The loss curve in float32 is drawn, never judged.

In float32 two right backends drift apart: what remains to be said of that curve is whether it stays
among those of the reference when its parameters are disturbed by as much as float32 rounds them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.agreement import differences as each_difference
from deliralike.conformance.findings import FAILED, LIMIT, NOT_REACHED, PASSED, Finding, Level
from deliralike.conformance.last_bit import allowed, parameter_slots, shake_parameters
from deliralike.conformance.levels.rounding import with_noise
from deliralike.conformance.levels.stepping import rate_of
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.pairing import COUNTER
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError
from deliralike.network.base import AbstractNetwork
from deliralike.nn import start
from deliralike.optim.optimizer import AbstractOptimizer

TITLE = "loss curve in float64"
NOISE = (
    2.0**-24 / 3.0**0.5
)  # the deviation of a relative rounding error in float32, which is uniform

Batch = tuple[Any, ...]


def level(
    reference: Subject,
    candidate: Subject,
    batches: Sequence[Batch],
    steps: int = 20,
    names: Mapping[str, str] | None = None,
    seed: int = 0,
    in_float32: bool = True,
    noisy_runs: int = 4,
    match: Match | None = None,
    gradients: Mapping[str, Any] | None = None,
) -> Level:
    """Train both sides with the first optimizer that they share; compare losses and parameters.

    Args:
        reference, candidate: Networks in float64 with the same parameters; they stay as they are.
        batches: What the losses take after the network, NumPy arrays; after the last one comes the
            first again.
        steps: How many.
        names: The candidate's name of a parameter by the reference's, where they differ.
        seed: Of the portable masks of random layers.
        in_float32: Whether the candidate's curve in float32 is drawn, too.
        match: Of the candidate's names, where more than names of parameters differ.
        noisy_runs: How many disturbed runs of the reference make the band around it.
        gradients: Of the reference on the first batch in training, where they are known.
    """
    optimizer = next((name for name in reference.optimizers if name in candidate.optimizers), None)
    if optimizer is None or not batches:
        reason = "there are no batches" if optimizer else "there is no optimizer on both sides"
        return Level("L5", TITLE, NOT_REACHED, notes=(reason,))
    mine, other = (
        _Training(reference, optimizer, batches, seed),
        _Training(candidate, optimizer, batches, seed),
    )
    curves = {"reference": list(mine.losses(steps)), "candidate": list(other.losses(steps))}
    if gradients is None:
        gradients = _gradients(reference, batches[0], seed)
    null = compare(gradients, gradients).null  # as of a bias in front of a batch norm
    differences = [relative_difference(one, two) for one, two in zip(*curves.values(), strict=True)]
    notes = (
        [f"the gradient of {', '.join(null)} is zero up to rounding: not compared"] if null else []
    )
    pair = _Pair(mine, other, dict(names or {}), null, match)
    found = [*_of_losses(differences), *_at_the_end(pair, steps)]
    findings = found
    if found:
        again = _Training(reference, optimizer, batches, seed)
        findings = _beyond_rounding(found, differences, curves["reference"], again, mine, null)
    if findings:
        fresh = [_Training(side, optimizer, batches, seed) for side in (reference, candidate)]
        first = list(_parting(replace(pair, mine=fresh[0], other=fresh[1]), steps))
        of_loss = [one for one in findings if one.place == "loss"]
        findings = [*first, *of_loss] if first else findings
    if found and not findings:
        notes.append(
            f"free steps magnify rounding here, to {max(differences):.0e}: so much does the "
            "reference differ from itself with an error in the last bit of its parameters"
        )
    drawn: dict[str, Any] = {}
    if in_float32:
        drawn = _float32(reference, candidate, optimizer, batches, seed, steps, noisy_runs)
        notes += (
            []
            if drawn
            else [
                "no curve in float32: the candidate's backend cannot change the type of its network"
            ]
        )
    figures = {"optimizer": optimizer, "curves": curves | drawn, "null": [*null]}
    worst = max([*differences, *(finding.difference for finding in findings)])
    return Level(
        "L5", TITLE, FAILED if findings else PASSED, worst, tuple(findings), tuple(notes), figures
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
    first_end, second_end = (
        {
            name: slot.read()
            for name, slot in one.network.neutral_slots().items()
            if name not in null
        }
        for one in (mine, again)
    )
    end = allowed(max(compare(first_end, second_end).difference, moved[-1]))
    kept = {"loss": bool(beyond)}
    return [one for one in found if kept.get(one.place, not one.difference <= end)]


class _Training:
    """A copy of one side, trained with one of its optimizers."""

    def __init__(
        self,
        subject: Subject,
        optimizer: str,
        batches: Sequence[Batch],
        seed: int,
        network: AbstractNetwork | None = None,
    ) -> None:
        self.subject, self.batches, self.seed = subject, batches, seed
        self.network: AbstractNetwork = copy.deepcopy(
            subject.network if network is None else network
        )
        self.network.train()
        self.optimizer: AbstractOptimizer = subject.optimizers[optimizer](self.network)
        self.start = (self.network.neutral_state(), self.optimizer.neutral_state())

    def restart(self) -> None:
        """Go back to the start, with what was compiled."""
        state, of_optimizer = self.start
        self.network.load_neutral_state(state)
        self.optimizer.load_neutral_state(of_optimizer)

    def losses(
        self, steps: int, noise: np.random.Generator | None = None, run: int = 0
    ) -> Iterator[float]:
        """Yield the loss of each step before its update, when that is made.

        With `noise`, parameters and operations are rounded at random.
        """
        loss_function = self.subject.loss if noise is None else with_noise(self.subject, run).loss
        for step in range(steps):
            if self.subject.schedule is not None:
                self.optimizer.lr = self.subject.schedule(step)
            if noise is not None:
                _disturb(self.network, noise)
            batch = self.batches[step % len(self.batches)]
            with random.portable(self.seed, step):
                result = self.optimizer.update(loss_function, *batch)
            loss = result[0] if isinstance(result, tuple) else result
            yield self.network.backend.number(loss)


@dataclass(frozen=True)
class _Pair:
    """Both sides in training, and which of their tensors correspond.

    Attributes:
        names: The candidate's name of a parameter by the reference's, where they differ.
        null: Parameters whose gradient is rounding.
        match: Of the candidate's names, where more than names of parameters differ.
    """

    mine: _Training
    other: _Training
    names: Mapping[str, str]
    null: Sequence[str]
    match: Match | None = None

    def tensors(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of both as they are now, and the buffers that no null gradient reaches."""
        slots, reached = self.mine.network.neutral_slots(), self.other.network.neutral_state()
        wanted, names = {}, self.names
        for name, slot in slots.items():
            if name not in self.null and (slot.is_parameter or not self.null):
                wanted[name] = slot.read()
        if self.match is not None:
            reached, names = self.match.to_reference(reached), {}
            both = [name for name in wanted if name in reached and not name.endswith(COUNTER)]
            wanted = {name: wanted[name] for name in both}
        return wanted, {name: reached.get(names.get(name, name)) for name in wanted}


def _disturb(network: AbstractNetwork, noise: np.random.Generator) -> None:
    """Round the parameters as much as float32 would, at random."""
    for slot in parameter_slots(network):
        value = slot.read()
        slot.write(value * (1.0 + NOISE * noise.standard_normal(value.shape)))


def _float32(
    reference: Subject,
    candidate: Subject,
    optimizer: str,
    batches: Sequence[Batch],
    seed: int,
    steps: int,
    runs: int,
) -> dict[str, Any]:
    """Return the candidate's curve in float32 and the band of the reference's disturbed runs.

    The result is empty if there is no such curve.
    """
    try:
        short = candidate.network.backend.in_dtype(candidate.network, "float32")
    except DeliralikeError:
        return {}
    curve = list(_Training(candidate, optimizer, batches, seed, short).losses(steps))
    training, noisy = _Training(reference, optimizer, batches, seed), []
    for run in range(runs):
        training.restart()
        key = start.key(seed, f"noise of run {run}")
        disturbing = np.random.Generator(np.random.Philox(key=key))
        noisy.append(list(training.losses(steps, disturbing, run)))
    return {"float32": curve} | ({"band": _band(np.array(noisy))} if noisy else {})


def _band(losses: np.ndarray) -> list[list[float]]:
    """Return the band of three deviations around the mean of runs, ``(runs, steps)``.

    The rounding of the loss itself is part of the deviation.
    """
    mean = losses.mean(0)
    deviation = 3.0 * np.hypot(losses.std(0), NOISE * mean)
    return [(mean - deviation).tolist(), (mean + deviation).tolist()]


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
