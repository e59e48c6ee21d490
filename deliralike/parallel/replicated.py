"""Deprecated alias of `deliralike.parallel.replicas.network`."""

from deliralike.parallel.replicas.network import *  # noqa: F403
