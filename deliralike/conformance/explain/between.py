"""Faults between the replicas of a reference: in masks, sums, accumulated gradients and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.share_weights import ALIKE
from deliralike.conformance.explain.shares import Shares, Variant, combined, fitted, numbers
from deliralike.conformance.findings import LIMIT
from deliralike.conformance.one_step import Step, optimizers_of, take_step, take_updates
from deliralike.conformance.replica_changes import (
    AVERAGED_SUMS,
    BIASED,
    MEAN_OF_STATISTICS,
    OWN_COUNT,
    UNBIASED_BY_SHARE,
    Accumulated,
    Change,
    HookedEach,
    Stale,
    Uncleared,
    Weighted,
    changed_inside,
    hooked,
    masks_from,
    of_share,
    without_gradient_of_others,
)
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel import AccumulateGradients

Replicate = Callable[[AbstractNetwork, int], Any]

_SHOWN = 3  # names of parameters in a sentence
_CHANGES: dict[str, Change] = {
    "batch norm synchronised forward alone: no gradient through the others' statistics": without_gradient_of_others,
    "synchronised batch norm takes the mean of the shares' statistics, however large they are": MEAN_OF_STATISTICS,
    "synchronised batch norm takes each share's own count of values for that of all": OWN_COUNT,
    "sums of statistics are averaged over the replicas, and then divided by all values": AVERAGED_SUMS,
    "synchronised batch norm with a biased running variance": BIASED,
    "running variance made unbiased by each share's count of values": UNBIASED_BY_SHARE,
}
_MASKS: dict[str, Callable[[Any], Any]] = {
    ALIKE: lambda here: 0,
    "masks that begin at the number of the replica, not of its first sample": lambda here: (
        here.index
    ),
    "masks that begin as if there were shares of equal size, rounded up": lambda here: (
        here.index * max(here.sizes)
    ),
    "masks that begin as if there were shares of equal size, rounded down": lambda here: (
        here.index * min(here.sizes)
    ),
    "masks that begin at the end of each share": lambda here: here.first_sample + here.sizes[0],
}


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

    def of_losses(self) -> Iterator[Variant]:
        """Masks and sums."""
        function = of_share(self.shares.reference.loss)
        for words, first in _MASKS.items():
            yield words, self._of_loss(masks_from(function, first))
        for words, change in _CHANGES.items():
            yield words, self._of_loss(changed_inside(function, change))

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
        count, sizes = self.shares.count, np.array(self.shares.sizes)
        ones = np.ones(count)
        for replica, alone in enumerate(np.eye(count)):
            for words, (all_of_them, of_this) in _COUNTED.items():
                factors = all_of_them * ones + of_this * alone
                yield words.format(replica), self._combined(factors)
            words = f"the gradient of replica {replica} is used for all {count}"
            yield words, self._combined(count * alone)
        for dtype in ("float32", "float16"):
            rounded = [_rounded(one, dtype) for one in self.gradients]
            yield f"gradients rounded to {dtype} before they are added", combined(rounded, ones)
        words = "gradients of the replicas weighted by share once more"
        yield words, self._combined(sizes / sizes.sum())
        whole, differing = came["gradient"], _where_different(self.shares.wanted, came)
        yield from self._fitted(whole, "")
        yield from self._fitted(differing, f", in {_named(list(differing))}")

    def _fitted(self, gradient: dict[str, Any], text: str) -> Iterator[Variant]:
        """Factors with which the replicas' gradients may have been added, of some parameters."""
        known = self.gradients[0]["gradient"]
        if not gradient or any(np.shape(known.get(n)) != np.shape(g) for n, g in gradient.items()):
            return
        parts = []
        for part in self.gradients:
            parts.append({"gradient": {name: part["gradient"][name] for name in gradient}})
        factors = fitted(parts, {"gradient": gradient})
        made = self.shares.wanted["gradient"] | combined(parts, factors)["gradient"]
        words = f"the gradients of the replicas count {numbers(factors)} when they are added{text}"
        yield words, {"gradient": made}

    def _combined(self, factors: Sequence[float] | np.ndarray) -> Step:
        return {"gradient": combined(self.gradients, factors)["gradient"]}

    # Updates
    # -------------------------------------------------------------------------

    def of_updates(self) -> Iterator[Variant]:
        """Hooks at the wrong moment, and what replicas do not take over or do not clear."""
        reference, batch = self.shares.reference, self.shares.batch
        repeated = take_updates(reference, reference.network, batch, steps=(0, 0))
        yield "the same masks in every step: replicas do not hear its number", repeated
        for words, change in _HOOKS.items():
            yield words, self._updates(change)
        for words, hooks in _REPLICAS.items():
            yield words, self._updates(network=hooked(self.replicas(), *hooks))

    def _updates(
        self, change: Callable[[AbstractOptimizer], None] | None = None, network: Any = None
    ) -> Step:
        def make(
            original: Callable[[AbstractNetwork], AbstractOptimizer], network: Any
        ) -> AbstractOptimizer:
            optimizer = original(network)
            if change is not None:
                change(optimizer)
            return optimizer

        originals = optimizers_of(self.shares.reference).items()
        subject = self.subject().but(
            optimizers={name: partial(make, original) for name, original in originals}
        )
        return take_updates(subject, network or self.replicas(), self.shares.batch)


def _rounded(step: Step, dtype: str) -> Step:
    short = {name: g.astype(dtype).astype(g.dtype) for name, g in step["gradient"].items()}
    return {"gradient": short}


def _where_different(wanted: Step, came: Step) -> dict[str, Any]:
    """The gradients that are not the reference's."""
    of_reference = wanted["gradient"]
    return {
        name: value
        for name, value in came["gradient"].items()
        if relative_difference(of_reference.get(name), value) > LIMIT
    }


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _hooks_on_each(optimizer: AbstractOptimizer) -> None:
    others = optimizer.pre_update_hooks[1:]
    optimizer.pre_update_hooks = [HookedEach(optimizer.network, others)]


def _hooks_first(optimizer: AbstractOptimizer) -> None:
    hooks = optimizer.pre_update_hooks
    optimizer.pre_update_hooks = [*hooks[1:], *hooks[:1]]


def _no_hooks(optimizer: AbstractOptimizer) -> None:
    optimizer.pre_update_hooks = optimizer.pre_update_hooks[:1]


def _hooks_twice(optimizer: AbstractOptimizer) -> None:
    optimizer.pre_update_hooks = [*optimizer.pre_update_hooks, *optimizer.pre_update_hooks[1:]]


# What a replica's gradient counts: all others, and it besides.
_COUNTED = {
    "the gradient of replica {} is lost in accumulation": (1.0, -1.0),
    "only the gradient of replica {} is used": (0.0, 1.0),
    "the gradient of replica {} counts twice": (1.0, 1.0),
    "the gradient of replica {} has the wrong sign": (1.0, -2.0),
}
_CLIPPED = "gradients clipped (by the optimizer's hooks)"
_HOOKS: dict[str, Callable[[AbstractOptimizer], None]] = {
    f"{_CLIPPED} in each replica, before accumulation": _hooks_on_each,
    f"{_CLIPPED} in the root alone, before accumulation": _hooks_first,
    "the optimizer's hooks not called": _no_hooks,
    "the optimizer's hooks called twice": _hooks_twice,
}
_REPLICAS: dict[str, tuple[Any, ...]] = {
    "stale parameters: replicas do not take over what the update made": (
        AccumulateGradients,
        Stale,
    ),
    "gradients of earlier steps that are not cleared in the replicas": (Uncleared,),
}
