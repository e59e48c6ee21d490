"""Evaluation and prediction: batch by batch, in evaluation mode, leaving no trace in the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from deliralike import data, nest
from deliralike.errors import BatchError
from deliralike.network import AbstractNetwork

Metric = Callable[[Any, np.ndarray], float]


def evaluate(
    network: AbstractNetwork,
    samples: data.Samples,
    *,
    metrics: Mapping[str, Metric] | None = None,
    batch_size: int = 512,
) -> dict[str, float]:
    """Judge a network on labelled samples.

    Metrics see the outputs for all samples at once: an average of batches would depend on where the batches end.
    Mode, weights, running statistics and gradients are as before, also when the network raises.

    Args:
        metrics: Functions of (outputs, labels) by name; accuracy and cross-entropy (``"loss"``) when not given.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = data.Samples(np.zeros((5, 3), np.float32), np.zeros(5, np.int64))
        >>> sorted(evaluate(net, samples))
        ['accuracy', 'loss']
    """
    data.size(tuple(samples))
    outputs = concatenate(predict(network, samples.inputs, batch_size=batch_size))
    chosen = CLASSIFICATION if metrics is None else metrics
    return {name: float(metric(outputs, samples.labels)) for name, metric in chosen.items()}


def predict(network: AbstractNetwork, inputs: Any, *, batch_size: int = 512) -> Iterator[Any]:
    """The outputs in evaluation mode, as NumPy arrays, one nest for each batch in order: memory stays flat.

    The mode is set for each batch and restored after it, so the network may be used between two batches.

    Args:
        inputs: An array of samples, or a tuple of them for a network with several inputs.
    """
    for batch in data.batches(inputs, batch_size, shuffle=False):
        yield _outputs(network, batch)


def concatenate(batches: Iterator[Any]) -> Any:
    """Batches of outputs as one nest of arrays."""
    return nest.map(lambda *arrays: np.concatenate(arrays), *batches)


def _outputs(network: AbstractNetwork, batch: Any) -> Any:
    backend = network.backend
    inputs = backend.prepare(batch, network)
    with network.training_mode(False), backend.evaluating():
        outputs = network(*inputs) if isinstance(inputs, tuple) else network(inputs)  # type: ignore[operator]
        return backend.to_numpy(outputs)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """The fraction of samples whose highest score is that of their label.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.
    """
    _check(scores, labels)
    return float((scores.argmax(axis=1) == labels).mean())


def cross_entropy(scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean over samples of the negative log-probability of the label, computed in float64 on the host.

    Shapes:
        Scores ``(samples, classes, ...)``, labels ``(samples, ...)``.
    """
    _check(scores, labels)
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-np.take_along_axis(log_p, labels[:, np.newaxis], axis=1).mean())


def _check(scores: Any, labels: np.ndarray) -> None:
    shape = np.shape(scores)
    if shape[:1] + shape[2:] != labels.shape:
        raise BatchError(
            f"scores of shape {shape} do not fit labels of shape {labels.shape}: wanted (samples, classes, ...)"
        )


CLASSIFICATION: Mapping[str, Metric] = {"accuracy": accuracy, "loss": cross_entropy}
