"""Data parallelism, the framework-free half: scatter and gather, replicas side by side, hooks, callbacks."""

from deliralike.parallel.averaged_updates import AveragedUpdates
from deliralike.parallel.callbacks import CallbackContext, call_replication_callbacks
from deliralike.parallel.daso import Plan
from deliralike.parallel.gather import gather
from deliralike.parallel.hooks import AccumulateGradients, CopyParameters
from deliralike.parallel.local_sgd import LocalSGD
from deliralike.parallel.loss import in_replicas
from deliralike.parallel.nodes import Nodes
from deliralike.parallel.partition import partition
from deliralike.parallel.processes import Alone, Processes
from deliralike.parallel.replica import Replica
from deliralike.parallel.replica import current as current_replica
from deliralike.parallel.replicated import ReplicatedNetwork
from deliralike.parallel.scatter import scatter

__all__ = [
    "AccumulateGradients",
    "Alone",
    "AveragedUpdates",
    "CallbackContext",
    "CopyParameters",
    "LocalSGD",
    "Nodes",
    "Plan",
    "Processes",
    "Replica",
    "ReplicatedNetwork",
    "call_replication_callbacks",
    "current_replica",
    "gather",
    "in_replicas",
    "partition",
    "scatter",
]
