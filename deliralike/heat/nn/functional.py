"""Deprecated alias of `deliralike.compat.heat.nn.functional`."""

from deliralike.compat.heat.nn.functional import *  # noqa: F403
from deliralike.compat.heat.nn.functional import __getattr__  # noqa: F401
