"""Batch, instance, group and layer normalisation."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.arguments import in_float32
from deliralike.nn.start import ONES, ZEROS, Shape
from deliralike.parallel.replicas.context import current as current_replica


class _Norm(Network):
    def _add_parameters(self, shape: Shape, has_scale: bool, has_shift: bool) -> None:
        self.weight = self.nn.Parameter(shape, ONES) if has_scale else None
        self.bias = self.nn.Parameter(shape, ZEROS) if has_shift else None


class _RunningNorm(_Norm):
    """Scale and shift for each channel, and running statistics with the unbiased variance."""

    n: int | None = None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.check_settings(num_features, eps)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._add_parameters((num_features,), affine, affine and bias)
        if track_running_stats:
            self.running_mean = self.nn.Buffer(np.zeros(num_features))
            self.running_var = self.nn.Buffer(np.ones(num_features))
            self.num_batches_tracked = self.nn.Buffer(np.zeros((), np.int64))

    @classmethod
    def check_settings(
        cls, num_features: int, eps: float = 1e-5, *args: Any, **kwargs: Any
    ) -> None:
        checks.positive(num_features, "num_features", cls.__name__)
        if not eps > 0:
            raise SettingError(f"{cls.__name__}: eps={eps!r}; wanted a number above 0")

    def _share(self, mean):
        """The weight of a batch's own statistics among the running ones."""
        raise NotImplementedError

    def _by_running_statistics(self, x):
        return self.nn.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
        )

    def _update(self, mean, var, count: int) -> None:
        """Move the running statistics towards a batch's mean and biased variance.

        `count` is the number of values behind them.
        """
        nn = self.nn
        mean = nn.cast(nn.stop_gradient(mean), self.running_mean)
        var = nn.stop_gradient(var) * (count / (count - 1))
        var = nn.cast(var, self.running_var)
        share = self._share(mean)
        self.running_mean = self.running_mean * (1.0 - share) + mean * share
        self.running_var = self.running_var * (1.0 - share) + var * share


class _BatchNorm(_RunningNorm):
    def _share(self, mean):
        self.num_batches_tracked = self.num_batches_tracked + 1
        if self.momentum is None:
            return 1.0 / self.nn.cast(self.num_batches_tracked, mean)
        return self.momentum

    def forward(self, x):
        checks.channels(self, x, self.num_features, self._rank(x))
        if self.track_running_stats and not self.training:
            return self._by_running_statistics(x)
        here = self.replica()
        if here is None:
            checks.several_values(self, x)
            y, mean, var = self.nn.batch_norm_train(x, self.weight, self.bias, self.eps)
            count = math.prod(x.shape) // x.shape[1]
        else:
            y, mean, var, count = self.over_replicas(x, here)
        if self.track_running_stats and self.training:
            self._update(mean, var, count)
        return y

    def replica(self):
        """The replica that runs this layer if it shares its statistics, else None."""
        here = current_replica()
        if here is None or here.count <= 1:
            return None
        return here if here.synchronised else None

    def over_replicas(self, x, here):
        settings = (self.weight, self.bias, self.eps, here, checks.where(self))
        return batch_norm_over_replicas(self.nn, x, *settings)

    def _rank(self, x) -> int | None:
        return self.n


@in_float32
def batch_norm_over_replicas(nn, x, weight, bias, eps, replica, what):
    """Normalise a replica's share by the statistics of all replicas' shares.

    Args:
        nn: The vocabulary of a backend.
        what: The name of the layer, for errors.

    Returns:
        The output, mean and biased variance of each channel, and the number of values behind them.
    """
    own_count = math.prod(x.shape) // x.shape[1]
    count = sum(replica.exchange(f"{what}: the number of values", own_count))
    checks.several_values(what, x, count)
    total = partial(replica.all_sum, topic=f"{what}: a sum")
    mean, var = nn.batch_statistics(x, count, total)
    return nn.batch_norm(x, mean, var, weight, bias, eps), mean, var, count


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of ``(batch, num_features)`` or ``(batch, num_features, length)``.

    Normalises with the biased variance; ``running_var`` is the unbiased one. `momentum` is the
    weight of the *new* value, and None means a plain average. Source: Ioffe and Szegedy 2015, arXiv
    1502.03167.
    """

    def _rank(self, x) -> int | None:
        return None if x.ndim == 2 else 1


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of ``(batch, num_features, height, width)``; see `BatchNorm1d`."""

    n = 2


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of ``(batch, num_features, depth, height, width)``; see `BatchNorm1d`."""

    n = 3


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias)

    def _share(self, mean):
        # as in PyTorch: batches are not counted here, so None has no plain average
        return self.momentum or 0.0

    def forward(self, x):
        nn = self.nn
        checks.channels(self, x, self.num_features, self.n)
        if self.track_running_stats and not self.training:
            return self._by_running_statistics(x)
        count = math.prod(x.shape[2:])
        checks.several_values(self, x, count)
        if self.track_running_stats:
            checks.several_values(self, x)
            dims = tuple(range(2, x.ndim))
            mean = nn.mean(nn.mean(x, dims), 0)
            var = nn.mean(nn.var(x, dims, correction=0), 0)
            self._update(mean, var, count)
        return nn.group_norm(x, self.num_features, self.weight, self.bias, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each sample and channel of ``(batch, num_features, length)``.

    Source: arXiv 1607.08022.
    """

    n = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each sample and channel of ``(batch, num_features, height, width)``."""

    n = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each sample and channel of ``(batch, features, depth, height, width)``."""

    n = 3


class GroupNorm(_Norm):
    """Normalisation of groups of channels of each sample ``(batch, num_channels, ...)``.

    Source: arXiv 1803.08494.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.check_settings(num_groups, num_channels)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_parameters((num_channels,), affine, affine and bias)

    @classmethod
    def check_settings(
        cls, num_groups: int, num_channels: int, *args: Any, **kwargs: Any
    ) -> None:
        checks.positive(num_groups, "num_groups", "GroupNorm")
        checks.positive(num_channels, "num_channels", "GroupNorm")
        checks.divides(
            num_channels, num_groups, "GroupNorm: num_channels", "num_groups"
        )

    def forward(self, x):
        checks.channels(self, x, self.num_channels)
        return self.nn.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class LayerNorm(_Norm):
    """Normalisation over the last axes ``(..., *normalized_shape)``. Source: arXiv 1607.06450."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_parameters(
            self.normalized_shape, elementwise_affine, elementwise_affine and bias
        )

    @classmethod
    def check_settings(
        cls, normalized_shape: int | Sequence[int], *args: Any, **kwargs: Any
    ) -> None:
        _sizes(normalized_shape)

    def forward(self, x):
        checks.last_axes(self, x, self.normalized_shape)
        return self.nn.layer_norm(
            x, self.normalized_shape, self.weight, self.bias, self.eps
        )


class RMSNorm(Network):
    """Division by the root mean square over the last axes. Source: arXiv 1910.07467.

    `eps` is the type's machine epsilon when not given.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = None
        if elementwise_affine:
            self.weight = self.nn.Parameter(self.normalized_shape, ONES)

    def forward(self, x):
        checks.last_axes(self, x, self.normalized_shape)
        return self.nn.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class LocalResponseNorm(Network):
    """Division by a power of the mean square of `size` neighbouring channels."""

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size = checks.positive(size, "size", "LocalResponseNorm")
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, x):
        return self.nn.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


def _sizes(normalized_shape: int | Sequence[int]) -> Shape:
    sizes: Any = normalized_shape
    if not isinstance(sizes, Iterable):
        sizes = (sizes,)
    return geometry.steps(sizes, len(sizes), "normalized_shape")
