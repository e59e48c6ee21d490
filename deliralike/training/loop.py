"""A classifier's training in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike import data
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.training.callbacks import Callback
from deliralike.training.evaluation import CLASSIFICATION, Metric
from deliralike.training.history import History
from deliralike.training.trainer import Trainer


def classification_loss(
    network: AbstractNetwork, inputs: Any, labels: Any, *more: Any
) -> Any:
    """Return the mean cross-entropy of scores; the last of a batch are the labels."""
    *inputs, labels = inputs, labels, *more
    return network.nn.cross_entropy(network(*inputs), labels)  # type: ignore[operator]


def fit(
    optimizer: AbstractOptimizer,
    train: data.Samples | Sequence[np.ndarray],
    held_out: data.Samples | None = None,
    *,
    epochs: int = 1,
    batch_size: int = 32,
    seed: int = 0,
    drop_last: bool = False,
    loss_function: LossFunction = classification_loss,
    metrics: Mapping[str, Metric] | None = None,
    callbacks: Iterable[Callback] = (),
) -> History:
    """Train the optimizer's network in place; the same batches in the same order on every backend.

    Args:
        optimizer: The optimizer of the network, ``backend.optimizer(rule, network)``.
        train: Arrays of equal length; a batch of each goes to ``loss_function(network, *batch)``.
        held_out: Data to evaluate after every epoch, with `metrics` as `evaluate` has them.
        seed: The seed of the order of the samples and of the masks of random layers, which also
            depend on epoch and step.
        drop_last: Whether to leave out a last batch that is smaller than the others.

    Returns:
        The loss and the time of every step, and the metrics of every epoch.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
        >>> optimizer = net.backend.optimizer(rules.rule("sgd", lr=0.5), net)
        >>> history = fit(optimizer, samples, epochs=3, batch_size=4)
        >>> len(history.losses), bool(history.losses[-1] < history.losses[0])
        (6, True)
    """
    trainer = Trainer(
        optimizer.network,
        optimizer,
        loss_function,
        CLASSIFICATION if metrics is None else metrics,
        callbacks,
        seed=seed,
    )
    return trainer.fit(
        train, held_out, epochs=epochs, batch_size=batch_size, drop_last=drop_last
    )
