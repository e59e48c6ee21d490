"""The loss of classifiers, as a function of a network and its batch."""

from __future__ import annotations

from typing import Any

from deliralike.network.base import AbstractNetwork


def classification_loss(
    network: AbstractNetwork, inputs: Any, labels: Any, *more: Any
) -> Any:
    """Return the mean cross-entropy of scores; the last of a batch are the labels."""
    *inputs, labels = inputs, labels, *more
    return network.nn.cross_entropy(network(*inputs), labels)  # type: ignore[operator]
