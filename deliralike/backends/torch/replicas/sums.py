"""The sum of a tensor over replicas that run side by side, differentiable as often as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from deliralike.backends.torch import arrays
from deliralike.parallel.replicas.rendezvous import Rendezvous


def sum_of_graphs(rendezvous: Rendezvous, index: int, x: torch.Tensor, topic: str) -> torch.Tensor:
    """The sum as an ordinary operation: it joins the replicas' graphs, over which one backward runs
    later.
    """
    return _total(rendezvous.exchange(index, topic, x), x.device)


def sum_in_threads(rendezvous: Rendezvous, index: int, x: torch.Tensor, topic: str) -> torch.Tensor:
    """The sum where each replica runs backward in its own thread: there the gradients are summed in
    the same way.
    """
    return _SumInThreads.apply(x, rendezvous, index, topic)


class _SumInThreads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, rendezvous: Rendezvous, index: int, topic: str
    ) -> torch.Tensor:
        ctx.place = rendezvous, index, f"the gradient of {topic}"
        return _total(rendezvous.exchange(index, topic, x.detach()), x.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:  # type: ignore[override]
        rendezvous, index, topic = ctx.place
        return _SumInThreads.apply(gradient, rendezvous, index, topic), None, None, None


def _total(values: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    total = arrays.moved(values[0], device)
    for value in values[1:]:
        total = total + arrays.moved(value, device)
    return total if len(values) > 1 else total.clone()
