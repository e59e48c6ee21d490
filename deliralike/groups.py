"""Deprecated alias of `deliralike.optim.groups`."""

from deliralike.optim.groups import *  # noqa: F403
