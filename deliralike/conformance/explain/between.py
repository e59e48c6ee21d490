"""The reference over replicas that do something wrong between them: masks, sums, accumulated gradients, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.shares import ALIKE, Shares, Variant, combined, fitted, numbers
from deliralike.conformance.one_step import Step, optimizers_of, take_step
from deliralike.conformance.replica_changes import (
    BIASED,
    MEAN_OF_STATISTICS,
    OWN_COUNT,
    UNBIASED_BY_SHARE,
    Accumulated,
    Change,
    HookedEach,
    Stale,
    Weighted,
    changed_inside,
    hooked,
    masks_from,
    of_share,
    without_gradient_of_others,
)
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer, LossFunction
from deliralike.parallel import AccumulateGradients

Replicate = Callable[[AbstractNetwork, int], Any]

_CHANGES: dict[str, Change] = {
    "batch norm synchronised forward alone: no gradient through the statistics of other shares": without_gradient_of_others,
    "synchronised batch norm takes the mean of the shares' statistics, however large they are": MEAN_OF_STATISTICS,
    "synchronised batch norm takes each share's own count of values for that of all": OWN_COUNT,
    "synchronised batch norm with a biased running variance": BIASED,
    "running variance made unbiased by each share's count of values": UNBIASED_BY_SHARE,
}
_MASKS: dict[str, Callable[[Any], Any]] = {
    ALIKE: lambda here: 0,
    "masks that begin at the number of the replica, not of its first sample": lambda here: here.index,
    "masks that begin as if there were shares of equal size, rounded up": lambda here: here.index * max(here.sizes),
    "masks that begin as if there were shares of equal size, rounded down": lambda here: here.index * min(here.sizes),
    "masks that begin at the end of each share": lambda here: here.first_sample + here.sizes[0],
}


class Between:
    """The reference over replicas of its own backend."""

    def __init__(self, shares: Shares, replicate: Replicate) -> None:
        """Nothing is computed yet."""
        self.shares, self.make = shares, shares.reference.replicate or replicate

    def step(self, loss: LossFunction | None = None, change: Callable[[Any], Any] = lambda network: network) -> Step:
        """One step over replicas with another loss of shares, or a changed network."""
        reference = self.shares.reference
        weights = self.shares.weights.tolist()
        whole = Weighted(loss or of_share(reference.loss), weigh=lambda sizes: weights)
        subject = reference.but(loss=whole)
        return take_step(subject, change(self.make(reference.network, self.shares.count)), self.shares.batch)

    def of_losses(self) -> Iterator[Variant]:
        """Masks and sums."""
        function = of_share(self.shares.reference.loss)
        for words, first in _MASKS.items():
            yield words, _of_loss(self.step(masks_from(function, first)))
        for words, change in _CHANGES.items():
            yield words, _of_loss(self.step(changed_inside(function, change)))

    # Gradients -------------------------------------------------------------------------------------------------------

    @cached_property
    def gradients(self) -> list[Step]:
        """What each replica's backward pass leaves in it."""
        return [self._left_in(replica) for replica in range(self.shares.count)]

    def _left_in(self, replica: int) -> Step:
        one = np.eye(self.shares.count)[replica].tolist()
        step = self.step(change=partial(hooked, before=partial(Accumulated, factors=lambda count: one)))
        return {"gradient": step["gradient"]}

    def of_accumulation(self, came: Step) -> Iterator[Variant]:
        """Gradients of replicas that do not come together as a sum."""
        count, sizes = self.shares.count, np.array(self.shares.sizes)
        each, ones = np.eye(count), np.ones(count)
        for r in range(count):
            yield f"the gradient of replica {r} is lost in accumulation", self._combined(ones - each[r])
            yield f"only the gradient of replica {r} is used", self._combined(each[r])
            yield f"the gradient of replica {r} counts twice", self._combined(ones + each[r])
            yield f"the gradient of replica {r} has the wrong sign", self._combined(ones - 2 * each[r])
            yield f"the gradient of replica {r} is used for all {count}", self._combined(count * each[r])
        yield "gradients of the replicas weighted by share once more", self._combined(sizes / sizes.sum())
        for of, text in ((came, ""), (_where_different(self.shares.wanted, came), " in some parameters")):
            parts = [{"gradient": {name: part["gradient"][name] for name in of["gradient"]}} for part in self.gradients]
            if of["gradient"] and all(
                np.shape(of["gradient"][n]) == np.shape(parts[0]["gradient"][n]) for n in of["gradient"]
            ):
                factors = fitted(parts, of)
                whole = self.shares.wanted["gradient"] | combined(parts, factors).get("gradient", {})
                yield (
                    f"the gradients of the replicas count {numbers(factors)} when they are added{text}",
                    {"gradient": whole},
                )

    def _combined(self, factors: Sequence[float] | np.ndarray) -> Step:
        return {"gradient": combined(self.gradients, factors)["gradient"]}

    # Updates ---------------------------------------------------------------------------------------------------------

    def of_updates(self) -> Iterator[Variant]:
        """Hooks at the wrong moment, and parameters that replicas do not take over."""
        yield (
            "gradients clipped (by the optimizer's hooks) in each replica, before accumulation",
            self._with(_hooks_on_each),
        )
        yield (
            "gradients clipped (by the optimizer's hooks) in the root alone, before accumulation",
            self._with(_hooks_first),
        )
        yield "the optimizer's hooks not called", self._with(_no_hooks)
        yield "the optimizer's hooks called twice", self._with(_hooks_twice)
        stale = self.step(change=partial(hooked, before=AccumulateGradients, after=Stale))
        yield "stale parameters: replicas that do not take over what the update made", _of_updates(stale)

    def _with(self, change: Callable[[AbstractOptimizer], None]) -> Step:
        reference = self.shares.reference
        weights = self.shares.weights.tolist()

        def make(
            original: Callable[[AbstractNetwork], AbstractOptimizer], network: AbstractNetwork
        ) -> AbstractOptimizer:
            optimizer = original(network)
            change(optimizer)
            return optimizer

        optimizers = {name: partial(make, original) for name, original in optimizers_of(reference).items()}
        loss = Weighted(of_share(reference.loss), weigh=lambda sizes: weights)
        subject = reference.but(loss=loss, optimizers=optimizers)
        return _of_updates(take_step(subject, self.make(reference.network, self.shares.count), self.shares.batch))


def _of_loss(step: Step) -> Step:
    return {kind: step[kind] for kind in ("loss", "gradient", "buffer")}


def _of_updates(step: Step) -> Step:
    return {kind: value for kind, value in step.items() if "update" in kind}


def _where_different(wanted: Step, came: Step) -> Step:
    """The gradients that are not the reference's."""
    return {"gradient": {name: value for name, value in came["gradient"].items()
                         if name in wanted["gradient"] and not np.allclose(value, wanted["gradient"][name], 1e-10, 1e-14)}}  # fmt: skip


def _hooks_on_each(optimizer: AbstractOptimizer) -> None:
    _, *others = optimizer.pre_update_hooks
    optimizer.pre_update_hooks = [HookedEach(optimizer.network, others)]


def _hooks_first(optimizer: AbstractOptimizer) -> None:
    accumulate, *others = optimizer.pre_update_hooks
    optimizer.pre_update_hooks = [*others, accumulate]


def _no_hooks(optimizer: AbstractOptimizer) -> None:
    optimizer.pre_update_hooks = optimizer.pre_update_hooks[:1]


def _hooks_twice(optimizer: AbstractOptimizer) -> None:
    optimizer.pre_update_hooks = [*optimizer.pre_update_hooks, *optimizer.pre_update_hooks[1:]]
