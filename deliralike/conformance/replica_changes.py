"""Changes to replicas on every backend: share weights, masks, sums, hooks and parameter copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from deliralike import random
from deliralike.optim.loss import Loss, LossFunction, as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel import AccumulateGradients, CopyParameters, Replica, current_replica
from deliralike.parallel.replicas.context import entered

Change = Callable[[Replica, Any], Replica]  # with the backend's vocabulary
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


def of_share(loss: LossFunction) -> LossFunction:
    """Return the loss of one share alone; a mean is taken by the share's own denominator."""
    return as_loss(loss).whole


def masks_from(function: LossFunction, first: Callable[[Replica], Any]) -> LossFunction:
    """Return a loss function that draws a replica's masks for shares that begin elsewhere.

    `first` gives the number of the sample of the batch at which the share begins.
    """

    def changed(network: Any, *share: Any) -> Any:
        here = current_replica()
        if here is None:
            return function(network, *share)
        with random.shifted(first(here) - here.first_sample):
            return function(network, *share)

    return changed


def changed_inside(function: LossFunction, change: Change) -> LossFunction:
    """A loss function that a replica computes as another replica would."""

    def changed(network: Any, *share: Any) -> Any:
        here = current_replica()
        if here is None or here.count == 1:
            return function(network, *share)
        with _as_other(here, change(here, network.nn)):
            return function(network, *share)

    return changed


@contextmanager
def _as_other(here: Replica, other: Replica) -> Iterator[None]:
    with random.shifted(-here.first_sample), entered(other):  # entering shifts anew
        yield


# Statistics over all replicas
# -----------------------------------------------------------------------------


def without_gradient_of_others(here: Replica, nn: Any) -> Replica:
    """The others' parts of sums are constants: batch norm is synchronised forward alone."""

    def all_sum(value: Any, topic: str) -> Any:
        own = nn.stop_gradient(value)
        return value + nn.stop_gradient(here.all_sum(own, topic) - own)

    return replace(here, all_sum=all_sum)


Counts = Callable[
    [float, list[float]], Any
]  # from the own count of values and those of all replicas


def _as_it_is(own: float, counts: list[float]) -> float:
    return 1.0


def with_counts(told: Counts, part: Counts = _as_it_is, total: Counts = _as_it_is) -> Change:
    """Batch norm hears other counts of values, and its sums are scaled.

    Args:
        told: The counts that it hears.
        part: What this replica's part of a sum is multiplied by.
        total: What the sum is multiplied by.
    """

    def change(here: Replica, nn: Any) -> Replica:
        rendezvous = _Counted(here.rendezvous, told, lambda *seen: (part(*seen), total(*seen)))

        def all_sum(x: Any, topic: str) -> Any:
            of_part, of_total = rendezvous.factors
            return here.all_sum(x * of_part, topic) * of_total

        return replace(here, rendezvous=rendezvous, all_sum=all_sum)  # type: ignore[arg-type]

    return change


class _Counted:
    """A rendezvous at which other counts are heard."""

    def __init__(self, rendezvous: Any, told: Counts, factors: Counts) -> None:
        self.rendezvous, self.told, self.factors_of, self.factors = (
            rendezvous,
            told,
            factors,
            (1.0, 1.0),
        )

    def exchange(self, index: Any, topic: str, value: Any) -> list[Any]:
        """What the replicas are taken to have said."""
        values = self.rendezvous.exchange(index, topic, value)
        self.factors = self.factors_of(value, values)
        return self.told(value, values)


_MANY = 2.0**50  # so many values that n / (n - 1) is 1
OWN_COUNT = with_counts(lambda own, counts: [own] * len(counts))
MEAN_OF_STATISTICS = with_counts(
    lambda own, counts: counts, lambda own, counts: sum(counts) / len(counts) / own
)
BIASED = with_counts(lambda own, counts: [sum(counts) * _MANY], total=lambda own, counts: _MANY)
AVERAGED_SUMS = with_counts(lambda own, counts: counts, total=lambda own, counts: 1 / len(counts))
UNBIASED_BY_SHARE = with_counts(
    lambda own, counts: [own], total=lambda own, counts: own / sum(counts)
)


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


class Uncleared(AccumulateGradients):
    """Adds what earlier steps have left in the replicas once more."""

    def __init__(self, network: Any) -> None:
        """Nothing is left yet."""
        super().__init__(network)
        self.left: list[Gradients] = []

    def __call__(self, optimizer: AbstractOptimizer, gradients: Gradients) -> Gradients:
        """The sum, with all that is left."""
        copied = self.network.backend.copied
        of_replicas = [
            {name: None if g is None else copied(g) for name, g in one.items()}
            for one in optimizer.replica_gradients()
        ]
        self.left += of_replicas
        return added(self.network, [gradients, *self.left])


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
    return with_parallelism(
        network,
        update_hooks=lambda self: ([before(self.network)], [after(self.network)]),
        refuse_stale_replicas=lambda self: None,  # for whoever leaves replicas behind on purpose
    )


def with_parallelism(network: Any, **methods: Any) -> Any:
    """The same network, which computes in parallel by some other methods."""
    kind: Any = type(network.parallelism)
    return with_methods(network, _parallelism=type(kind.__name__, (kind,), methods))


def with_methods(network: Any, **methods: Any) -> Any:
    """The same network, some methods aside."""
    kind: Any = type(network)
    network.__class__ = type(kind)(kind.__name__, (kind,), methods)
    return network
