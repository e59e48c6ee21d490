"""Chainer networks in several processes."""

from deliralike.backends.chainer.distributed.layerwise import LayerwiseChainerNetwork
from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork
from deliralike.backends.chainer.distributed.optimizer import taken_apart

__all__ = ["DistributedChainerNetwork", "LayerwiseChainerNetwork", "taken_apart"]
