"""A right subject in which a mistake of replicas or of processes shows, with a batch for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.loss import LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import rule
from deliralike.parallel import in_replicas
from tests.parallel.networks import Convolutional

CLASS_WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0])
IGNORED = 2
Batch = tuple[np.ndarray, ...]


def subject(backend: str | Backend, loss: LossFunction | None = None) -> Subject:
    """Return a right subject in which every mistake can show.

    It has batch norm, dropout, class weights, ignored labels, momentum and clipping.
    """
    network = Convolutional.on(backend, seed=3, dtype="float64")()
    return Subject(
        network,
        loss or in_replicas(sum_and_weight, "denominator"),
        {"clipped sgd": clipped_sgd},
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
        scores,
        labels,
        nn.constant(CLASS_WEIGHTS, scores),
        ignore_index=IGNORED,
        reduction="sum",
    )
    counted = nn.constant(CLASS_WEIGHTS * (np.arange(4) != IGNORED), scores)
    return total, nn.sum(nn.one_hot(labels, 4, scores) * counted)


def clipped_sgd(network: AbstractNetwork) -> AbstractOptimizer:
    """Momentum, and gradients that are clipped."""
    optimizer = network.backend.optimizer(rule("sgd", lr=0.1, momentum=0.9), network)
    optimizer.pre_update_hooks.append(ClipNorm(0.05))
    return optimizer
