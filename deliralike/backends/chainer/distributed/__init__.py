"""Past one process."""

from deliralike.backends.chainer.distributed.layerwise import LayerwiseChainerNetwork
from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork

__all__ = ["DistributedChainerNetwork", "LayerwiseChainerNetwork"]
