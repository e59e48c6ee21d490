"""Deprecated alias of `deliralike.compat.heat.communication`."""

from deliralike.compat.heat.communication import *  # noqa: F403
