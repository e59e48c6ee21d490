"""Batch normalisation over all replicas, also for PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.errors import ShapeError
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
    """Compute as ``torch.nn.functional.batch_norm`` does, in training on the whole batch.

    Raises:
        ShapeError: There is one value for each channel in the whole batch.
    """
    if not training:
        return F.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    count = _count_values(replica, input)
    x = input
    if x.dtype not in (torch.float32, torch.float64):
        x = x.float()  # sums need more digits than half precision has
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean = replica.all_sum(x.sum(dims), "batch_norm: a sum") / count
    centred = x - mean.view(shape)
    var = replica.all_sum((centred * centred).sum(dims), "batch_norm: a sum") / count
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    y = centred * scale.view(shape)
    if bias is not None:
        y = y + bias.view(shape)
    _move(running_mean, mean, momentum)
    _move(running_var, var * (count / (count - 1)), momentum)
    return y.to(input.dtype)


def _count_values(replica: Replica, x: torch.Tensor) -> int:
    """Return the number of values for each channel in the batch of all replicas."""
    own_count = x.numel() // x.shape[1]
    count = sum(replica.exchange("batch_norm: the number of values", own_count))
    if count < 2:
        raise ShapeError(
            "batch_norm: batch statistics need more than one value per channel, the batch over all "
            f"replicas has {count}: use a larger batch, or evaluation mode"
        )
    return count
