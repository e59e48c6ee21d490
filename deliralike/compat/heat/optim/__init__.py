"""Optimizers under heat's names; all other names are PyTorch's."""

from typing import Any

from deliralike.compat.heat.optim import lr_scheduler
from deliralike.compat.heat.optim.daso import DASO
from deliralike.compat.heat.optim.dp_optimizer import DataParallelOptimizer
from deliralike.compat.heat.torch_names import torch_name

__all__ = ["DASO", "DataParallelOptimizer", "lr_scheduler"]


def __getattr__(name: str) -> Any:
    """Return what PyTorch's module has, as in heat: ``ht.optim.SGD``."""
    return torch_name(__name__, "optim", name)
