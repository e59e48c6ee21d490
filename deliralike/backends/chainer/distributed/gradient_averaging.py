"""The Chainer network that averages gradients over processes in each step."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.errors import CapabilityError
from deliralike.network.state import each_once
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork
from deliralike.parallel.processes.buckets import gradient_spec


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

    def trainable(self):
        self._own = {}
        for name, slot in each_once(self.network.neutral_slots()).items():
            if slot.trainable:
                self._own[name] = slot.native
        return {
            name: gradient_spec(parameter.array)
            for name, parameter in self._own.items()
        }

    def gradient(self, name):
        return self._own[name].grad

    def put_gradient(self, name, gradient):
        self._own[name].grad = gradient

    def on_host(self, gradient):
        return arrays.numpy(gradient)

    def from_host(self, name, average):
        return arrays.array(average, None, str(self._own[name].device))
