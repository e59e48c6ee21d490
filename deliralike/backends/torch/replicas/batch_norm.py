"""Batch normalisation over all replicas, also for PyTorch's own layers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.backends.torch import unstable
from deliralike.errors import SettingError, ShapeError, suggestion
from deliralike.parallel.replicas.context import Replica
from deliralike.parallel.replicas.context import current as current_replica

_EPS_MODES = ("plus", "clamp")
_eps_mode = "plus"


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


class _Synchronized(unstable.BatchNorm):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        replica = current_replica()
        uses_running_stats = self.track_running_stats and not self.training
        if replica is None or replica.count == 1 or uses_running_stats:
            return super().forward(input)
        self._check_input_dim(input)
        y, mean, var, count = batch_norm(
            replica,
            input,
            self.weight,
            self.bias,
            self.eps,
            where=type(self).__name__,
            clamps=_eps_mode == "clamp",
        )
        if self.training and self.track_running_stats:
            move_statistics(self, mean, var, count)
        return y


class SynchronizedBatchNorm1d(_Synchronized, torch.nn.BatchNorm1d):
    """Batch normalisation of ``(batch, num_features[, length])`` over the shares of all replicas.

    It works in plain PyTorch networks, under `deliralike.DataParallel` and under ``DataParallel``
    of this backend, whether or not these synchronise other layers. Outside of replicas it is plain
    batch normalisation; names and state are those of PyTorch's layer.

    Better than the original: shares of different sizes and of one sample work; the variance is a
    sum of centred squares; ``momentum=None`` is a plain average; CPU devices work; a replica that
    fails ends the others at once, where the original waits for ever.

    Source: Ioffe and Szegedy 2015, arXiv 1502.03167; Peng et al. 2017, arXiv 1711.07240.

    Example:
        >>> SynchronizedBatchNorm1d(3)(torch.ones(4, 3)).shape
        torch.Size([4, 3])
    """


class SynchronizedBatchNorm2d(_Synchronized, torch.nn.BatchNorm2d):
    """Batch normalisation of ``(batch, num_features, height, width)``.

    See `SynchronizedBatchNorm1d`.
    """


class SynchronizedBatchNorm3d(_Synchronized, torch.nn.BatchNorm3d):
    """Batch normalisation of ``(batch, num_features, depth, height, width)``.

    See `SynchronizedBatchNorm1d`.
    """


def set_sbn_eps_mode(mode: str) -> None:
    """Choose how the synchronised layers use `eps`: ``"plus"`` as PyTorch does, or ``"clamp"``.

    With ``"clamp"`` the variance is replaced by the larger of variance and `eps`; with ``"plus"``
    by their sum. The mode holds for all layers of the process in replicas, from the next call on.

    Better than the original: ``"plus"`` is the default, so replicas compute what one device does.

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


def batch_norm(
    replica: Replica,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    where: str,
    clamps: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Return the output, and mean, biased variance and count of values of the whole batch.

    Args:
        where: The name of the layer, for errors.
        clamps: Whether `eps` is a lower bound of the variance; else it is added to the variance.

    Raises:
        ShapeError: There is one value for each channel in the whole batch.
    """
    count = sum(
        replica.exchange(f"{where}: the number of values", x.numel() // x.shape[1])
    )
    if count < 2:
        raise ShapeError(
            f"{where}: batch statistics need more than one value per channel, the batch over all "
            f"replicas has {count}: use a larger batch, or evaluation mode"
        )
    dtype = x.dtype
    if dtype not in (torch.float32, torch.float64):
        x = x.float()  # sums need more digits than half precision has
    topic = f"{where}: a sum"
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean = replica.all_sum(x.sum(dims), topic) / count
    centred = x - mean.view(shape)
    var = replica.all_sum((centred * centred).sum(dims), topic) / count
    divisor = var.clamp(min=eps) if clamps else var + eps
    scale = divisor.rsqrt()
    if weight is not None:
        scale = scale * weight
    y = centred * scale.view(shape)
    if bias is not None:
        y = y + bias.view(shape)
    return y.to(dtype), mean.detach(), var.detach(), count


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
    if not training:
        return F.batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    y, mean, var, count = batch_norm(replica, input, weight, bias, eps, "batch_norm")
    _move(running_mean, mean, momentum)
    _move(running_var, var * (count / (count - 1)), momentum)
    return y
