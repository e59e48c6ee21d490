"""Faults between the replicas of a reference: in masks, sums, accumulated gradients and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.shares import (
    Shares,
    Variant,
    close,
    combined,
    fitted,
    numbers,
    same_shapes,
)
from deliralike.conformance.one_step import Step, optimizers_of, take_step, take_updates
from deliralike.conformance.replica_changes import (
    Accumulated,
    HookedEach,
    Stale,
    Weighted,
    hooked,
    of_share,
    with_masks_of_first,
)
from deliralike.conformance.subject import Replicate, Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel import AccumulateGradients

_ALIKE = "the same masks in every replica (dropout streams that all begin at sample 0)"


class Between:
    """The reference over replicas of its own backend."""

    def __init__(self, shares: Shares, replicate: Replicate) -> None:
        """Nothing is computed yet."""
        self.shares, self.make = shares, shares.reference.replicate or replicate

    def subject(self, loss: LossFunction | None = None) -> Subject:
        """The reference with a loss in replicas, whose shares count what they should."""
        weights = self.shares.weights.tolist()
        whole = Weighted(loss or of_share(self.shares.reference.loss), weigh=lambda sizes: weights)
        return self.shares.reference.but(loss=whole)

    def replicas(self) -> Any:
        """The reference's network, replicated."""
        return self.make(self.shares.reference.network, self.shares.count)

    def of_masks(self) -> Iterator[Variant]:
        """Masks that begin anew in every replica, where replicas are right without."""
        function = of_share(self.shares.reference.loss)
        right = self._of_loss(function)
        kinds = [kind for kind, given in right.items() if close(self.shares.wanted[kind], given)]
        if kinds:
            found = self._of_loss(with_masks_of_first(function))
            yield _ALIKE, {kind: found[kind] for kind in kinds}

    def _of_loss(self, loss: LossFunction) -> Step:
        step = take_step(self.subject(loss), self.replicas(), self.shares.batch)
        return {kind: step[kind] for kind in ("loss", "gradient", "buffer")}

    # Gradients
    # -------------------------------------------------------------------------

    @cached_property
    def gradients(self) -> list[Step]:
        """What each replica's backward pass leaves in it."""
        return [self._left_in(replica) for replica in range(self.shares.count)]

    def _left_in(self, replica: int) -> Step:
        one = np.eye(self.shares.count)[replica].tolist()
        network = hooked(self.replicas(), partial(Accumulated, factors=lambda count: one))
        return {"gradient": take_step(self.subject(), network, self.shares.batch)["gradient"]}

    def of_accumulation(self, came: Step) -> Iterator[Variant]:
        """Gradients of replicas that do not come together as a sum."""
        ones = np.ones(self.shares.count)
        if not close(self.shares.wanted["gradient"], self._combined(ones)["gradient"]):
            return
        for r, own in enumerate(np.eye(self.shares.count)):
            yield f"the gradient of replica {r} is lost in accumulation", self._combined(ones - own)
            yield f"only the gradient of replica {r} is used", self._combined(own)
        if same_shapes(came["gradient"], self.gradients[0]["gradient"]):
            factors = fitted(self.gradients, came)
            words = f"the gradients of the replicas count {numbers(factors)} when they are added"
            yield words, self._combined(factors)

    def _combined(self, factors: Sequence[float] | np.ndarray) -> Step:
        return {"gradient": combined(self.gradients, factors)["gradient"]}

    # Updates
    # -------------------------------------------------------------------------

    def of_updates(self) -> Iterator[Variant]:
        """Hooks at the wrong moment, and what replicas do not take over."""
        shares = self.shares
        if not any("update" in kind for kind in shares.wanted):
            return  # gradients differ already
        right = self._updates()
        kinds = [kind for kind, given in right.items() if close(shares.wanted[kind], given)]
        for words, change in _OPTIMIZERS.items():
            found = self._updates(change)
            yield words, {kind: found[kind] for kind in kinds}
        found = self._updates(network=hooked(self.replicas(), AccumulateGradients, Stale))
        yield _STALE, {kind: found[kind] for kind in kinds}

    def _updates(
        self, change: Callable[[AbstractOptimizer], None] | None = None, network: Any = None
    ) -> Step:
        def make(original: Callable[[AbstractNetwork], Any], network: Any) -> AbstractOptimizer:
            optimizer = original(network)
            if change is not None:
                change(optimizer)
            return optimizer

        originals = optimizers_of(self.shares.reference).items()
        made = {name: partial(make, original) for name, original in originals}
        subject = self.subject().but(optimizers=made)
        return take_updates(subject, network or self.replicas(), self.shares.batch)


def _hooks_on_each(optimizer: AbstractOptimizer) -> None:
    others = optimizer.pre_update_hooks[1:]
    optimizer.pre_update_hooks = [HookedEach(optimizer.network, others)]


def _hooks_first(optimizer: AbstractOptimizer) -> None:
    hooks = optimizer.pre_update_hooks
    optimizer.pre_update_hooks = [*hooks[1:], *hooks[:1]]


_CLIPPED = "gradients clipped (by the optimizer's hooks)"
_OPTIMIZERS: dict[str, Callable[[AbstractOptimizer], None]] = {
    f"{_CLIPPED} in each replica, before accumulation": _hooks_on_each,
    f"{_CLIPPED} in the root alone, before accumulation": _hooks_first,
}
_STALE = "stale parameters: replicas do not take over what the update made"
