"""Networks in several processes, on torch.distributed."""

from deliralike.backends.torch.distributed.layerwise import LayerwiseTorchNetwork
from deliralike.backends.torch.distributed.network import (
    DistributedTorchNetwork,
    TorchReplicasOverProcesses,
)
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup

__all__ = [
    "DistributedTorchNetwork",
    "LayerwiseTorchNetwork",
    "TorchProcessGroup",
    "TorchReplicasOverProcesses",
]
