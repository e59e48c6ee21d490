"""Modules that have moved are found at their old paths for one more version."""

import importlib

import pytest

MOVED = [
    ("deliralike.rules", "deliralike.optim.rules", "Adam"),
    ("deliralike.clipping", "deliralike.optim.clipping", "ClipNorm"),
    ("deliralike.precision", "deliralike.optim.precision", "LossScale"),
    ("deliralike.groups", "deliralike.optim.groups", "Groups"),
    ("deliralike.optimizer", "deliralike.optim.optimizer", "AbstractOptimizer"),
    ("deliralike.anomalies", "deliralike.network.anomalies", "Anomalies"),
    ("deliralike.state", "deliralike.network.state", "Slot"),
    ("deliralike.network", "deliralike.network.base", "NetworkType"),
    ("deliralike.nest", "deliralike.nest.tree", "flatten"),
    ("deliralike.parallel.replicated", "deliralike.parallel.replicas.network", "ReplicaSettings"),
    (
        "deliralike.parallel.distributed",
        "deliralike.parallel.processes.network",
        "DistributedNetwork",
    ),
    ("deliralike.parallel.mpi", "deliralike.parallel.processes.mpi", "MPIProcessGroup"),
    ("deliralike.backends.joining", "deliralike.backends.processes.join", "join"),
    ("deliralike.backends.launching", "deliralike.backends.processes.launch", "launched"),
    (
        "deliralike.backends.chainer.distributed.processes",
        "deliralike.backends.chainer.distributed.process_group",
        "ChainerMNProcessGroup",
    ),
]


@pytest.mark.parametrize(("old", "new", "name"), MOVED)
def test_the_old_path_of_a_module_gives_what_the_new_one_has(old, new, name):
    assert getattr(importlib.import_module(old), name) is getattr(
        importlib.import_module(new), name
    )
