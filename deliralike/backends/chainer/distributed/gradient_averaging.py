"""The Chainer network that averages gradients over processes in each step."""

from __future__ import annotations

from typing import Any

from deliralike.errors import CapabilityError
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork


class GradientAveragingChainerNetwork(GradientAveragingNetwork):
    """See `GradientAveragingNetwork`.

    Chainer does not report that a gradient is complete. So gradients are sent in `step`.
    """

    _is_updating = False

    def bind(self, optimizer: Any) -> None:
        """Forbid direct updates of the native optimizer.

        Such an update would follow the gradients of this process alone.
        """
        optimizer.native.add_hook(
            self._refuse_alone, f"{type(self).__name__}-{id(self)}"
        )

    def step(self, optimizer: AbstractOptimizer) -> None:
        """Update by the means of all gradients since they were cleared."""
        self._is_updating = True
        try:
            super().step(optimizer)
        finally:
            self._is_updating = False

    def _refuse_alone(self, native: Any) -> None:
        if not self._is_updating:
            raise CapabilityError(
                f"an update of {type(native).__name__} by itself would follow the gradients of "
                "this process alone: call step() of the DataParallelOptimizer around it"
            )

    def gradient(self, name):
        return self._slots[name].native.grad

    def put_gradient(self, name, gradient):
        self._slots[name].native.grad = gradient
