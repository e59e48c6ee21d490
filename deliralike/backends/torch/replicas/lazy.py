"""Lazily shaped parameters of a network that is to be replicated: made once, on the root, before
any replica runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parameter import is_lazy

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_lazy(module: torch.nn.Module) -> bool:
    """Whether some parameter or buffer has no shape yet."""
    return any(
        is_lazy(t)
        for m in module.modules()
        for t in (*m._parameters.values(), *m._buffers.values())
        if t is not None
    )


def make_lazy(module: torch.nn.Module, run: Callable[[], Any]) -> None:
    """Let `run` give every such tensor its shape and start value.

    It runs in evaluation mode, without the user's hooks, and other buffers are put back: start
    values are drawn from the generator in the order in which one device draws them, and nothing
    else changes.
    """
    modules = list(module.modules())
    before = [
        (m, name, b, b.clone())
        for m in modules
        for name, b in m._buffers.items()
        if b is not None and not is_lazy(b)
    ]
    modes = [m.training for m in modules]
    module.eval()
    try:
        with _only_lazy_hooks(modules):
            run()
    finally:
        for m, training in zip(modules, modes, strict=True):
            m.training = training
        with torch.no_grad():
            for m, name, buffer, value in before:
                m._buffers[name] = buffer.copy_(value) if not torch.equal(buffer, value) else buffer


@contextmanager
def _only_lazy_hooks(modules: list[torch.nn.Module]) -> Iterator[None]:
    tables = [(vars(m), name, vars(m)[name]) for m in modules for name in _HOOKS]
    try:
        for m in modules:
            own = getattr(m, "_initialize_hook", None)
            for name in _HOOKS:
                table = vars(m)[name]
                vars(m)[name] = type(table)(
                    (key, hook) for key, hook in table.items() if own and key == own.id
                )
        yield
    finally:
        for attributes, name, table in tables:
            attributes[name] = table
