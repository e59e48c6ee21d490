"""Programs of one's own, without a trainer or a network: a process that runs them loads no more
than its engine."""

import os
import signal
import sys

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
