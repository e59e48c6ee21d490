"""Deprecated alias of `deliralike.compat.heat.optim.daso`."""

from deliralike.compat.heat.optim.daso import *  # noqa: F403
