"""The JAX network that averages gradients over processes in each step."""

from __future__ import annotations

from typing import Any

from deliralike.backends.jax import arrays
from deliralike.network.state import each_once
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork
from deliralike.parallel.processes.buckets import gradient_spec


class GradientAveragingJaxNetwork(GradientAveragingNetwork):
    """See `GradientAveragingNetwork`.

    On JAX gradients are what a function returns. So they stay on this process until they are sent
    in `step`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._gradients: dict[str, Any] = {}
        super().__init__(*args, **settings)

    def trainable(self):
        self._types: dict[str, str] = {}
        descriptions = {}
        for name, slot in each_once(self.network.neutral_slots()).items():
            if slot.trainable:
                value = slot.value
                self._types[name] = str(value.dtype)
                descriptions[name] = gradient_spec(value)
        return descriptions

    def gradient(self, name):
        return self._gradients.get(name)

    def put_gradient(self, name, gradient):
        self._gradients[name] = gradient

    def on_host(self, gradient):
        return arrays.numpy(gradient)

    def from_host(self, name, average):
        return arrays.array(average.copy(), self._types[name], self.network.device_name)
