"""Normalisation, written on the primitives.

The variance is the biased one, computed in two passes; every epsilon is explicit.
"""

import math
from collections.abc import Callable, Sequence

from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.primitives import Array
from deliralike.nn.reductions import Reductions
from deliralike.nn.start import Shape

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}


class Norms(Reductions):
    """Normalizations, the linear map and embeddings."""

    def linear(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """``x @ weight.T + bias`` over the last axis; nothing is flattened.

        Shapes:
            ``(..., in)`` with ``(out, in)`` gives ``(..., out)``.
        """
        y = self.matmul(x, self.permute(weight, (1, 0)))
        if bias is not None:
            y = y + bias
        return y

    def embedding(self, index: Array, weight: Array) -> Array:
        """Return rows of a table.

        Shapes:
            ``index.shape`` with ``(rows, width)`` gives ``(*index.shape, width)``.

        Raises:
            IndexRangeError: An index is negative or not below the number of rows.
        """
        checks.whole_numbers(index, "embedding: index")
        self.checked(index, checks.InRange(weight.shape[0], "embedding: index"))
        return self.select(weight, index, 0)

    def batch_norm(
        self,
        x: Array,
        mean: Array,
        var: Array,
        weight: Array | None = None,
        bias: Array | None = None,
        eps: float = 1e-5,
    ) -> Array:
        """Normalise each channel (axis 1) by a given mean and variance, then scale and shift.

        Shapes:
            ``(batch, channels, ...)``; the four others are ``(channels,)``.
        """
        scale = 1.0 / self.sqrt(var + eps)
        if weight is not None:
            scale = scale * weight
        y = (x - self._per_channel(mean, x)) * self._per_channel(scale, x)
        if bias is not None:
            y = y + self._per_channel(bias, x)
        return y

    @in_float32
    def batch_norm_train(
        self,
        x: Array,
        weight: Array | None = None,
        bias: Array | None = None,
        eps: float = 1e-5,
    ) -> tuple[Array, Array, Array]:
        """Normalise each channel by the batch's own mean and biased variance.

        Returns:
            The output, the mean and the biased variance, the latter two ``(channels,)``.
        """
        dims = _all_but_channels(x)
        mean = self.mean(x, dims)
        var = self.var(x, dims, correction=0)
        return self.batch_norm(x, mean, var, weight, bias, eps), mean, var

    def batch_statistics(
        self, x: Array, count: int, total: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """Return the mean and biased variance of each channel over the shares of one batch.

        The variance is the mean of the centred squares, never the mean of squares minus the square
        of the mean.

        Args:
            x: The share of this replica.
            count: The number of values for each channel in the whole batch.
            total: A function that sums an array over all replicas.
        """
        dims = _all_but_channels(x)
        mean = total(self.sum(x, dims)) * (1.0 / count)
        centred = x - self._per_channel(mean, x)
        squares = total(self.sum(centred * centred, dims))
        return mean, squares * (1.0 / count)

    @in_float32
    def group_norm(
        self,
        x: Array,
        num_groups: int,
        weight: Array | None = None,
        bias: Array | None = None,
        eps: float = 1e-5,
    ) -> Array:
        """Normalise groups of channels of each sample; one group for each channel is instance norm.

        Shapes:
            ``(batch, channels, ...)``; weight and bias ``(channels,)``.
        """
        checks.divides(x.shape[1], num_groups, "group_norm: channels", "num_groups")
        centred = x - self._mean_of_groups(x, num_groups)
        var = self._mean_of_groups(centred * centred, num_groups)
        y = centred / self.sqrt(var + eps)
        if weight is not None:
            y = y * self._per_channel(weight, x)
        if bias is not None:
            y = y + self._per_channel(bias, x)
        return y

    def instance_norm(
        self,
        x: Array,
        running_mean: Array | None = None,
        running_var: Array | None = None,
        weight: Array | None = None,
        bias: Array | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Array:
        """Normalise each channel of each sample, or by running statistics.

        A function changes no argument: running statistics are moved by the layer `InstanceNorm2d`.

        Args:
            x: ``(batch, channels, ...)``.
            running_mean, running_var: ``(channels,)``; used if `use_input_stats` is False.
            weight, bias: ``(channels,)``.
            use_input_stats: Whether the statistics are those of the input.
            momentum: Has no effect here.
            eps: Added to the variance.
        """
        if use_input_stats:
            return self.group_norm(x, x.shape[1], weight, bias, eps)
        return self.batch_norm(x, running_mean, running_var, weight, bias, eps)

    @in_float32
    def layer_norm(
        self,
        x: Array,
        normalized_shape: Sequence[int],
        weight: Array | None = None,
        bias: Array | None = None,
        eps: float = 1e-5,
    ) -> Array:
        """Normalise over the last axes, as many as `normalized_shape` has.

        Shapes:
            ``(..., *normalized_shape)``; weight and bias have `normalized_shape`.
        """
        y = self._standardise(x, _last_axes(x, normalized_shape), eps)
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y

    @in_float32
    def rms_norm(
        self,
        x: Array,
        normalized_shape: Sequence[int],
        weight: Array | None = None,
        eps: float | None = None,
    ) -> Array:
        """Divide by the root of the mean square over the last axes.

        Source: Zhang and Sennrich 2019, arXiv 1910.07467.

        Args:
            x: Any array.
            normalized_shape: The sizes of the last axes.
            weight: Factors of that shape.
            eps: Added to the mean square; the machine epsilon of the type, or of float32 where that
                is smaller, when not given.
        """
        if eps is None:
            eps = _EPSILON[checks.type_name(x)]
        dims = _last_axes(x, normalized_shape)
        y = x / self.sqrt(self.mean(x * x, dims, keepdim=True) + eps)
        return y if weight is None else y * weight

    @in_float32
    def local_response_norm(
        self,
        x: Array,
        size: int,
        alpha: float = 1e-4,
        beta: float = 0.75,
        k: float = 1.0,
    ) -> Array:
        """Divide by a power of the mean square of the neighbouring channels.

        Source: Krizhevsky et al. 2012. The sum over ``size`` channels is divided by `size`.

        Shapes:
            ``(batch, channels, ...)``
        """
        checks.positive(size, "size", "local_response_norm")
        rest = math.prod(x.shape[2:])
        squares = self.reshape(x * x, (x.shape[0], 1, x.shape[1], rest))
        pads = ((size // 2, (size - 1) // 2), (0, 0))
        totals = self.sum_windows(squares, (size, 1), (1, 1), pads)
        means = self.reshape(totals, tuple(x.shape)) * (1.0 / size)
        return x / (k + alpha * means) ** beta

    @in_float32
    def normalize(
        self, x: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12
    ) -> Array:
        """``x / max(norm, eps)`` with the p-norm over an axis.

        The gradient at zero is finite.
        """
        if p != 2:
            return x / self.clamp(self.norm(x, p, dim, keepdim=True), eps)
        squares = self.sum(x * x, dim, keepdim=True)
        is_small = squares <= eps * eps  # NaN is not
        norm = self.sqrt(self.where(is_small, 1.0, squares))
        return x / self.where(is_small, eps, norm)

    def _mean_of_groups(self, x: Array, num_groups: int) -> Array:
        """Return the mean of each channel's group, ``(batch, channels, 1, ...)``.

        It is the mean of the channels' means, so that `x` keeps its axes: an array whose axes are
        joined has to be in their order first.
        """
        batch, channels, *size = x.shape
        dims = tuple(range(2, x.ndim))
        of_channels = self.mean(x, dims) if dims else x
        grouped = self.reshape(of_channels, (batch, num_groups, channels // num_groups))
        of_groups = self.broadcast_to(
            self.mean(grouped, 2, keepdim=True), tuple(grouped.shape)
        )
        return self.reshape(of_groups, (batch, channels, *(1 for _ in size)))

    def _standardise(self, x: Array, dims: Shape, eps: float) -> Array:
        centred = x - self.mean(x, dims, keepdim=True)
        var = self.mean(centred * centred, dims, keepdim=True)
        return centred / self.sqrt(var + eps)


def _last_axes(x: Array, shape: Sequence[int]) -> Shape:
    """Return the last axes of an array, as many as a shape has."""
    return tuple(range(x.ndim - len(shape), x.ndim))


def _all_but_channels(x: Array) -> Shape:
    return (0, *range(2, x.ndim))
