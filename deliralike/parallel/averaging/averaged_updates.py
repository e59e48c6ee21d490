"""DASO over any optimizer of ours: one process sees a share of its node's batch, nodes average
their parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from deliralike.errors import ProcessError, SettingError
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.asynchronous import AsynchronousAverages
from deliralike.parallel.averaging.daso import Plan
from deliralike.parallel.processes.group import ProcessGroup, SingleProcess
from deliralike.parallel.processes.topology import Nodes


class AveragedUpdates(AsynchronousAverages):
    """The updates of an optimizer, with averages between nodes after each.

    The optimizer's network is one over the processes of a node, ``DistributedDataParallel(network,
    nodes.node)``; it takes each process's share of its node's batch. In batches that are not
    averaged within nodes, as they come with large `Plan.largest`, each process is by itself for
    that batch.

    Example:
        >>> import numpy as np
        >>> from deliralike import DistributedDataParallel, join, rules, zoo
        >>> nodes = Nodes(join())
        >>> network = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> network = DistributedDataParallel(network, nodes.node)
        >>> optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
        >>> averages = AveragedUpdates(optimizer, nodes, Plan(epochs=2, warmup=1, cooldown=0), batches=1)
        >>> for epoch in range(2):
        ...     loss = network.train_step((np.ones((4, 3), np.float32), np.zeros(4, np.int64)), optimizer)["loss"]
        ...     _ = averages.end_epoch(float(loss))
        >>> averages.state.epoch
        2
    """

    def __init__(
        self, optimizer: AbstractOptimizer, nodes: Nodes, plan: Plan, batches: int, **keywords: Any
    ) -> None:
        """Let updates be followed by what is due.

        Args:
            batches: How many updates an epoch has, the same in all processes.
            keywords: ``chunk``, ``wire``; see `AsynchronousAverages`.
        """
        self._optimized = optimizer.network
        super().__init__(
            getattr(optimizer.network, "root", optimizer.network), nodes, plan, batches, **keywords
        )
        optimizer.post_update_hooks.append(_AfterUpdate(self))
        self.prepare()

    def prepare(self) -> None:
        """Let the coming batch be seen by the node, by this process alone, or, after the last one,
        by nobody.
        """
        ended = self.state.batch == self.batches
        among = self.nodes.node if self.within else SingleProcess()
        self._optimized.parallelism.train_over(_Ended(self.nodes.node) if ended else among)


class _AfterUpdate:
    """Post-update hook: what `AsynchronousAverages` has to do, after the other hooks."""

    runs_last = True

    def __init__(self, averages: AveragedUpdates) -> None:
        self.averages = averages

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        if (
            optimizer.loss_scale is not None
        ):  # which leaves updates out, in one node and not in another
            raise SettingError(
                "averages between nodes go without a loss scale: compute_in('bfloat16') needs none"
            )
        self.averages.before_update()
        self.averages.after_update()


class _Ended(ProcessGroup):
    """The processes of a node when an epoch is over, and has to be ended before the next batch."""

    def __init__(self, node: ProcessGroup) -> None:
        super().__init__(node.rank, node.count)

    def all_gather_bytes(self, message: bytes) -> NoReturn:
        """Refuse."""
        raise ProcessError(
            f"{self}: all batches of the epoch were made: call end_epoch(loss) before the next "
            "one, with the same number of batches in every process"
        )

    def all_reduce_flat(self, flat: np.ndarray) -> np.ndarray:
        """Refuse."""
        return self.all_gather_bytes(b"")

    def subgroup(self, ranks: Sequence[int]) -> ProcessGroup:
        """These."""
        return self

    def failed(self, why: str) -> None:
        """Nobody is told: the group itself does."""
