"""Deprecated alias of `deliralike.compat.heat.nn`."""

from deliralike.compat.heat.nn import *  # noqa: F403
from deliralike.compat.heat.nn import __getattr__  # noqa: F401
