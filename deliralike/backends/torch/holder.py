"""A module that holds another one and has its names: nothing in a state begins with ``module.``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

HELD = "module"


class TorchHolder(torch.nn.Module):
    """Holds a module as its part ``module``; that module's parameters, buffers and state keep their
    own names.

    It may have further parts, stand in other modules, and be moved and copied as any module. States
    whose names begin with ``module.`` are loaded too.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        torch.nn.Module.__init__(self)
        self._modules[HELD] = module
        self.register_state_dict_post_hook(_shorten)
        self.register_load_state_dict_pre_hook(_lengthen)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """The module's outputs."""
        return self.module(*inputs, **keywords)

    def named_parameters(
        self, prefix: str = "", *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Parameters, those of the module under its own names."""
        return _shortened(super().named_parameters(prefix, *args, **kwargs), prefix)

    def named_buffers(
        self, prefix: str = "", *args: Any, **kwargs: Any
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Buffers, those of the module under its own names."""
        return _shortened(super().named_buffers(prefix, *args, **kwargs), prefix)

    def __getattr__(self, name: str) -> Any:
        """A part, parameter or buffer, else what the module has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or HELD not in self.__dict__.get("_modules", {}):
                raise
        return getattr(self._modules[HELD], name)


def _shortened(named: Iterator[tuple[str, Any]], prefix: str) -> Iterator[tuple[str, Any]]:
    start = f"{prefix}." if prefix else ""
    for name, value in named:
        yield _short(name, start), value


def _short(name: str, start: str) -> str:
    """A name without the part ``module`` after its start."""
    held = f"{start}{HELD}."
    return f"{start}{name.removeprefix(held)}" if name.startswith(held) else name


def _shorten(holder: TorchHolder, state: dict, start: str, metadata: Any) -> None:
    """Rename the entries of a state that a holder has just written."""
    for name in [name for name in state if name.startswith(start)]:
        state[_short(name, start)] = state.pop(name)  # also where the name stays, for the order


def _lengthen(holder: TorchHolder, state: dict, start: str, *args: Any) -> None:
    """Rename the entries of a state that are to be loaded: those that the held module knows by this
    name.
    """
    own = holder._modules[HELD].state_dict()  # type: ignore[union-attr]
    for name in [
        name for name in state if name.removeprefix(start) in own and name.startswith(start)
    ]:
        state[f"{start}{HELD}.{name.removeprefix(start)}"] = state.pop(name)
