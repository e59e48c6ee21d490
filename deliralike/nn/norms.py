"""Normalisation, written on the primitives.

The variance is the biased one, computed in two passes; every epsilon is explicit.
"""

import math
from collections.abc import Callable, Sequence

from deliralike.nn import checks
from deliralike.nn.primitives import Array, Primitives


class Norms(Primitives):
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

    def var(
        self, x: Array, dim: int | Sequence[int], keepdim: bool = False, correction: int = 0
    ) -> Array:
        """Return the variance over some axes, computed in two passes.

        ``correction=1`` makes it unbiased.
        """
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        centred = x - self.mean(x, dims, keepdim=True)
        count = math.prod([x.shape[d] for d in dims])
        squares = self.sum(centred * centred, dims, keepdim)
        return squares * (1.0 / (count - correction))

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

    def batch_norm_train(
        self, x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
    ) -> tuple[Array, Array, Array]:
        """Normalise each channel by the batch's own mean and biased variance.

        Returns:
            The output, the mean and the biased variance, the latter two ``(channels,)``.
        """
        dims = _all_but_channels(x)
        mean = self.mean(x, dims)
        var = self.var(x, dims)
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
        grouped = self.reshape(x, (x.shape[0], num_groups, -1))
        y = self.reshape(self._standardise(grouped, (2,), eps), tuple(x.shape))
        if weight is not None:
            y = y * self._per_channel(weight, x)
        if bias is not None:
            y = y + self._per_channel(bias, x)
        return y

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
        axes = len(x.shape)
        dims = range(axes - len(normalized_shape), axes)
        y = self._standardise(x, tuple(dims), eps)
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return y

    def normalize(self, x: Array, dim: int = 1, eps: float = 1e-12) -> Array:
        """``x / max(norm, eps)`` with the Euclidean norm over an axis.

        The gradient at zero is finite.
        """
        squares = self.sum(x * x, dim, keepdim=True)
        safe = squares > eps * eps
        norm = self.sqrt(self.where(safe, squares, squares * 0.0 + 1.0))
        return x / self.where(safe, norm, eps)

    def _standardise(self, x: Array, dims: tuple[int, ...], eps: float) -> Array:
        centred = x - self.mean(x, dims, keepdim=True)
        var = self.mean(centred * centred, dims, keepdim=True)
        return centred / self.sqrt(var + eps)


def _all_but_channels(x: Array) -> tuple[int, ...]:
    return (0, *range(2, len(x.shape)))
