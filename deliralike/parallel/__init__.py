"""Data parallelism, the framework-free half.

It has scatter and gather, replicas that run in threads, hooks and callbacks.
"""

from typing import TYPE_CHECKING

from deliralike import lazy
from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.context import current as current_replica

if TYPE_CHECKING:
    from deliralike.optim.loss import in_replicas
    from deliralike.parallel.averaging.averaged_updates import AveragedUpdates
    from deliralike.parallel.averaging.daso import Plan
    from deliralike.parallel.averaging.local_sgd import LocalSGD
    from deliralike.parallel.batches.gather import gather
    from deliralike.parallel.batches.scatter import partition, scatter
    from deliralike.parallel.processes.group import ProcessGroup, SingleProcess
    from deliralike.parallel.processes.topology import Nodes
    from deliralike.parallel.replicas.callbacks import (
        CallbackContext,
        call_replication_callbacks,
    )
    from deliralike.parallel.replicas.network import (
        AccumulateGradients,
        CopyParameters,
        ReplicatedNetwork,
    )
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            "deliralike.optim.loss": "in_replicas",
            "deliralike.parallel.averaging.averaged_updates": "AveragedUpdates",
            "deliralike.parallel.averaging.daso": "Plan",
            "deliralike.parallel.averaging.local_sgd": "LocalSGD",
            "deliralike.parallel.batches.gather": "gather",
            "deliralike.parallel.batches.scatter": "partition scatter",
            "deliralike.parallel.processes.group": "ProcessGroup SingleProcess",
            "deliralike.parallel.processes.topology": "Nodes",
            "deliralike.parallel.replicas.callbacks": "CallbackContext call_replication_callbacks",
            "deliralike.parallel.replicas.network": (
                "AccumulateGradients CopyParameters ReplicatedNetwork"
            ),
        },
    )

__all__ = [
    "AccumulateGradients",
    "AveragedUpdates",
    "CallbackContext",
    "CopyParameters",
    "LocalSGD",
    "Nodes",
    "Plan",
    "ProcessGroup",
    "Replica",
    "ReplicatedNetwork",
    "SingleProcess",
    "call_replication_callbacks",
    "current_replica",
    "gather",
    "in_replicas",
    "partition",
    "scatter",
]
