"""The losses of training, computed over validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unwrap
from deliralike.network.steps import (
    TOTAL,
    Losses,
    StepLoss,
    evaluate_loss,
    inputs_and_target,
    named_losses,
    step_loss,
)
from deliralike.network.wrapper import has_own
from deliralike.nn.means import Denominators, denominators
from deliralike.optim.loss import as_loss, count_samples, value_of


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
        # The value and the weight of each loss, by name.
        self._batches: list[dict[str, tuple[float, ...]]] = []

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

    def add(
        self, network: AbstractNetwork, batch: Any, outputs: Callable[[], Any]
    ) -> None:
        """Take one batch; its outputs are computed by a call, where they are needed."""
        with denominators() as noted:
            values, known = self._of_batch(network, batch, outputs, noted)
        samples = count_samples(batch)
        on_host = {}
        for name, value in values.items():
            weight = known.get(name)
            numbers = network.backend.numbers(
                [value, samples if weight is None else weight]
            )
            on_host[name] = tuple(numbers)
        self._batches.append(on_host)

    def merge(self, of_all: Callable[[list[Any]], list[Any]]) -> None:
        """Replace the batches by those of all processes, which `of_all` returns."""
        self._batches = of_all(self._batches)

    def means(self) -> dict[str, float]:
        """Return the mean of each loss over the batches, weighted by what each was divided by.

        Losses whose denominator is not known are weighted by the samples of their batches. The sum
        of several losses is that of their means.
        """
        means = {}
        for name in next(iter(self._batches), {}):
            columns = zip(*[batch[name] for batch in self._batches], strict=True)
            means[name] = mean_by_weights(*columns)
        names = self._loss.names if isinstance(self._loss, StepLoss) else ()
        if len(names) > 1 and set(names) < means.keys():
            means[TOTAL] = sum([means[name] for name in names])
        return means

    def _of_batch(
        self,
        network: AbstractNetwork,
        batch: Any,
        outputs: Callable[[], Any],
        noted: Denominators,
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return the losses by name, and what each was divided by, as far as it is known."""
        backend = network.backend
        if has_own(network, "val_step"):
            options = {} if self.losses is None else {"losses": self.losses}
            with backend.evaluating():
                values = network.val_step(batch, **options)
            # In MMEngine's style it gives predictions.
            if isinstance(values, Mapping) and all(map(_is_number, values.values())):
                return values, {name: noted.of(value) for name, value in values.items()}
        if not isinstance(self._loss, StepLoss):
            loss = as_loss(self._loss).recorded().with_denominator()
            values, result = evaluate_loss(network, batch, loss)
            return values, {TOTAL: result[1]} if loss.reports_denominator else {}
        try:
            prediction = outputs()
        except Exception as error:
            if has_own(network, "train_step"):
                error.add_note(
                    f"{type(unwrap(network)).__name__} has a train_step of its own, and the "
                    "default losses of validation call it as network(*inputs): write a val_step "
                    "that gives losses by name"
                )
            raise
        with backend.evaluating():
            inputs, target = inputs_and_target(batch)
            # at its place in the batch, which errors name
            *_, target = backend.prepare((*[None] * len(inputs), target), network)
            result = self._loss.of(network, prediction, target)
        known = {TOTAL: noted.of(value_of(result))}
        if isinstance(result, tuple):
            known |= {name: noted.of(value) for name, value in result[1].items()}
        return named_losses(network, result), known


def mean_by_weights(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return a weighted mean; 0 where no weight is above 0, as the values then are."""
    if not any(weights):
        return 0.0
    counted = np.asarray(weights) != 0
    return float(
        np.average(np.asarray(values)[counted], weights=np.asarray(weights)[counted])
    )


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or an array of a single one."""
    if isinstance(value, int | float):
        return True
    shape = getattr(value, "shape", None)
    return shape is not None and math.prod(shape) == 1
