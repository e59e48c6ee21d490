"""Batch normalisation over all replicas, also for PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.backends.torch.network import AbstractTorchNetwork
from deliralike.nn.layers.normalization import batch_norm_over_replicas
from deliralike.parallel.replicas.context import Replica


class synchronising(TorchFunctionMode):  # noqa: N801
    """A context in which batch norms in training mode see all replicas' shares as one batch.

    It replaces ``torch.nn.functional.batch_norm``: so PyTorch's own layers, and subclasses of
    these, are synchronised without a change of their classes.
    """

    def __init__(self, replica: Replica) -> None:
        """Make the context for the thread of a replica."""
        super().__init__()
        self.replica = replica

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Replace batch norm, and call every other function as it is."""
        kwargs = kwargs or {}
        if function is F.batch_norm:
            return _batch_norm(self.replica, *args, **kwargs)
        return function(*args, **kwargs)


def move_statistics(
    layer: Any, mean: torch.Tensor, var: torch.Tensor, count: int
) -> None:
    """Move a layer's running statistics towards a batch's, in place and outside of the graph.

    Args:
        var: The biased variance.
        count: The number of values for each channel in the batch.
    """
    layer.num_batches_tracked.add_(1)
    momentum = layer.momentum
    if momentum is None:
        momentum = 1.0 / float(layer.num_batches_tracked)
    _move(layer.running_mean, mean, momentum)
    _move(layer.running_var, var * (count / (count - 1)), momentum)


def _move(running: torch.Tensor | None, value: torch.Tensor, momentum: float) -> None:
    if running is not None:
        running.data.lerp_(value.detach().to(running.dtype), momentum)


def _batch_norm(
    replica: Replica,
    input: torch.Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Compute as ``torch.nn.functional.batch_norm`` does, in training on the whole batch."""
    if not training:
        return F.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    nn = AbstractTorchNetwork.nn
    y, mean, var, count = batch_norm_over_replicas(
        nn, input, weight, bias, eps, replica, "batch_norm"
    )
    _move(running_mean, mean, momentum)
    _move(running_var, var * (count / (count - 1)), momentum)
    return y
