"""Deprecated alias of `deliralike.network.state`."""

from deliralike.network.state import *  # noqa: F403
