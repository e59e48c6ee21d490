"""Batch normalisation over all replicas, for the layers of PyTorch's own as well."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.errors import ShapeError
from deliralike.parallel.replica import Replica


class synchronising(TorchFunctionMode):  # noqa: N801 - used as a context
    """In this context ``torch.nn.functional.batch_norm`` in training mode sees the shares of all replicas as one batch.

    So PyTorch's own layers, and what derives from them, are synchronised without a change of their classes.
    """

    def __init__(self, replica: Replica) -> None:
        """For one replica's thread."""
        super().__init__()
        self.replica = replica

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Another batch norm; every other function as it is."""
        if function is F.batch_norm:
            return _batch_norm(self.replica, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def has_native_norm(module: torch.nn.Module) -> bool:
    """Whether a batch norm of PyTorch's own is among the blocks."""
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and not hasattr(m, "written_once")
               for m in module.modules())  # fmt: skip


def batch_norm(replica: Replica, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float,
               where: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:  # fmt: skip
    """The output, and mean, biased variance and count of values of the whole batch.

    Raises:
        ShapeError: There is one value for each channel in the whole batch.
    """
    count = sum(replica.exchange(f"{where}: the number of values", x.numel() // x.shape[1]))
    if count < 2:
        raise ShapeError(
            f"{where}: expected more than 1 value for each channel in training, the whole batch has {count}"
        )
    total = partial(_total, replica, f"{where}: a sum")
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean = total(x.sum(dims)) / count
    centred = x - mean.view(shape)
    var = total((centred * centred).sum(dims)) / count
    scale = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    y = centred * scale.view(shape)
    return (y if bias is None else y + bias.view(shape)), mean.detach(), var.detach(), count


def move_running(running: torch.Tensor | None, value: torch.Tensor, share: float) -> None:
    """Move running statistics in place towards a new value, outside of the graph, as PyTorch's own kernel does."""
    if running is not None:
        running.data.lerp_(value.to(running.dtype), share)


def _total(replica: Replica, topic: str, x: torch.Tensor) -> torch.Tensor:
    return replica.all_sum(x, topic)


def _batch_norm(replica: Replica, input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None,
                bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    y, mean, var, count = batch_norm(replica, input, weight, bias, eps, "batch_norm")
    move_running(running_mean, mean, momentum)
    move_running(running_var, var * (count / (count - 1)), momentum)
    return y
