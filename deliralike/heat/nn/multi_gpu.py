"""Deprecated alias of `deliralike.compat.heat.nn.multi_gpu`."""

from deliralike.compat.heat.nn.multi_gpu import *  # noqa: F403
