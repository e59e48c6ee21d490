"""Deprecated alias of `deliralike.network.construction`."""

from deliralike.network.construction import *  # noqa: F403
