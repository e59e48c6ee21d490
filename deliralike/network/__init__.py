"""Networks: the classes that are written once and bound to a backend, how they are built, and their
state.
"""

from deliralike.network.base import (
    AbstractNetwork,
    Block,
    Network,
    NetworkType,
    build,
    refuse_plain_container,
)

__all__ = ["AbstractNetwork", "Block", "Network", "NetworkType", "build", "refuse_plain_container"]
