"""Deprecated alias of `deliralike.compat.heat.optim.dp_optimizer`."""

from deliralike.compat.heat.optim.dp_optimizer import *  # noqa: F403
