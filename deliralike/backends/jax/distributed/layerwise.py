"""The JAX network that averages gradients over processes and defers updates.

The updates wait for the next forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from deliralike.backends.jax import arrays
from deliralike.network.state import each_once
from deliralike.parallel.layerwise import LayerwiseNetwork, attributes_set, entries_set
from deliralike.parallel.processes.buckets import gradient_spec


class LayerwiseJaxNetwork(LayerwiseNetwork):
    """A `LayerwiseNetwork` on JAX, whose gradients are sent in `step`.

    On JAX gradients are what a function returns, and a program takes all parameters at once. So
    gradients stay on this process until they are sent in `step`, and the next program waits for the
    whole network.
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

    def settings_of(self, optimizer: Any) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function that gives the optimizer's settings as a context.

        They are those of a neutral rule, or what ``optax.inject_hyperparams`` has made part of the
        state.
        """
        rule = optimizer.rule
        if hasattr(rule, "groups"):
            groups = rule.groups
            return lambda: attributes_set(rule, {"groups": groups})
        settings = dict(getattr(rule.state, "hyperparams", {}))
        return lambda: entries_set(lambda: getattr(rule.state, "hyperparams", {}), settings)
