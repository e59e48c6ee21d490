"""Deprecated alias of `deliralike.network.anomalies`."""

from deliralike.network.anomalies import *  # noqa: F403
