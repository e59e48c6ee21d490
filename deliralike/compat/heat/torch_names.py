"""PyTorch's names under heat's modules; PyTorch is imported when the first of them is asked for."""

from __future__ import annotations

from typing import Any

from deliralike import backends


def torch_name(module: str, part: str, name: str) -> Any:
    """What one of PyTorch's modules has under a name.

    Args:
        module: The module that was asked, for the error.
        part: A key of ``Backend.modules``: ``"nn"``, ``"functional"``, ``"optim"``,
            ``"lr_scheduler"``.

    Raises:
        AttributeError: Neither heat's module nor PyTorch's has it.

    Example:
        >>> torch_name("deliralike.compat.heat.nn", "nn", "Linear").__module__
        'torch.nn.modules.linear'
    """
    torch_module = None if name.startswith("__") else backends.get("torch").modules[part]
    if not hasattr(torch_module, name):
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}, and neither has PyTorch's"
        )
    return getattr(torch_module, name)
