"""Activation checkpointing on PyTorch, by its own `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from deliralike import random


@torch.compiler.disable  # the contexts around the second pass; the block is computed eagerly
def recomputed(
    block: torch.nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """See `Backend.recomputed`."""
    if not (block.training and torch.is_grad_enabled()):
        return call(block, *args, **kwargs)
    stream = random.current()

    def contexts() -> tuple[Any, Any]:
        return nullcontext(), _again(block, stream)

    def run(*arguments: Any, **named: Any) -> Any:
        return call(block, *arguments, **named)

    return checkpoint(run, *args, use_reentrant=False, context_fn=contexts, **kwargs)


@contextmanager
def _again(block: torch.nn.Module, stream: random.Stream | None) -> Iterator[None]:
    """Draw the same masks, and leave buffers as they are."""
    before = []
    for module in block.modules():
        for name, buffer in module._buffers.items():
            before.append((module, name, buffer, None if buffer is None else buffer.clone()))
    try:
        with random.following(stream):
            yield
    finally:
        with torch.no_grad():
            for module, name, buffer, value in before:
                if buffer is not None and value is not None:
                    buffer.copy_(value)
                module._buffers[name] = buffer
