"""Optimizer steps over replicated networks: gradients, hooks, update and copies."""

from __future__ import annotations

from deliralike.backends.jax import arrays
from deliralike.backends.jax.optimizer import JaxOptimizer
from deliralike.backends.jax.replicas import programs
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.replicas.network import AccumulateGradients


class DataParallelJaxOptimizer(JaxOptimizer):
    """The optimizer of a replicated network.

    Forward and backward of each replica are programs on its device, and the update is another.

    Between them the pre-update hooks run on concrete arrays: the first adds the replicas' gradients
    up, your own see the sum. Where nothing reads the sum, the update's program computes it: the
    gradients are read once, and no sum is written.
    """

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
