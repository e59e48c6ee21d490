"""Lazily shaped parameters of a network: initialized once, on the root, before any replica runs.

Only this backend has this file: Chainer's and JAX's replicas get shapes on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from deliralike.backends.torch.network import unchanged_buffers

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def initialize_lazy(module: torch.nn.Module, run: Callable[[], Any]) -> None:
    """Let `run` give every lazy parameter and buffer its shape and start value.

    It runs in evaluation mode and without the user's hooks, and other buffers get their values
    back: start values are drawn from the generator in the order in which one device draws them, and
    nothing else changes.
    """
    modules = list(module.modules())
    modes = [part.training for part in modules]
    module.eval()
    try:
        with unchanged_buffers(module), _only_lazy_hooks(modules):
            run()
    finally:
        for part, mode in zip(modules, modes, strict=True):
            part.training = mode


@contextmanager
def _only_lazy_hooks(modules: list[torch.nn.Module]) -> Iterator[None]:
    """Take away all hooks of modules but those by which PyTorch initializes lazy parameters."""
    former_tables = []
    try:
        for part in modules:
            handle = getattr(part, "_initialize_hook", None)
            attributes = vars(part)
            for name in _HOOKS:
                table = attributes[name]
                former_tables.append((attributes, name, table))
                attributes[name] = type(table)()
                if handle is not None and handle.id in table:
                    attributes[name][handle.id] = table[handle.id]
        yield
    finally:
        for attributes, name, table in former_tables:
            attributes[name] = table
