"""Deprecated alias of `deliralike.compat.heat.optim`."""

from deliralike.compat.heat.optim import *  # noqa: F403
from deliralike.compat.heat.optim import __getattr__  # noqa: F401
