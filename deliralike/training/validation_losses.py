"""The losses of training, computed over validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.network.enclosing import has_own, innermost
from deliralike.network.steps import (
    TOTAL,
    Losses,
    StepLoss,
    inputs_and_target,
    named_losses,
    step_loss,
    val_step,
)
from deliralike.optim.accumulation import count_samples


class ValidationLosses:
    """Means of the losses over the samples of all batches.

    They are computed as a training step computes them: by a network's own `val_step` from the whole
    batch, by a loss function of its own kind from the network and the batch, or else from the
    outputs that the metrics see. A `val_step` that returns predictions is not used.
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

    def add(self, network: AbstractNetwork, batch: Any, outputs: Callable[[], Any]) -> None:
        """Take one batch; its outputs are computed by a call, where they are needed."""
        self._values.append(self._of_batch(network, batch, outputs))
        self._sizes.append(count_samples(batch))

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
        self, network: AbstractNetwork, batch: Any, outputs: Callable[[], Any]
    ) -> dict[str, Any]:
        backend = network.backend
        on_host = {}
        for name, value in self._values_of_batch(network, batch, outputs).items():
            if backend.is_array(value):
                value = backend.numpy(value)
            on_host[name] = value
        return on_host

    def _values_of_batch(
        self, network: AbstractNetwork, batch: Any, outputs: Callable[[], Any]
    ) -> Mapping[str, Any]:
        backend = network.backend
        if has_own(network, "val_step"):
            options = {} if self.losses is None else {"losses": self.losses}
            with backend.evaluating():
                values = network.val_step(batch, **options)
            if _are_losses(values):
                return values
        if not isinstance(self._loss, StepLoss):
            return val_step(network, batch, self.losses)
        try:
            prediction = outputs()
        except Exception as error:
            if has_own(network, "train_step"):
                error.add_note(
                    f"{type(innermost(network)).__name__} has a train_step of its own, and the "
                    "default losses of validation call it as network(*inputs): write a val_step "
                    "that gives losses by name"
                )
            raise
        with backend.evaluating():
            target = backend.prepare(inputs_and_target(batch)[1], network)
            return named_losses(network, self._loss.of(network, prediction, target))


def _are_losses(values: Any) -> bool:
    """Return whether a `val_step` gave losses by name; in MMEngine's style it gives predictions."""
    return isinstance(values, Mapping) and all(map(_is_number, values.values()))


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or an array of a single one."""
    if isinstance(value, int | float):
        return True
    shape = getattr(value, "shape", None)
    return shape is not None and math.prod(shape) == 1
