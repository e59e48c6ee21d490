"""A training step on PyTorch."""

from collections.abc import Callable
from typing import Any

import torch


def torch_step(
    network: torch.nn.Module, optimizer: Any, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], float]:
    """What clears, computes, goes backward and updates; it gives the loss as a number."""

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
