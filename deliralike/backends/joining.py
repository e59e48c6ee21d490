"""Deprecated alias of `deliralike.backends.processes.join` and `.environment`."""

from deliralike.backends.processes.environment import *  # noqa: F403
from deliralike.backends.processes.join import *  # noqa: F403
