"""A Chainer network that trains in several processes."""

from __future__ import annotations

from deliralike.backends.chainer.data_parallel import DataParallelChainerNetwork
from deliralike.parallel.distributed import DistributedNetwork


class DistributedChainerNetwork(DistributedNetwork, DataParallelChainerNetwork):
    """A network of Chainer in several processes; see `deliralike.parallel.distributed.DistributedNetwork`."""

    def forget_gradients(self) -> None:
        """By ``cleargrads``."""
        self.cleargrads()
