"""The training loop: take a batch, update, record. One copy for all backends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike import data, random
from deliralike.errors import SettingError
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer, LossFunction
from deliralike.training.callbacks import Callback, Run
from deliralike.training.evaluation import Metric, evaluate
from deliralike.training.history import Epoch, History, Step


def classification_loss(network: AbstractNetwork, inputs: Any, labels: Any) -> Any:
    """The mean cross-entropy of a network's scores."""
    return network.nn.cross_entropy(network(inputs), labels)  # type: ignore[operator]


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
        optimizer: Holds the network and the update rule, ``backend.optimizer(rule, network)``.
        train: Arrays of equal length; a batch of each goes to ``loss_function(network, *batch)``.
        held_out: Evaluated after every epoch, with `metrics` as `evaluate` has them.
        seed: Keys the order of the samples and the masks of random layers, together with epoch and step.
        drop_last: Leave out a last batch that is smaller than the others.

    Returns:
        The loss and the time of every step, and the metrics of every epoch.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
        >>> history = fit(net.backend.optimizer(rules.rule("sgd", lr=0.5), net), samples, epochs=3, batch_size=4)
        >>> len(history.losses), bool(history.losses[-1] < history.losses[0])
        (6, True)
    """
    if epochs < 1:
        raise SettingError(f"epochs must be at least 1, not {epochs!r}")
    arrays, callbacks, network = tuple(train), list(callbacks), optimizer.network
    run = Run(optimizer, epochs, data.batch_count(data.size(arrays), batch_size, drop_last))
    try:
        _tell(callbacks, "on_start", run)
        for epoch in range(epochs):
            with network.training_mode(True):
                for batch in data.batches(arrays, batch_size, seed=seed, epoch=epoch, drop_last=drop_last):
                    run.history.steps.append(_step(run, epoch, seed, loss_function, batch))
                    _tell(callbacks, "on_step", run, run.history.steps[-1])
            judged = evaluate(network, held_out, metrics=metrics) if held_out is not None else {}
            run.history.epochs.append(Epoch(epoch, len(run.history.steps), judged))
            _tell(callbacks, "on_epoch", run, run.history.epochs[-1])
    finally:
        _tell(callbacks, "on_end", run)
    return run.history


def _step(run: Run, epoch: int, seed: int, loss_function: LossFunction, batch: tuple) -> Step:
    optimizer, begin = run.optimizer, time.perf_counter()
    with random.portable(seed, optimizer.steps):
        result = optimizer.update(loss_function, *batch)
    loss = optimizer.network.backend.numpy(result[0] if isinstance(result, tuple) else result)  # waits for the device
    return Step(len(run.history.steps), epoch, float(loss), time.perf_counter() - begin, data.size(batch))


def _tell(callbacks: Iterable[Callback], moment: str, *what: Any) -> None:
    for callback in callbacks:
        getattr(callback, moment)(*what)
