"""Deprecated alias of `deliralike.parallel.averaging.daso`."""

from deliralike.parallel.averaging.daso import *  # noqa: F403
