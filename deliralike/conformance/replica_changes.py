"""Changes to replicas on every backend: share weights, masks, hooks and parameter copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from deliralike import random
from deliralike.optim.loss import Loss, LossFunction, as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel import AccumulateGradients, CopyParameters, current_replica

Gradients = dict[str, Any]


# Losses
# -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighted(Loss):
    """A loss in replicas whose shares are weighted by `weigh`, a function of the shares' sizes."""

    per_replica: bool = True
    weigh: Callable[[Sequence[int]], Sequence[float]] = field(default=tuple)

    def weights(self, sizes: Sequence[int]) -> list[float]:
        """What each share's loss counts."""
        return list(self.weigh(sizes))

    def recorded(self) -> Self:
        """Return this loss: its weights say all that its denominators would."""
        return self


def of_share(loss: LossFunction) -> LossFunction:
    """Return the loss of one share alone; a mean is taken by the share's own denominator."""
    return as_loss(loss).whole


def with_masks_of_first(function: LossFunction) -> LossFunction:
    """Return a loss function that draws every replica's masks as those of the batch's first samples."""

    def changed(network: Any, *share: Any) -> Any:
        here = current_replica()
        if here is None:
            return function(network, *share)
        with random.shifted(-here.first_sample):
            return function(network, *share)

    return changed


# Hooks of optimizers
# -----------------------------------------------------------------------------


class Accumulated(AccumulateGradients):
    """Adds the replicas' gradients, each times a factor."""

    def __init__(self, network: Any, factors: Callable[[int], Sequence[float]]) -> None:
        """`factors` gives one for each of so many replicas."""
        super().__init__(network)
        self.factors = factors

    def __call__(self, optimizer: AbstractOptimizer, gradients: Gradients) -> Gradients:
        """The weighted sum."""
        each = [gradients, *optimizer.replica_gradients()]
        return added(
            self.network,
            [
                scaled(one, factor)
                for one, factor in zip(each, self.factors(len(each)), strict=True)
            ],
        )


class HookedEach(AccumulateGradients):
    """Lets hooks see each replica's gradients before they are added."""

    def __init__(self, network: Any, hooks: Sequence[Callable[..., Gradients]]) -> None:
        """The hooks that should have come after."""
        super().__init__(network)
        self.hooks = hooks

    def __call__(self, optimizer: AbstractOptimizer, gradients: Gradients) -> Gradients:
        """The sum of what the hooks made of each."""
        each = [gradients, *optimizer.replica_gradients()]
        for hook in self.hooks:
            each = [hook(optimizer, one) for one in each]
        return added(self.network, each)


def scaled(gradients: Gradients, factor: float) -> Gradients:
    """Gradients times a factor."""
    return {name: None if each is None else each * factor for name, each in gradients.items()}


def added(network: Any, each: Sequence[Gradients]) -> Gradients:
    """The sum of several gradients, on the root's device."""
    total = dict(each[0])
    for other in each[1:]:
        for name in total:
            if other.get(name) is not None:
                total[name] = network.backend.add(total[name], other[name], network.device_name)
    return total


class Stale(CopyParameters):
    """After an update, puts the replicas' parameters back to what they were before it."""

    def __init__(self, network: Any) -> None:
        """Remember the parameters as they are."""
        super().__init__(network)
        slots = network.neutral_slots()
        self.before = {name: slot.read() for name, slot in slots.items() if slot.is_parameter}

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Copy, so that every book is kept, and undo it in the replicas."""
        super().__call__(optimizer)
        for replica in self.network.replicas[1:]:
            slots = replica.neutral_slots()
            for name, value in self.before.items():
                slots[name].write(value)


def hooked(
    network: Any, before: Callable[[Any], Any], after: Callable[[Any], Any] = CopyParameters
) -> Any:
    """Return a replicated network whose optimizers begin with other hooks, made from the network."""
    if network.parallelism.replica_count == 1:
        return network
    methods = {
        "update_hooks": lambda self: ([before(self.network)], [after(self.network)]),
        "refuse_stale_replicas": lambda self: None,  # for whoever leaves them behind on purpose
    }
    parallelism: Any = type(network.parallelism)
    kind: Any = type(network)
    changed = type(parallelism.__name__, (parallelism,), methods)
    network.__class__ = type(kind)(kind.__name__, (kind,), {"_parallelism": changed})
    return network
