"""Programs of one's own, without a trainer or a network: a process that runs them loads no more
than its engine."""

import importlib
import os
import signal
import sys
import time
from datetime import timedelta

import numpy as np

from deliralike.backends.processes.environment import PATIENCE, restarts
from deliralike.compat import heat as ht


def here(processes):
    """Who is there."""
    return processes.all_gather_object("here", processes.rank)


def other_steps(processes):
    """One process makes another step than the others."""
    if processes.rank == 1:
        processes.all_gather_object("the ends of the earth", 1)
    else:
        processes.all_gather_object("lunch", 1)


def ends_early(processes):
    """The second process makes two steps, the others three; nobody says goodbye."""
    for _ in range(2 if processes.rank == 1 else 3):
        processes.all_gather_object("a step of my own", 0)
    sys.exit(0)


def one_batch_less(processes):
    """The second process comes to its end while the first is at another step."""
    for _ in range(3 - processes.rank):
        processes.all_gather_object("a step of my own", 0)


SHORT = 3.0  # seconds that a process waits for one that stops


def one_stops(processes):
    """The second process hangs after a step, from which on the first waits a short time."""
    processes.all_gather_object("a step of my own", 0)
    if processes.rank == 1:
        time.sleep(600)
    processes.timeout = SHORT  # until here a busy machine may keep a process waiting
    if processes.engine == "torch.distributed":
        torch = importlib.import_module("torch")
        torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=SHORT))
    processes.all_gather_object("a step of my own", 0)


def killed_at_first(processes):
    """The second process is killed when it is started for the first time."""
    if processes.rank == 1 and restarts()[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return restarts()


def fails_in_its_own_loop(processes):
    """An error of the user's between two steps, outside of any trainer."""
    for step in range(3):
        if (processes.rank, step) == (1, 2):
            raise KeyError("the colour of the bikeshed")
        processes.all_gather_object("a step of my own", 0)


def heats_time_limits(processes):
    """The time limits of communicators by heat's names, once the launcher has named one; in
    seconds."""
    os.environ[PATIENCE] = "17"
    from mpi4py import MPI  # which begins MPI

    given = ht.communication.sanitize_comm(MPI.COMM_WORLD.Dup())
    return [comm.processes.timeout for comm in (ht.MPI_WORLD, given)]


def messages(processes):
    """Sums in several types, the lengths of long messages, and what a group of two says and
    adds."""
    dtypes = ("float64", "float32", "float16", "int64", "int8")
    sums = processes.all_reduce(
        "numbers", [np.array([1, 2, 3], dtype) for dtype in dtypes]
    )
    came = processes.all_gather_object("long ones", b"x" * (20_000 + processes.rank))
    group = processes.subgroup([0, 2])
    of_group = [None, None]
    if processes.rank != 1:
        of_group = [
            ["here", *group.all_gather_object("rank", processes.rank)],
            group.all_reduce_flat(np.array([1.0, 2.0])).tolist(),
        ]
    return [
        [[str(each.dtype), each.tolist()] for each in sums],
        [len(each) for each in came],
        of_group,
    ]
