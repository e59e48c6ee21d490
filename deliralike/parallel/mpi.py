"""Deprecated alias of `deliralike.parallel.processes.mpi`."""

from deliralike.parallel.processes.mpi import *  # noqa: F403
