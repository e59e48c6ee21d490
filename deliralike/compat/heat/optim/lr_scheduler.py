"""PyTorch's learning rate schedulers under heat's name: ``ht.optim.lr_scheduler.StepLR``."""

from typing import Any

from deliralike.compat.heat.torch_names import torch_name


def __getattr__(name: str) -> Any:
    """Return what PyTorch's module has, as in heat."""
    return torch_name(__name__, "lr_scheduler", name)
