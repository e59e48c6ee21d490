"""The losses of training, computed over validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.network.enclosing import has_own
from deliralike.network.steps import TOTAL, Losses, StepLoss, named_losses, step_loss, val_step
from deliralike.optim.accumulation import count_samples


class ValidationLosses:
    """Means of the losses over the samples of all batches.

    They are computed from the outputs of the metrics. A loss function of its own kind, and a
    network with its own `val_step`, run the network once more. A `val_step` that returns
    predictions is not used.
    """

    def __init__(self, losses: Losses | None = None) -> None:
        """Take losses as `AbstractNetwork.train_step` has them."""
        self.losses = losses
        self._loss = step_loss(losses)
        self._values: list[dict[str, Any]] = []
        self._sizes: list[int] = []

    def names(self, network: AbstractNetwork) -> list[str] | None:
        """Return the names of the losses; None where they are known only after computing them."""
        if not isinstance(self._loss, StepLoss) or has_own(network, "val_step"):
            return None
        return [TOTAL, *self._loss.names]

    def without(self, metrics: Container[str]) -> ValidationLosses | None:
        """Return the same losses without batches; None if the only one has a metric's name."""
        is_single = isinstance(self._loss, StepLoss) and len(self._loss.functions) < 2
        if is_single and TOTAL in metrics:
            return None
        return ValidationLosses(self.losses)

    def add(self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any) -> None:
        """Take one batch; its values stay on the device."""
        self._sizes.append(count_samples((target,)))
        self._values.append(self._of_batch(network, outputs, inputs, target))

    def merge(self, of_all: Callable[[list[Any]], list[Any]]) -> None:
        """Replace the batches by those of all processes, which `of_all` returns."""
        self._values = of_all(self._values)
        self._sizes = of_all(self._sizes)

    def means(self) -> dict[str, float]:
        """Return the mean of each loss over the batches, weighted by their samples."""
        if not self._values:
            return {}
        means = {}
        for name in self._values[0]:
            values = [float(losses[name]) for losses in self._values]
            means[name] = float(np.average(values, weights=self._sizes))
        return means

    def _of_batch(
        self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any
    ) -> dict[str, Any]:
        backend = network.backend
        on_host = {}
        for name, value in self._values_of_batch(network, outputs, inputs, target).items():
            if backend.is_array(value):
                value = backend.numpy(value)
            on_host[name] = value
        return on_host

    def _values_of_batch(
        self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any
    ) -> Mapping[str, Any]:
        backend = network.backend
        batch = (*inputs, target) if isinstance(inputs, tuple) else (inputs, target)
        if has_own(network, "val_step"):
            options = {} if self.losses is None else {"losses": self.losses}
            values = network.val_step(batch, **options)
            if _are_losses(values):
                return values
        if not isinstance(self._loss, StepLoss):
            return val_step(network, batch, self.losses)
        with backend.evaluating():
            losses = self._loss.of(network, outputs, backend.prepare(target, network))
            return named_losses(network, losses)


def _are_losses(values: Any) -> bool:
    """Return whether a `val_step` gave losses by name; in MMEngine's style it gives predictions."""
    return isinstance(values, Mapping) and all(map(_is_number, values.values()))


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or an array of a single one."""
    if isinstance(value, int | float):
        return True
    shape = getattr(value, "shape", None)
    return shape is not None and math.prod(shape) == 1
