"""Deprecated alias of `deliralike.compat.heat.optim.lr_scheduler`."""

from deliralike.compat.heat.optim.lr_scheduler import *  # noqa: F403
from deliralike.compat.heat.optim.lr_scheduler import __getattr__  # noqa: F401
