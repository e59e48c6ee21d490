"""Optimizer steps over replicated networks: gradients, hooks, update and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike.backends.jax import arrays
from deliralike.backends.jax.optimizer import JaxOptimizer
from deliralike.backends.jax.replicas import programs
from deliralike.backends.jax.replicas.network import DataParallelJaxNetwork
from deliralike.backends.jax.update_rules import NativeRule
from deliralike.errors import OptimizerError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.replicas.network import AccumulateGradients


class DataParallelJaxOptimizer(JaxOptimizer):
    """The optimizer of a replicated network.

    Forward and backward of each replica are programs on its device, and the update is another.

    Between them the pre-update hooks run on concrete arrays: the first adds the replicas' gradients
    up, your own see the sum. Where nothing reads the sum, the update's program computes it: the
    gradients are read once, and no sum is written.
    """

    @classmethod
    def from_optimizer_class(
        cls,
        optimizer_class: Callable[..., Any],
        network: AbstractNetwork,
        *args: Any,
        **kwargs: Any,
    ) -> JaxOptimizer:
        """Make an optimizer from one of optax's functions and its arguments.

        The optimizer holds the state that optax hands around. Over a plain network it is a
        `JaxOptimizer`, whose whole step is one program.

        Raises:
            OptimizerError: It is no function of optax's kind.

        Example:
            >>> import optax
            >>> from deliralike import zoo
            >>> net = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
            >>> make = DataParallelJaxOptimizer.from_optimizer_class
            >>> make(optax.sgd, net, learning_rate=0.1).steps
            0
        """
        transformation = None
        if callable(optimizer_class):
            transformation = optimizer_class(*args, **kwargs)
        if not (hasattr(transformation, "init") and hasattr(transformation, "update")):
            raise OptimizerError(
                "from_optimizer_class wants a function such as optax.adam, not "
                f"{optimizer_class!r}: one that gives a gradient transformation"
            )
        kind = cls if isinstance(network, DataParallelJaxNetwork) else JaxOptimizer
        return kind(network, NativeRule(transformation))

    def update_at_once(self, loss_function, batch):
        """Make one step: gradients, pre-update hooks, update, post-update hooks."""
        return AbstractOptimizer.update_at_once(self, loss_function, batch)

    def update_with(self, gradients):
        """Make the update with the sum of the replicas' gradients; hooks run around it."""
        if self._is_sum_read():
            super().update_with(gradients)
            return
        self.latest_gradients = {}
        summands = [gradients]
        for of_replica in self.replica_gradients():
            values = arrays.move_all([*of_replica.values()], self.network.device_name)
            summands.append(dict(zip(of_replica, values, strict=True)))
        self.finish_update(self.apply_sum(summands))

    def _is_sum_read(self) -> bool:
        """Return whether anything but the update reads the sum of the gradients."""
        hooks = [type(hook) for hook in self.pre_update_hooks]
        is_kept = self.keep_gradients or self.loss_scale is not None
        return is_kept or hooks != [AccumulateGradients]

    def gradients(self, loss_function, *batch):
        """Return the root's gradients; those of the other replicas stay there."""
        result, _, (root_gradients, *others), _ = programs.run_gradients(
            self.network, self._programs, loss_function, batch, of_inputs=False
        )
        self.network.keep_gradients(others)
        return result, root_gradients
