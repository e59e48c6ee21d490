"""Deprecated alias of `deliralike.optim.optimizer`."""

from deliralike.optim.optimizer import *  # noqa: F403
