"""Networks under heat's names; all other names are PyTorch's."""

from typing import Any

from deliralike.compat.heat.nn.data_parallel import DataParallel
from deliralike.compat.heat.nn.multi_gpu import DataParallelMultiGPU
from deliralike.compat.heat.torch_names import torch_name

__all__ = ["DataParallel", "DataParallelMultiGPU"]


def __getattr__(name: str) -> Any:
    """Return what PyTorch's module has, as in heat: ``ht.nn.Linear``."""
    return torch_name(__name__, "nn", name)
