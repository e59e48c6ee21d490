"""The Chainer network that averages gradients over processes and delays its updates.

An update is made before the next forward pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import chainer

from deliralike.backends.chainer import arrays
from deliralike.errors import CapabilityError
from deliralike.network.state import each_once
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.layerwise import LayerwiseNetwork, entries_set
from deliralike.parallel.processes.buckets import gradient_spec


class LayerwiseChainerNetwork(LayerwiseNetwork):
    """The layerwise network of Chainer; see `LayerwiseNetwork`.

    Chainer reports neither that a gradient is complete nor which parameters a function uses. So
    gradients are sent in `step`, and the next forward pass waits for the whole network: also that
    of the chain that was given, or of a link of it, when one is called in this thread.
    """

    _hook: _FinishBefore | None = None
    _is_updating = False

    def watch(self):
        if self._hook is None:  # it stays, as a hook must not be removed while hooks are called
            self._hook = _FinishBefore(self)
            self._hook.__enter__()
            weakref.finalize(self, chainer._get_link_hooks().pop, self._hook.name, None)

    def bind(self, optimizer: Any) -> None:
        """Forbid direct updates of the native optimizer.

        Such an update would follow the gradients of this process alone.
        """
        optimizer.native.add_hook(self._refuse_alone, f"{type(self).__name__}-{id(self)}")

    def update_now(self, optimizer: AbstractOptimizer) -> None:
        """Update by the present gradients."""
        self._is_updating = True
        try:
            super().update_now(optimizer)
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
        return {name: gradient_spec(parameter.array) for name, parameter in self._own.items()}

    def gradient(self, name):
        return self._own[name].grad

    def put_gradient(self, name, gradient):
        self._own[name].grad = gradient

    def on_host(self, gradient):
        return arrays.numpy(gradient)

    def from_host(self, name, average):
        return arrays.array(average, None, str(self._own[name].device))

    def settings_of(self, optimizer: Any) -> Callable[[], AbstractContextManager[Any]]:
        """Return a function whose contexts give an optimizer the hyperparameters that it has now.

        They are attributes of the optimizer's, and of each parameter's own rule.
        """
        rules = [parameter.update_rule for parameter in self._own.values()]
        owners = [optimizer.native, *(rule for rule in rules if rule is not None)]
        tables = [vars(owner.hyperparam) for owner in owners]
        recorded = [dict(table) for table in tables]

        def settings() -> AbstractContextManager[Any]:
            stack = ExitStack()
            for table, values in zip(tables, recorded, strict=True):
                stack.enter_context(entries_set(partial(_itself, table), values))
            return stack

        return settings


class _FinishBefore(chainer.LinkHook):
    """Finishes what is pending before a link is called that holds parameters of the network."""

    def __init__(self, network: LayerwiseChainerNetwork) -> None:
        self.name = f"deliralike, layerwise network {id(network)}"
        self._network = weakref.ref(network)

    def forward_preprocess(self, args: Any) -> None:
        network = self._network()
        if network is None or not network.is_under_way:
            return
        own = {id(parameter) for parameter in network._own.values()}
        if any(id(parameter) in own for parameter in args.link.params()):
            network.finish()


def _itself(entries: dict) -> dict:
    return entries
