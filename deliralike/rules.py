"""Deprecated alias of `deliralike.optim.rules`."""

from deliralike.optim.rules import *  # noqa: F403
