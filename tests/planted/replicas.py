"""Mutants of replicas: in losses, samples, statistics, masks, gradients and parameter copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends import DataParallel
from deliralike.backends.base import Backend
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork, Network
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.loss import LossFunction, as_loss
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import rule
from deliralike.parallel import AccumulateGradients, in_replicas, partition
from tests.planted import Mistake
from tests.planted.fixtures import Batch
from tests.planted.replica_mistakes import (
    EachHooked,
    LeftBehind,
    Weighting,
    batch_norm,
    counting,
    drawing,
    forward_alone,
    mean_of_statistics,
    with_hooks,
)

COUNT = 3  # replicas; the causes below name numbers that follow from it
CLASS_WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0])
IGNORED = 2
Plant = Callable[[Subject], Subject]


# A right subject
# -----------------------------------------------------------------------------


class Statistical(Network):
    """Convolution with a stride of two, batch normalisation, dropout, flattening, linear."""

    def __init__(self, p: float = 0.3) -> None:
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(3)
        self.dropout = nn.Dropout(p)
        self.fc = nn.Linear(3 * 3 * 4, 4)

    def forward(self, x: Any) -> Any:
        """Scores of four classes."""
        nn = self.nn
        return self.fc(self.dropout(nn.flatten(nn.relu(self.bn(self.conv(x))))))


def subject(backend: str | Backend, loss: LossFunction | None = None) -> Subject:
    """Return a right candidate in which every mutant can show.

    It has batch norm, dropout, class weights, ignored labels, momentum and clipping.
    """
    network = Statistical.on(backend, seed=3, dtype="float64")()
    return Subject(
        network, loss or in_replicas(sum_and_weight, "denominator"), {"clipped sgd": clipped_sgd}
    )


def batch(samples: int = 7) -> Batch:
    """Pictures and labels, of which some are ignored and no share has the classes of another."""
    random = np.random.default_rng(5)
    labels = np.array([0, 3, IGNORED, 1, 0, IGNORED, 3])
    return random.normal(0.4, 1.5, (samples, 2, 5, 7)), np.resize(labels, samples)


def sum_and_weight(network: Any, x: Any, labels: Any) -> tuple[Any, Any]:
    """Return the sum of a cross-entropy with class weights and ignored labels, and its divisor."""
    nn, scores = network.nn, network(x)
    total = nn.cross_entropy(
        scores, labels, nn.constant(CLASS_WEIGHTS, scores), ignore_index=IGNORED, reduction="sum"
    )
    counted = nn.constant(CLASS_WEIGHTS * (np.arange(4) != IGNORED), scores)
    return total, nn.sum(nn.one_hot(labels, 4, scores) * counted)


def clipped_sgd(network: AbstractNetwork) -> AbstractOptimizer:
    """Momentum, and gradients that are clipped."""
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1, momentum=0.9), network)
    optimizer.pre_update_hooks.append(ClipNorm(0.05))
    return optimizer


# Losses of shares
# -----------------------------------------------------------------------------


def _weighing(weigh: Callable[[Sequence[int]], Sequence[float]]) -> Plant:
    """Means of the shares that count something else than they should."""
    return lambda subject: subject.but(loss=counting(subject.loss, weigh))


def _gradient_times(factor: Callable[[int], float]) -> Plant:
    """The right loss, and its gradient times a factor of the number of replicas."""

    def plant(subject: Subject) -> Subject:
        def loss(network: Any, *batch: Any) -> Any:
            value, times = subject.loss(network, *batch), factor(_count(network))
            return value * times + network.nn.stop_gradient(value * (1.0 - times))

        return subject.but(loss=loss)

    return plant


def _count(network: Any) -> int:
    return network.parallelism.replica_count


def _inside(change: Callable[[LossFunction], LossFunction]) -> Plant:
    """The loss function of each replica, changed; what shares count stays as it is."""

    def plant(subject: Subject) -> Subject:
        loss = as_loss(subject.loss).in_replicas()
        return subject.but(loss=replace(loss, function=change(loss.function)))

    return plant


# Samples
# -----------------------------------------------------------------------------


def _samples(choose: Callable[[int, int], Any]) -> Plant:
    """Plant other samples over replicas: ``choose(samples, replicas)`` gives their numbers."""

    def plant(subject: Subject) -> Subject:
        def loss(network: Any, *batch: Any) -> Any:
            return subject.loss(network, *(_chosen(network, choose, part) for part in batch))

        return subject.but(loss=loss)

    return plant


def _chosen(network: Any, choose: Callable[[int, int], Any], part: Any) -> Any:
    def leaf(value: Any) -> Any:
        if _count(network) == 1 or not network.backend.is_array(value):
            return value
        index = np.asarray(choose(value.shape[0], _count(network)))
        return network.nn.select(value, network.nn.constant(index, value), 0)

    return nest.map(leaf, part)


def gathered_loss(network: Any, x: Any, labels: Any) -> Any:
    """The right loss on gathered outputs."""
    nn, scores = network.nn, network(x)
    return nn.cross_entropy(
        scores, labels, nn.constant(CLASS_WEIGHTS, scores), ignore_index=IGNORED
    )


# Replicas
# -----------------------------------------------------------------------------


def over_replicas(network: AbstractNetwork, count: int, buffers: str = "sync") -> Any:
    """The network over so many replicas, on one device where they are threads."""
    backend, devices = network.backend, [network.device_name] * count
    if "threads" not in backend.capabilities:
        devices = backend.devices()[:count]
    return DataParallel(network, devices, buffers=buffers)


def _replicated(subject: Subject, change: Callable[[Any], Any]) -> Subject:
    """The subject whose replicated networks are changed."""

    def replicate(network: AbstractNetwork, count: int) -> Any:
        found: Any = (subject.replicate or over_replicas)(network, count)
        return change(found) if _count(found) > 1 else found

    return subject.but(replicate=replicate)


def _buffers(policy: str) -> Plant:
    """Batch norm that is not synchronised."""

    def local(network: Any) -> Any:
        return DataParallel(network.root, network.settings.devices, buffers=policy)

    return lambda subject: _replicated(subject, local)


def _accumulating(factors: Callable[[int], Sequence[float]]) -> Plant:
    return lambda subject: _hooked(subject, partial(Weighting, factors=factors))


def _hooked(subject: Subject, accumulate: Callable[[Any], Any]) -> Subject:
    return _replicated(subject, lambda network: with_hooks(network, accumulate))


def _stale(subject: Subject) -> Subject:
    return _replicated(
        subject, lambda network: with_hooks(network, AccumulateGradients, LeftBehind)
    )


def _hooks_before_accumulation(replace_all: bool) -> Plant:
    """Plant hooks of an optimizer that get the gradients of each replica, or of the root alone."""

    def changed(
        make: Callable[[AbstractNetwork], AbstractOptimizer], network: Any
    ) -> AbstractOptimizer:
        optimizer = make(network)
        if _count(network) > 1:
            accumulate, *others = optimizer.pre_update_hooks
            optimizer.pre_update_hooks = [*others, accumulate]
            if replace_all:
                optimizer.pre_update_hooks = [EachHooked(network, others)]
        return optimizer

    return lambda subject: subject.but(
        optimizers={name: partial(changed, make) for name, make in subject.optimizers.items()}
    )


# The list
# -----------------------------------------------------------------------------


def _mean_weights(sizes: Sequence[int]) -> list[float]:
    return [1 / len(sizes)] * len(sizes)


def _size_weights(sizes: Sequence[int]) -> list[float]:
    return [size / sum(sizes) for size in sizes]


def _interleaved(samples: int, count: int) -> np.ndarray:
    return np.concatenate([np.arange(samples)[replica::count] for replica in range(count)])


def _filled_up(samples: int, count: int, first: bool) -> np.ndarray:
    missing = -samples % count
    return np.append(np.arange(samples), np.arange(missing) if first else [samples - 1] * missing)


_GRADIENT, _BUFFER, _UPDATE = ("gradient",), ("running",), ("update",)


def _mistake(name: str, plant: Plant, place: tuple[str, ...], *cause: str) -> Mistake:
    return Mistake(f"replicas: {name}", "replicas", plant, place, cause, fixture="replicas")


MISTAKES = (
    _mistake(
        "mean of the shares' means",
        _weighing(_mean_weights),
        _GRADIENT,
        "mean of the shares' means",
    ),
    _mistake(
        "per-shard denominators", _weighing(_size_weights), _GRADIENT, "weighted by its samples"
    ),
    _mistake(
        "sum of the shares' means",
        _weighing(lambda sizes: [1.0] * len(sizes)),
        _GRADIENT,
        "sum of the shares' means",
    ),
    _mistake(
        "only the first share counts",
        _weighing(lambda sizes: [1.0] + [0.0] * (len(sizes) - 1)),
        _GRADIENT,
        "only the share of replica 0",
    ),
    _mistake("gradients times N", _gradient_times(float), _GRADIENT, "times 3"),
    _mistake(
        "gradients divided by N twice",
        _gradient_times(lambda count: 1.0 / count),
        _GRADIENT,
        "divided by 3",
    ),
    _mistake(
        "gradients times an odd factor",
        _gradient_times(lambda count: 0.83),
        _GRADIENT,
        "times 0.83",
    ),
    _mistake(
        "local batch norm, the root's statistics",
        _buffers("root"),
        ("running", "output"),
        "by itself",
    ),
    _mistake(
        "local batch norm, averaged statistics",
        _buffers("mean"),
        ("running", "output"),
        "by itself",
    ),
    _mistake(
        "batch filled up with its last sample",
        _samples(partial(_filled_up, first=False)),
        _GRADIENT,
        "filled up with its last sample",
    ),
    _mistake(
        "batch filled up with its first samples",
        _samples(partial(_filled_up, first=True)),
        _GRADIENT,
        "filled up with its first samples",
    ),
    _mistake(
        "every replica sees the first share",
        _samples(lambda samples, count: np.tile(np.arange(partition(samples, count)[0]), count)),
        _GRADIENT,
        "share of replica 0",
    ),
    _mistake(
        "dropped remainder",
        _samples(lambda samples, count: np.arange(samples - samples % count)),
        _GRADIENT,
        "remainder",
    ),
    _mistake("samples dealt out in turn", _samples(_interleaved), _GRADIENT, "dealt out in turn"),
    _mistake(
        "one replica's gradient lost",
        _accumulating(lambda count: [1.0] * (count - 1) + [0.0]),
        _GRADIENT,
        "gradient of replica 2 is lost",
    ),
    _mistake(
        "only the root's gradient",
        _accumulating(lambda count: [1.0] + [0.0] * (count - 1)),
        _GRADIENT,
        "only the gradient of replica 0",
    ),
    _mistake(
        "the root's gradient twice",
        _accumulating(lambda count: [2.0] + [1.0] * (count - 1)),
        _GRADIENT,
        "gradients of the replicas count 2, 1, 1",
    ),
    _mistake(
        "gradients accumulated with odd factors",
        _accumulating(lambda count: np.linspace(0.7, 1.1, count).tolist()),
        _GRADIENT,
        "gradients of the replicas count 0.7, 0.9, 1.1",
    ),
    _mistake(
        "shared dropout streams",
        _inside(partial(drawing, begin=lambda here: 0)),
        _GRADIENT,
        "same masks",
    ),
    _mistake(
        "batch norm synchronised forward alone",
        batch_norm(forward_alone),
        _GRADIENT,
        "forward alone",
    ),
    _mistake(
        "synchronised batch norm takes the mean of the shares' statistics",
        batch_norm(mean_of_statistics),
        _BUFFER,
        "mean of the shares' statistics",
    ),
    _mistake(
        "clip before accumulation",
        _hooks_before_accumulation(replace_all=True),
        _UPDATE,
        "before accumulation",
    ),
    _mistake(
        "clip of the root's gradient alone",
        _hooks_before_accumulation(replace_all=False),
        _UPDATE,
        "root",
    ),
    _mistake("replicas keep stale parameters", _stale, _UPDATE, "stale"),
)
