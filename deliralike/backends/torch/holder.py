"""A module that holds another one under its own names: no name in a state begins with ``module.``.

Only this backend has this file: Chainer's and JAX's names do not depend on what holds a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

ENCLOSED = "module"


class TorchHolder(torch.nn.Module):
    """A module with a part ``module``, whose parameters, buffers and state keep their own names.

    The holder may have further parts, be a part of other modules, and be moved and copied as any
    module. States whose names begin with ``module.`` are loaded too.
    """

    enclosed = ENCLOSED

    def __init__(self, module: torch.nn.Module) -> None:
        torch.nn.Module.__init__(self)
        self._modules[ENCLOSED] = module
        self.register_state_dict_post_hook(_shorten)
        self.register_load_state_dict_pre_hook(_lengthen)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the module's outputs."""
        return self.module(*inputs, **keywords)

    def named_parameters(
        self, prefix: str = "", *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield parameters, those of the module under its own names."""
        return _without_prefix(
            super().named_parameters(prefix, *args, **kwargs), prefix
        )

    def named_buffers(
        self, prefix: str = "", *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield buffers, those of the module under its own names."""
        return _without_prefix(super().named_buffers(prefix, *args, **kwargs), prefix)

    def __getattr__(self, name: str) -> Any:
        """Return a part, parameter or buffer, else the attribute of the held module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or ENCLOSED not in self.__dict__.get(
                "_modules", {}
            ):
                raise
        return getattr(self._modules[ENCLOSED], name)


def _without_prefix(
    named: Iterator[tuple[str, Any]], prefix: str
) -> Iterator[tuple[str, Any]]:
    start = f"{prefix}." if prefix else ""
    for name, value in named:
        yield _neutral_name(name, start), value


def _neutral_name(name: str, start: str) -> str:
    """Return a name without the part ``module`` after its start."""
    prefix = f"{start}{ENCLOSED}."
    if not name.startswith(prefix):
        return name
    return start + name.removeprefix(prefix)


def _shorten(holder: TorchHolder, state: dict, start: str, metadata: Any) -> None:
    """Rename the entries of a state that a holder has just written."""
    for name in [name for name in state if name.startswith(start)]:
        # also where the name stays, for the order
        state[_neutral_name(name, start)] = state.pop(name)


def _lengthen(holder: TorchHolder, state: dict, start: str, *args: Any) -> None:
    """Rename the entries of a state to be loaded that the held module knows by their names."""
    module: Any = holder._modules[ENCLOSED]
    names = module.state_dict()
    for name in list(state):
        own_name = name.removeprefix(start)
        if name.startswith(start) and own_name in names:
            state[f"{start}{ENCLOSED}.{own_name}"] = state.pop(name)
