"""Deprecated alias of `deliralike.network.anomalies` and `.detection`."""

from deliralike.network.anomalies import *  # noqa: F403
from deliralike.network.detection import *  # noqa: F403
