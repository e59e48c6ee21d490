"""Networks in several processes, on torch.distributed."""

from deliralike.backends.torch.distributed.gradient_averaging import (
    GradientAveragingTorchNetwork,
)
from deliralike.backends.torch.distributed.network import (
    DistributedTorchNetwork,
    TorchReplicasOverProcesses,
)
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup

__all__ = [
    "DistributedTorchNetwork",
    "GradientAveragingTorchNetwork",
    "TorchProcessGroup",
    "TorchReplicasOverProcesses",
]
