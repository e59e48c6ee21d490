"""Networks: classes written once and bound to a backend, their construction and their state."""

from deliralike.network.arguments import Block
from deliralike.network.base import AbstractNetwork, Network, NetworkType, build
from deliralike.network.unregistered_modules import refuse_plain_container

__all__ = [
    "AbstractNetwork",
    "Block",
    "Network",
    "NetworkType",
    "build",
    "refuse_plain_container",
]
