"""Data parallelism, the framework-free half.

It has scatter and gather, replicas that run in threads, hooks and callbacks.
"""

from deliralike.optim.loss import in_replicas
from deliralike.parallel.averaging.averaged_updates import AveragedUpdates
from deliralike.parallel.averaging.daso import Plan
from deliralike.parallel.averaging.local_sgd import LocalSGD
from deliralike.parallel.batches.gather import gather
from deliralike.parallel.batches.partition import partition
from deliralike.parallel.batches.scatter import scatter
from deliralike.parallel.processes.group import Alone, Processes, ProcessGroup, SingleProcess
from deliralike.parallel.processes.topology import Nodes
from deliralike.parallel.replicas.callbacks import CallbackContext, call_replication_callbacks
from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.context import current as current_replica
from deliralike.parallel.replicas.hooks import AccumulateGradients, CopyParameters
from deliralike.parallel.replicas.network import ReplicatedNetwork

__all__ = [
    "AccumulateGradients",
    "Alone",
    "AveragedUpdates",
    "CallbackContext",
    "CopyParameters",
    "LocalSGD",
    "Nodes",
    "Plan",
    "ProcessGroup",
    "Processes",
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
