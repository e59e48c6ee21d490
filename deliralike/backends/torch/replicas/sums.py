"""The sum of a tensor over replicas in threads, differentiable any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.parallel.replicas.context import Rendezvous


def sum_of_graphs(
    rendezvous: Rendezvous, index: int, x: torch.Tensor, topic: str
) -> torch.Tensor:
    """Return the sum as an ordinary operation: one graph over all replicas, for one backward."""
    return _total(rendezvous.exchange(index, topic, x), x.device)


def sum_in_threads(
    rendezvous: Rendezvous, index: int, x: torch.Tensor, topic: str
) -> torch.Tensor:
    """Return the sum for replicas that run backward each in its own thread.

    There the gradients are summed in the same way.
    """
    return _SumInThreads.apply(x, rendezvous, index, topic)


class _SumInThreads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, rendezvous: Rendezvous, index: int, topic: str
    ) -> torch.Tensor:
        ctx.arguments = rendezvous, index, f"the gradient of {topic}"
        return _total(rendezvous.exchange(index, topic, x.detach()), x.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        rendezvous, index, topic = ctx.arguments
        return _SumInThreads.apply(gradient, rendezvous, index, topic), None, None, None


def _total(values: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    if len(values) == 1:
        return arrays.to_device(values[0], device).clone()
    total = arrays.to_device(values[0], device)
    for value in values[1:]:
        total = total + arrays.to_device(value, device)
    return total
