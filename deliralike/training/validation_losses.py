"""The losses of training, over validation data."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from deliralike.accumulation import count_samples
from deliralike.enclosing import has_own
from deliralike.network import AbstractNetwork
from deliralike.steps import TOTAL, Losses, StepLoss, named_losses, step_loss, val_step


class ValidationLosses:
    """Means over the samples of what each batch's losses are.

    They are computed from the outputs that metrics see, but for a loss function of its own kind and a network with a
    `val_step` of its own, which run the network once more. A `val_step` that gives predictions has no say in them.
    """

    def __init__(self, losses: Losses | None = None) -> None:
        """For losses as `AbstractNetwork.train_step` has them."""
        self.losses = losses
        self._loss = step_loss(losses)
        self._values: list[dict[str, Any]] = []
        self._sizes: list[int] = []

    def names(self, network: AbstractNetwork) -> list[str] | None:
        """What they will be called; None where only computing them shows it."""
        if not isinstance(self._loss, StepLoss) or has_own(network, "val_step"):
            return None
        return [TOTAL, *self._loss.names]

    def without(self, metrics: Container[str]) -> ValidationLosses | None:
        """These losses, from the beginning; None when there is but one, and a metric has its name."""
        single = isinstance(self._loss, StepLoss) and len(self._loss.functions) < 2
        return None if single and TOTAL in metrics else ValidationLosses(self.losses)

    def add(self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any) -> None:
        """Take one batch; its values stay on the device."""
        self._sizes.append(count_samples((target,)))
        self._values.append(self._of_batch(network, outputs, inputs, target))

    def merge(self, of_all: Callable[[list[Any]], list[Any]]) -> None:
        """Keep the batches of all processes; `of_all` gives them, from this one's."""
        self._values, self._sizes = of_all(self._values), of_all(self._sizes)

    def means(self) -> dict[str, float]:
        """Each loss: the mean of the batches' values, weighted by their samples."""
        names = self._values[0] if self._values else {}
        values = {name: [float(each[name]) for each in self._values] for name in names}
        return {name: float(np.average(each, weights=self._sizes)) for name, each in values.items()}

    def _of_batch(self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any) -> dict[str, Any]:
        backend = network.backend
        values = self._values_of_batch(network, outputs, inputs, target)
        return {name: backend.numpy(value) if backend.is_array(value) else value for name, value in values.items()}

    def _values_of_batch(self, network: AbstractNetwork, outputs: Any, inputs: Any, target: Any) -> Mapping[str, Any]:
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
            return named_losses(network, self._loss.of(network, outputs, backend.prepare(target, network)))


def _are_losses(values: Any) -> bool:
    """Whether a `val_step` gave losses by name; those of MMEngine's users give predictions."""
    return isinstance(values, Mapping) and all(_is_number(value) for value in values.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or np.prod(getattr(value, "shape", (0,))) == 1
