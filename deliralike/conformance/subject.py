"""What is compared: a network with all that belongs to its training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deliralike import nest
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unwrap
from deliralike.optim.loss import Loss, LossFunction
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Rule
from deliralike.training import classification_loss

Make = Callable[[AbstractNetwork], AbstractOptimizer]


@dataclass(frozen=True)
class Following:
    """Makes optimizers that follow a neutral rule, on whatever backend."""

    rule: Rule

    def __call__(self, network: AbstractNetwork) -> AbstractOptimizer:
        """Return the network's optimizer; warnings are for who trains it."""
        with warnings.catch_warnings(action="ignore"):
            return network.backend.optimizer(self.rule, network)


@dataclass(frozen=True)
class Subject:
    """One side of a comparison.

    Attributes:
        network: Written once or native, as an `AbstractNetwork`.
        loss: ``loss(network, *batch)``, a scalar.
        optimizers: Functions from a network to its optimizer, by name: ``{"sgd": lambda network:
            ...}``.
        keeps_layout: Whether inputs and outputs lie as those of the reference, as in a network that
            takes its place: another layout is a difference.
    """

    network: AbstractNetwork
    loss: LossFunction = classification_loss
    optimizers: Mapping[str, Make] = field(default_factory=dict)
    keeps_layout: bool = False

    def replace(self, **changes: Any) -> Subject:
        """The same with other parts."""
        return replace(self, **changes)

    def in_dtype(self, dtype: str) -> Subject:
        """The same with a copy of the network in another floating type."""
        return self.replace(network=self.network.backend.in_dtype(self.network, dtype))

    def __str__(self) -> str:
        """``"ResNet on torch"``."""
        return f"{type(unwrap(self.network)).__name__} on {self.network.backend.name}"


def without_input_gradients(subject: Subject) -> Subject:
    """Return a side whose loss takes arrays that are in no graph, as in a training step.

    Code of a network may refuse others, such as ``x.numpy()`` of PyTorch, or NumPy's functions of
    Chainer's arrays.
    """
    detached = subject.network.backend.detached

    def change(loss: LossFunction) -> LossFunction:
        return lambda network, *batch: loss(network, *nest.map(detached, batch))

    return subject.replace(loss=with_changed_function(subject.loss, change))


def with_changed_function(
    loss: LossFunction, change: Callable[[LossFunction], LossFunction]
) -> LossFunction:
    """Return a loss whose function is changed; one that replicas compute stays one of replicas."""
    if isinstance(loss, Loss):
        return replace(loss, function=change(loss.function))
    return change(loss)
