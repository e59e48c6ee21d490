"""Deprecated alias of `deliralike.backends.processes.join`."""

from deliralike.backends.processes.join import *  # noqa: F403
