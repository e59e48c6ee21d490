"""Modules that have moved are found at their old paths for one more version."""

import importlib

import pytest

from deliralike.parallel import SingleProcess

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
    ("deliralike.closure", "deliralike.network.closure", "prepare_batch"),
    ("deliralike.construction", "deliralike.network.construction", "current_construction"),
    ("deliralike.parallel.daso", "deliralike.parallel.averaging.daso", "decide"),
    ("deliralike.parallel.mpi", "deliralike.parallel.processes.mpi", "MPIProcessGroup"),
    ("deliralike.backends.joining", "deliralike.backends.processes.join", "join"),
    ("deliralike.backends.launching", "deliralike.backends.processes.launch", "launched"),
    (
        "deliralike.backends.chainer.distributed.processes",
        "deliralike.backends.chainer.distributed.process_group",
        "ChainerMNProcessGroup",
    ),
    ("deliralike.heat", "deliralike.compat.heat", "use_comm"),
    ("deliralike.heat.communication", "deliralike.compat.heat.communication", "Communication"),
    ("deliralike.heat.nn", "deliralike.compat.heat.nn", "DataParallel"),
    ("deliralike.heat.nn", "deliralike.compat.heat.nn", "Linear"),
    ("deliralike.heat.nn.data_parallel", "deliralike.compat.heat.nn.data_parallel", "DataParallel"),
    ("deliralike.heat.nn.functional", "deliralike.compat.heat.nn.functional", "relu"),
    ("deliralike.heat.nn.multi_gpu", "deliralike.compat.heat.nn.multi_gpu", "DataParallelMultiGPU"),
    ("deliralike.heat.optim", "deliralike.compat.heat.optim", "DASO"),
    ("deliralike.heat.optim", "deliralike.compat.heat.optim", "SGD"),
    ("deliralike.heat.optim.daso", "deliralike.compat.heat.optim.daso", "DASO"),
    (
        "deliralike.heat.optim.dp_optimizer",
        "deliralike.compat.heat.optim.dp_optimizer",
        "DataParallelOptimizer",
    ),
    ("deliralike.heat.optim.lr_scheduler", "deliralike.compat.heat.optim.lr_scheduler", "StepLR"),
]


@pytest.mark.parametrize(("old", "new", "name"), MOVED)
def test_the_old_path_of_a_module_gives_what_the_new_one_has(old, new, name):
    assert getattr(importlib.import_module(old), name) is getattr(
        importlib.import_module(new), name
    )


def test_both_paths_of_heat_share_one_default_communicator(monkeypatch):
    old = importlib.import_module("deliralike.heat")
    new = importlib.import_module("deliralike.compat.heat")
    communication = importlib.import_module("deliralike.compat.heat.communication")
    monkeypatch.setattr(communication._Default, "chosen", None)
    old.use_comm(SingleProcess())
    assert new.get_comm() is old.get_comm()
    assert old.nn.functional.relu is new.nn.functional.relu
    with pytest.raises(AttributeError, match="no attribute 'Linnear'"):
        _ = old.nn.Linnear
