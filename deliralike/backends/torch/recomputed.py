"""Activation checkpointing on PyTorch, by its own `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from deliralike import random
from deliralike.backends.torch import mixed_precision
from deliralike.backends.torch.network import unchanged_buffers
from deliralike.backends.torch.random import drawing_again, draws_masks
from deliralike.errors import CapabilityError
from deliralike.parallel.replicas.context import current


@torch.compiler.disable  # the contexts around the second pass; the block is computed eagerly
def recomputed(
    block: torch.nn.Module,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """See `Backend.recomputed`."""
    if not (block.training and torch.is_grad_enabled()):
        return call(block, *args, **kwargs)
    refuse_shared_draws(block)
    stream, draws = random.position(), drawing_again()
    guard = mixed_precision.guard_again()

    @contextmanager
    def again() -> Iterator[None]:
        """Draw the same masks in the same types, and leave buffers as they are."""
        with unchanged_buffers(block), draws, guard, random.following(stream):
            yield

    def contexts() -> tuple[Any, Any]:
        return nullcontext(), again()

    def run(*arguments: Any, **named: Any) -> Any:
        return call(block, *arguments, **named)

    return checkpoint(run, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def refuse_shared_draws(block: torch.nn.Module) -> None:
    """Refuse layers that draw from PyTorch's own generator in replicas of one process.

    Their threads share it, so that what one of them has drawn cannot be drawn again.
    """
    replica = current()
    if replica is None or replica.rendezvous.parties == 1:
        return
    for layer in block.modules():
        if (
            isinstance(layer, _DropoutNd)
            and layer.p
            and layer.training
            and not draws_masks(layer)
        ):
            raise CapabilityError(
                f"a checkpointed {type(block).__name__} has a {type(layer).__name__} of PyTorch's "
                "own, whose masks cannot be drawn once more in replicas: use that of net.nn, or "
                "leave the block as it is"
            )
