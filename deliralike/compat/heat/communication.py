"""Communicators under heat's names.

They are MPI's own, or the processes of any other engine in their place.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

from deliralike.backends.processes.join import join, time_limit
from deliralike.errors import ArgumentError
from deliralike.parallel.processes.group import ProcessGroup


class Communication:
    """A communicator as heat has it, over processes that any engine connects.

    What it does not have itself is the MPI communicator's: ``comm.Allreduce``, ``comm.bcast`` …

    Attributes:
        processes: They.
        rank, size: The number of this process, and how many there are.
        handle: The communicator of mpi4py; None over another engine.
    """

    def __init__(self, processes: ProcessGroup) -> None:
        """A communicator over these processes."""
        self.processes = processes
        self.rank, self.size = processes.rank, processes.count
        self.handle = getattr(processes, "comm", None)

    def is_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self.size > 1

    def __getattr__(self, name: str) -> Any:
        """What mpi4py's communicator has."""
        if name.startswith("_") or self.handle is None:
            raise AttributeError(f"{type(self).__name__} over {self.processes} has no {name!r}")
        return getattr(self.handle, name)


@cache
def world() -> Communication:
    """All processes that mpiexec has started: ``ht.MPI_WORLD``. MPI begins with the first use.

    They wait for each other as long as ``deliralike launch --timeout`` says, or five minutes.
    """
    return Communication(join("mpi"))


@cache
def own() -> Communication:
    """This process by itself: ``ht.MPI_SELF``."""
    mpi = _mpi()
    return Communication(mpi.MPIProcessGroup(mpi.MPI.COMM_SELF.Dup()))


class _Default:
    """The communicator that is taken where none is named."""

    chosen: Communication | None = None


def get_comm() -> Communication:
    """Return the default communicator.

    It is ``MPI_WORLD`` until `use_comm` chooses another.
    """
    return _Default.chosen or world()


def chosen() -> Communication | None:
    """What `use_comm` has chosen, if anything."""
    return _Default.chosen


def use_comm(comm: Any = None) -> None:
    """Choose the communicator that is taken where none is named.

    Raises:
        ArgumentError: It is no communicator.
    """
    _Default.chosen = sanitize_comm(comm)


def sanitize_comm(comm: Any) -> Communication:
    """Return a communicator of this module for any form of communicator.

    The forms are one of mpi4py's, one of heat's, a group of processes, and None for the default.

    Raises:
        ArgumentError: It is something else.

    Example:
        >>> from deliralike.parallel import SingleProcess
        >>> sanitize_comm(SingleProcess()).size
        1
    """
    if comm is None or isinstance(comm, Communication):
        return comm or get_comm()
    if isinstance(comm, ProcessGroup):
        return Communication(comm)
    kinds = (_mpi().MPI.Comm,) if "mpi4py" in sys.modules else ()
    # heat's own hold mpi4py's as their handle; in mpi4py 4.1 and later that of a communicator
    # itself is a number
    found = [each for each in (comm, getattr(comm, "handle", None)) if isinstance(each, kinds)]
    if not found:
        raise ArgumentError(
            f"{comm!r} is no communicator: give ht.MPI_WORLD, one of mpi4py's, or what "
            f"deliralike.join() gives"
        )
    return Communication(_mpi().MPIProcessGroup(found[0], time_limit()))


def _mpi() -> Any:
    """The engine, which needs mpi4py and begins MPI: only for whoever uses MPI."""
    return importlib.import_module("deliralike.parallel.processes.mpi")
