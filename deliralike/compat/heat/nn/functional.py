"""PyTorch's functions under heat's name: ``ht.nn.functional.relu``."""

from typing import Any

from deliralike.compat.heat.torch_names import torch_name


def __getattr__(name: str) -> Any:
    """Return what PyTorch's module has, as in heat."""
    return torch_name(__name__, "functional", name)
