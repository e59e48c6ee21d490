"""Chainer networks in several processes."""

from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork
from deliralike.backends.chainer.distributed.optimizer import (
    unwrap_multi_node_optimizer,
)

__all__ = [
    "DistributedChainerNetwork",
    "unwrap_multi_node_optimizer",
]
