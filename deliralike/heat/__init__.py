"""Deprecated alias of `deliralike.compat.heat`."""

from deliralike.compat.heat import *  # noqa: F403
from deliralike.compat.heat import __getattr__, communication  # noqa: F401
