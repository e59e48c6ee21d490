"""Chainer networks in several processes."""

from deliralike.backends.chainer.distributed.layerwise import LayerwiseChainerNetwork
from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork
from deliralike.backends.chainer.distributed.optimizer import unwrap_multi_node_optimizer

__all__ = [
    "DistributedChainerNetwork",
    "LayerwiseChainerNetwork",
    "unwrap_multi_node_optimizer",
]
