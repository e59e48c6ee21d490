"""Optimizers of frameworks whose backward pass leaves gradients in the parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from deliralike.optim.accumulation import BackwardSums, Gradients
from deliralike.optim.loss import (
    LossFunction,
    no_array,
    no_scalar,
    value_of,
    with_value,
)
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.owned_parameters import OwnedParameters


class BackwardOptimizer(AbstractOptimizer):
    """An optimizer that takes gradients from the parameters after ``loss.backward()``."""

    _owned: OwnedParameters

    def prepared(self, batch: tuple) -> tuple:
        """Prepare a batch for the device and type of the parameters."""
        self._owned.refresh()
        return self.network.backend.prepare(batch, self._owned)

    def gradients(
        self, loss_function: LossFunction, *batch: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Run forward and backward; return the detached result, and gradients by name.

        Gradients of a previous step are dropped first. A tied parameter comes under its first name.
        A loss in replicas runs backward in each replica's thread.
        """
        result = self.forward_backward(loss_function, _backward, batch)
        parameters = self._owned.parameters
        gradients = {name: p.grad for name, p in parameters.items() if p.requires_grad}
        return self._detached(result), gradients

    def add_gradients(
        self, sums: list[Gradients], loss_function: LossFunction, *batch: Any
    ) -> Any:
        """Run forward and backward; each gradient is added to its sum as it comes, where it can."""
        self._owned.refresh()
        if not self.adds_in_backward():
            return super().add_gradients(sums, loss_function, *batch)
        backend = self.network.backend
        gradient_sums = BackwardSums(backend, sums, self.leaves, self.unshared)

        def backward(loss: Any) -> None:
            _refuse_array(loss)
            gradient_sums.begin()
            loss.backward()

        try:
            result = self.forward_backward(loss_function, backward, batch)
        except BaseException:
            if gradient_sums.has_begun:
                self._drop_window()
            raise
        gradient_sums.take()
        return self._detached(result)

    @abstractmethod
    def forward_backward(
        self, loss_function: Callable, backward: Callable[[Any], None], batch: tuple
    ) -> Any:
        """Return the result of a loss function; previous gradients are dropped first."""

    @abstractmethod
    def adds_in_backward(self) -> bool:
        """Return whether gradients may be added to sums as they come."""

    @abstractmethod
    def unshared(self, gradient: Any) -> Any:
        """Return a gradient of a backward pass in storage that nothing else writes to."""

    def leaves(self) -> list[Mapping[str, Any]]:
        """Return the parameters by name of each replica, the root's first."""
        return [self._owned.parameters]

    def _detached(self, result: Any) -> Any:
        """Return what a loss function returned without the graph of the loss."""
        return with_value(result, self.network.nn.stop_gradient(value_of(result)))


def _backward(loss: Any) -> None:
    _refuse_array(loss)
    loss.backward()


def _refuse_array(loss: Any) -> None:
    if not hasattr(loss, "backward"):
        raise no_array(loss)
    if math.prod(loss.shape) != 1:
        raise no_scalar(loss.shape)
