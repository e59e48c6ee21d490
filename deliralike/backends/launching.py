"""Deprecated alias of `deliralike.backends.processes.launch`."""

from deliralike.backends.processes.launch import *  # noqa: F403
