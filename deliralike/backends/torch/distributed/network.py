"""The PyTorch network that trains in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from deliralike.backends.torch.data_parallel import DataParallelTorchNetwork
from deliralike.backends.torch.distributed.processes import TorchProcesses
from deliralike.errors import CapabilityError
from deliralike.parallel.distributed import DistributedNetwork


class _Reducing(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's own wrapper, in which a loss finds everything of the network inside."""

    def __getattr__(self, name: str) -> Any:
        """The wrapper's, or the network's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class DistributedTorchNetwork(DistributedNetwork, DataParallelTorchNetwork):
    """A network of PyTorch in several processes; see `deliralike.parallel.distributed.DistributedNetwork`."""

    _reducing: Any = None

    def reduce_in_backward(self, **keywords: Any) -> None:
        """Let ``torch.nn.parallel.DistributedDataParallel`` add the gradients, in buckets, while backward goes on.

        It does so at every update whose gradients are of one backward pass, in which all processes have samples; else,
        as with micro-batches, they are added after backward. A loss that takes gradients within itself needs the
        latter.

        Args:
            keywords: PyTorch's own: ``bucket_cap_mb``, ``find_unused_parameters``, ``static_graph``,
                ``gradient_as_bucket_view`` … Buffers follow the policy of this network.

        Raises:
            CapabilityError: The processes are not those of torch.distributed.
        """
        if not isinstance(self.processes, TorchProcesses):
            raise CapabilityError(f"{self.processes}: PyTorch adds gradients during backward over torch.distributed "
                                  f"alone: deliralike.join('torch')")  # fmt: skip
        keywords = {"forward_sync_buffers": False, "process_group": self.processes.group} | keywords
        vars(self)["_reducing"] = _Reducing(self.root, **keywords)
        self.processes.reducing.add(self)

    def reduce_after_backward(self) -> None:
        """Do without PyTorch's wrapper."""
        vars(self)["_reducing"] = None

    def reduces(self, sizes: Sequence[int]) -> bool:
        """Where all have samples, and the gradients are not to be added to others first."""
        return self._reducing is not None and self._syncs and all(sizes)

    def replica_at(self, position: int) -> Any:
        """PyTorch's wrapper while it is to add the gradients."""
        return self._reducing if self._is_reduced else super().replica_at(position)
