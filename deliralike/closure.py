"""Deprecated alias of `deliralike.network.closure`."""

from deliralike.network.closure import *  # noqa: F403
