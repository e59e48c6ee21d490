"""Batch normalisation over all replicas, for the layers of PyTorch's own as well."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.errors import SettingError, ShapeError, suggestion
from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.context import current as current_replica

_EPS_MODES = ("plus", "clamp")
_eps_mode = "plus"


class synchronising(TorchFunctionMode):  # noqa: N801
    """In this context ``torch.nn.functional.batch_norm`` in training mode sees the shares of all
    replicas as one batch.

    So PyTorch's own layers, and what derives from them, are synchronised without a change of their
    classes.
    """

    def __init__(self, replica: Replica) -> None:
        """For one replica's thread."""
        super().__init__()
        self.replica = replica

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Another batch norm; every other function as it is."""
        if function is F.batch_norm:
            return _batch_norm(self.replica, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


class _Synchronized(torch.nn.modules.batchnorm._BatchNorm):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        here = current_replica()
        if here is None or here.count == 1 or not (self.training or not self.track_running_stats):
            return super().forward(input)
        self._check_input_dim(input)
        where, clamps = type(self).__name__, _eps_mode == "clamp"
        y, mean, var, count = batch_norm(
            here, input, self.weight, self.bias, self.eps, where, clamps
        )
        if self.training and self.track_running_stats:
            move_statistics(self, mean, var, count)
        return y


class SynchronizedBatchNorm1d(_Synchronized, torch.nn.BatchNorm1d):
    """Batch normalisation of ``(batch, num_features[, length])`` over the shares of all replicas.

    Usable in networks of PyTorch's own, under `deliralike.DataParallel` and under ``DataParallel``
    of this backend, whatever they do about other layers. Outside of replicas it is plain batch
    normalisation; names and state are those of PyTorch's layer.

    Better than the original: shares of different sizes and of one sample work; the variance is a
    sum of centred squares; ``momentum=None`` is a plain average; CPU devices work; a replica that
    fails ends the others at once, where the original waits for ever.

    Source: Ioffe and Szegedy 2015, arXiv 1502.03167; Peng et al. 2017, arXiv 1711.07240.

    Example:
        >>> SynchronizedBatchNorm1d(3)(torch.ones(4, 3)).shape
        torch.Size([4, 3])
    """


class SynchronizedBatchNorm2d(_Synchronized, torch.nn.BatchNorm2d):
    """Batch normalisation of ``(batch, num_features, height, width)``; see
    `SynchronizedBatchNorm1d`.
    """


class SynchronizedBatchNorm3d(_Synchronized, torch.nn.BatchNorm3d):
    """Batch normalisation of ``(batch, num_features, depth, height, width)``; see
    `SynchronizedBatchNorm1d`.
    """


def set_sbn_eps_mode(mode: str) -> None:
    """How the synchronised layers, over replicas, use `eps`: ``"plus"`` as PyTorch does, or
    ``"clamp"``.

    With ``"clamp"`` the larger of variance and `eps` divides, in place of their sum. It holds for
    all layers of the process, from the next call on.

    Better than the original: ``"plus"`` is the default, so replicas give what one device does.

    Raises:
        SettingError: There is no such mode.

    Example:
        >>> set_sbn_eps_mode("plus")
    """
    global _eps_mode
    if mode not in _EPS_MODES:
        raise SettingError(
            f"set_sbn_eps_mode: mode={mode!r} is unknown. {suggestion(mode, _EPS_MODES)}"
        )
    _eps_mode = mode


def move_statistics(layer: Any, mean: torch.Tensor, var: torch.Tensor, count: int) -> None:
    """Move a layer's running statistics towards those of a batch, in place and outside of the
    graph.

    Args:
        var: Biased.
        count: The values for each channel in the batch.
    """
    layer.num_batches_tracked.add_(1)
    share = 1.0 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    _move(layer.running_mean, mean, share)
    _move(layer.running_var, var * (count / (count - 1)), share)


def batch_norm(
    replica: Replica,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    where: str,
    clamps: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The output, and mean, biased variance and count of values of the whole batch.

    Args:
        clamps: Whether `eps` is the least variance that divides; else it is added to the variance.

    Raises:
        ShapeError: There is one value for each channel in the whole batch.
    """
    count = sum(replica.exchange(f"{where}: the number of values", x.numel() // x.shape[1]))
    if count < 2:
        raise ShapeError(
            f"{where}: batch statistics need more than one value per channel, the batch over all "
            f"replicas has {count}: use a larger batch, or evaluation mode"
        )
    total, kept = partial(_total, replica, f"{where}: a sum"), x.dtype
    x = (
        x if kept in (torch.float32, torch.float64) else x.float()
    )  # sums need more digits than half precision has
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean = total(x.sum(dims)) / count
    centred = x - mean.view(shape)
    var = total((centred * centred).sum(dims)) / count
    scale = (var.clamp(min=eps) if clamps else var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    y = centred * scale.view(shape)
    y = y if bias is None else y + bias.view(shape)
    return y.to(kept), mean.detach(), var.detach(), count


def _move(running: torch.Tensor | None, value: torch.Tensor, share: float) -> None:
    if running is not None:
        running.data.lerp_(value.detach().to(running.dtype), share)


def _total(replica: Replica, topic: str, x: torch.Tensor) -> torch.Tensor:
    return replica.all_sum(x, topic)


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
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    y, mean, var, count = batch_norm(replica, input, weight, bias, eps, "batch_norm")
    _move(running_mean, mean, momentum)
    _move(running_var, var * (count / (count - 1)), momentum)
    return y
