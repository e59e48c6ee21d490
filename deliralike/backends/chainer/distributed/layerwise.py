"""The Chainer network whose gradients are averaged over processes, and whose updates wait for the next forward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.parallel.buckets import described
from deliralike.parallel.layerwise import LayerwiseNetwork, entries_set


class LayerwiseChainerNetwork(LayerwiseNetwork):
    """See `LayerwiseNetwork`. Chainer tells nobody that a gradient is complete, nor which parameters a function takes.

    So gradients are sent in `step`, and the next forward pass waits for the whole network.
    """

    def trainable(self):
        slots = self.network.neutral_slots().items()
        first = {id(slot.native): name for name, slot in reversed(slots) if slot.trainable}
        self._own = {name: slot.native for name, slot in slots if first.get(id(slot.native)) == name}
        return {name: described(parameter.array) for name, parameter in self._own.items()}

    def gradient(self, name):
        return self._own[name].grad

    def put_gradient(self, name, gradient):
        self._own[name].grad = gradient

    def on_host(self, gradient):
        return arrays.numpy(gradient)

    def from_host(self, name, average):
        return arrays.array(average, None, str(self._own[name].device))

    def settings_of(self, optimizer: Any) -> Callable[[], AbstractContextManager[Any]]:
        """Hyperparameters are attributes of the optimizer's, and of each parameter's own rule."""
        rules = [parameter.update_rule for parameter in self._own.values() if parameter.update_rule is not None]
        held = [vars(each.hyperparam) for each in (optimizer.native, *rules)]
        noted = [dict(each) for each in held]

        def settings() -> AbstractContextManager[Any]:
            stack = ExitStack()
            for entries, then in zip(held, noted, strict=True):
                stack.enter_context(entries_set(partial(_itself, entries), then))
            return stack

        return settings


def _itself(entries: dict) -> dict:
    return entries
