"""PyTorch's names in heat's modules; the first access imports PyTorch."""

from __future__ import annotations

from typing import Any

from deliralike import backends


def torch_name(module: str, part: str, name: str) -> Any:
    """Return what one of PyTorch's modules has under a name.

    Args:
        module: The name of heat's module, for the error.
        part: A key of ``Backend.modules``: ``"nn"``, ``"functional"``, ``"optim"``,
            ``"lr_scheduler"``.

    Raises:
        AttributeError: Neither heat's module nor PyTorch's has it.

    Example:
        >>> torch_name("deliralike.compat.heat.nn", "nn", "Linear").__module__
        'torch.nn.modules.linear'
    """
    missing = AttributeError(
        f"module {module!r} has no attribute {name!r}, and neither has PyTorch's"
    )
    if name.startswith(
        "__"
    ):  # the import system asks for such names: it must not load PyTorch
        raise missing
    torch_module = backends.get("torch").modules[part]
    if not hasattr(torch_module, name):
        raise missing
    return getattr(torch_module, name)
