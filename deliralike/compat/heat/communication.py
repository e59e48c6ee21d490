"""heat's names for communicators: those of MPI, or the process group of any other engine."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

from deliralike.backends.processes.environment import time_limit
from deliralike.backends.processes.join import join
from deliralike.errors import ArgumentError
from deliralike.parallel.processes.group import ProcessGroup


class Communication:
    """A communicator as heat has it, over a process group of any engine.

    Attributes that this class does not have are those of the MPI communicator:
    ``comm.Allreduce``, ``comm.bcast`` …

    Attributes:
        processes: The process group.
        rank, size: The rank of this process, and the number of processes.
        handle: The communicator of mpi4py; None over another engine.
    """

    def __init__(self, processes: ProcessGroup) -> None:
        self.processes = processes
        self.rank = processes.rank
        self.size = processes.count
        self.handle = getattr(processes, "comm", None)

    def is_distributed(self) -> bool:
        """Return whether there is more than one process."""
        return self.size > 1

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of mpi4py's communicator."""
        if name.startswith("_") or self.handle is None:
            raise AttributeError(
                f"{type(self).__name__} over {self.processes} has no {name!r}"
            )
        return getattr(self.handle, name)


@cache
def world() -> Communication:
    """Return the communicator of all processes that mpiexec has started: ``ht.MPI_WORLD``.

    The first call initializes MPI. The processes wait for each other for as long as ``deliralike
    launch --timeout`` says, or five minutes.
    """
    return Communication(join("mpi"))


@cache
def of_this_process() -> Communication:
    """Return the communicator of this process alone: ``ht.MPI_SELF``."""
    mpi = _mpi()
    return Communication(mpi.MPIProcessGroup(mpi.MPI.COMM_SELF.Dup()))


class _Default:
    """The default communicator that `use_comm` has chosen; None stands for `world`."""

    chosen: Communication | None = None


def get_comm() -> Communication:
    """Return the default communicator.

    It is ``MPI_WORLD`` until `use_comm` chooses another.
    """
    return _Default.chosen or world()


def chosen() -> Communication | None:
    """Return the communicator that `use_comm` has chosen, or None."""
    return _Default.chosen


def use_comm(comm: Any = None) -> None:
    """Choose the default communicator.

    Raises:
        ArgumentError: The argument is no communicator.
    """
    _Default.chosen = sanitize_comm(comm)


def sanitize_comm(comm: Any) -> Communication:
    """Return a communicator of this module for any form of communicator.

    The forms are one of mpi4py's, one of heat's, a process group, and None for the default.

    Raises:
        ArgumentError: The argument is none of these.

    Example:
        >>> from deliralike.parallel import SingleProcess
        >>> sanitize_comm(SingleProcess()).size
        1
    """
    if comm is None:
        return get_comm()
    if isinstance(comm, Communication):
        return comm
    if isinstance(comm, ProcessGroup):
        return Communication(comm)
    handle = _mpi_handle(comm)
    if handle is None:
        raise ArgumentError(
            f"{comm!r} is no communicator: give ht.MPI_WORLD, one of mpi4py's, or what "
            f"deliralike.join() gives"
        )
    return Communication(_mpi().MPIProcessGroup(handle, time_limit()))


def _mpi_handle(comm: Any) -> Any:
    """Return the communicator of mpi4py behind one of mpi4py's or heat's; None for anything else.

    heat's communicators hold mpi4py's as their handle. The handle of mpi4py's own communicator is a
    number in mpi4py 4.1 and later.
    """
    if "mpi4py" not in sys.modules:  # nothing can be one of its communicators
        return None
    kind = _mpi().MPI.Comm
    for candidate in (comm, getattr(comm, "handle", None)):
        if isinstance(candidate, kind):
            return candidate
    return None


def _mpi() -> Any:
    """Return the engine's module, whose import needs mpi4py and initializes MPI."""
    return importlib.import_module("deliralike.parallel.processes.mpi")
