"""Deprecated alias of `deliralike.compat.heat.nn.data_parallel`."""

from deliralike.compat.heat.nn.data_parallel import *  # noqa: F403
