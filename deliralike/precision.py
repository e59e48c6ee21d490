"""Deprecated alias of `deliralike.optim.precision`."""

from deliralike.optim.precision import *  # noqa: F403
