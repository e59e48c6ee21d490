"""Deprecated alias of `deliralike.parallel.processes.network`."""

from deliralike.parallel.processes.network import *  # noqa: F403
