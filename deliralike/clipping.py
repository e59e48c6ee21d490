"""Deprecated alias of `deliralike.optim.clipping`."""

from deliralike.optim.clipping import *  # noqa: F403
