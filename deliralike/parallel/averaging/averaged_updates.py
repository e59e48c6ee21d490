"""DASO over any of our optimizers: processes share a node's batch, nodes average parameters."""

from __future__ import annotations

from typing import Any

from deliralike.errors import SettingError
from deliralike.network.core import unreplicated
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.asynchronous import AsynchronousAverages
from deliralike.parallel.averaging.daso import Plan
from deliralike.parallel.processes.group import SingleProcess
from deliralike.parallel.processes.topology import Nodes


class AveragedUpdates(AsynchronousAverages):
    """The updates of an optimizer, with averages between nodes after each.

    The optimizer's network is distributed over the processes of a node,
    ``DistributedDataParallel(network, nodes.node)``; it takes each process's share of its node's
    batch. In batches that are not averaged within nodes, which a large `Plan.largest` causes, each
    process trains alone.

    Example:
        >>> import numpy as np
        >>> from deliralike import DistributedDataParallel, join, rules, zoo
        >>> nodes = Nodes(join())
        >>> network = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> network = DistributedDataParallel(network, nodes.node)
        >>> optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
        >>> plan = Plan(epochs=2, warmup=1, cooldown=0)
        >>> averages = AveragedUpdates(optimizer, nodes, plan, batches=1)
        >>> batch = (np.ones((4, 3), np.float32), np.zeros(4, np.int64))
        >>> for epoch in range(2):
        ...     loss = network.train_step(batch, optimizer)["loss"]
        ...     _ = averages.end_epoch(float(loss))
        >>> averages.state.epoch
        2
    """

    def __init__(
        self,
        optimizer: AbstractOptimizer,
        nodes: Nodes,
        plan: Plan,
        batches: int,
        **keywords: Any,
    ) -> None:
        """Add a hook to the optimizer, which averages what is due after each update.

        Args:
            batches: How many updates an epoch has, the same in all processes.
            keywords: ``wire``; see `AsynchronousAverages`.
        """
        self._optimized = optimizer.network
        super().__init__(
            unreplicated(optimizer.network), nodes, plan, batches, **keywords
        )
        optimizer.post_update_hooks.append(_AverageAfterUpdate(self))
        self.prepare()

    def prepare(self) -> None:
        """Set which processes share the coming batch: the node, or this one alone."""
        group = self.nodes.node if self.within else SingleProcess()
        self._optimized.parallelism.train_over(group)


class _AverageAfterUpdate:
    """Post-update hook that calls `AsynchronousAverages` after all other hooks."""

    runs_last = True

    def __init__(self, averages: AveragedUpdates) -> None:
        self.averages = averages

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        # A loss scale leaves updates out, in one node and not in another.
        if optimizer.loss_scale is not None:
            raise SettingError(
                "averages between nodes go without a loss scale: compute_in('bfloat16') needs none"
            )
        self.averages.before_update()
        self.averages.after_update()
