"""Convolution, pooling and resizing in 1 to 3 dimensions, by PyTorch's rules."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import geometry
from deliralike.nn.geometry import at_least, per_axis
from deliralike.nn.primitives import Array, Primitives

Sizes = int | Sequence[int]


def _for_rank(name: str, n: int) -> Any:
    """Make the method `name` for inputs with exactly `n` spatial axes."""

    def function(self: Any, x: Array, *args: Any, **kwargs: Any) -> Array:
        if len(x.shape) != n + 2:
            raise ShapeError(
                f"{name}{n}d: got an input of shape {tuple(x.shape)}, wanted {n + 2} axes"
            )
        return getattr(self, name)(x, *args, **kwargs)

    axes = "axis" if n == 1 else "axes"
    function.__name__ = f"{name}{n}d"
    function.__qualname__ = function.__name__
    function.__doc__ = f"`{name}` for an input with {n} spatial {axes}."
    return function


class Windows(Primitives):
    """Functions over the axes after the second; their number is read from the input."""

    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Array:
        """Convolution (cross-correlation) in n dimensions.

        Args:
            x: The input.
            weight: The kernels.
            bias: One value for each output channel.
            stride: One number, or one for each axis.
            padding: Zeros on both sides, or ``"same"`` (stride 1) or ``"valid"``; use `pad` for
                other paddings.
            dilation: The distance between the elements of a kernel.
            groups: The number of groups of channels that are convolved separately.

        Shapes:
            ``(batch, in, *size)`` with ``(out, in/groups, *kernel)`` gives
            ``(batch, out, *new_size)``.
        """
        n = len(x.shape) - 2
        stride = at_least(per_axis(stride, n, "stride"), 1, "stride")
        dilation = at_least(per_axis(dilation, n, "dilation"), 1, "dilation")
        pads = geometry.conv_padding(padding, weight.shape[2:], stride, dilation)
        y = self.convolve(x, weight, stride, pads, dilation, groups)
        return self._add_bias(y, bias)

    def conv_transpose(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Array:
        """Transposed convolution in n dimensions.

        Shapes:
            ``(batch, in, *size)`` with ``(in, out/groups, *kernel)`` gives
            ``(batch, out, *new_size)``, where ``new`` is
            ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.
        """
        n = len(x.shape) - 2
        stride = at_least(per_axis(stride, n, "stride"), 1, "stride")
        dilation = at_least(per_axis(dilation, n, "dilation"), 1, "dilation")
        extra = at_least(per_axis(output_padding, n, "output_padding"), 0, "output_padding")
        extra = geometry.below_steps(extra, stride, dilation)
        padding = at_least(per_axis(padding, n, "padding"), 0, "padding")
        y = self.convolve_transposed(x, weight, stride, padding, extra, dilation, groups)
        return self._add_bias(y, bias)

    def max_pool(
        self,
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Array:
        """Return the maximum of each window; `stride` is the kernel's size when not given.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        n = len(x.shape) - 2
        settings = geometry.pool_settings(n, kernel_size, stride, padding, dilation)
        kernel, stride, padding, dilation = settings
        pads = geometry.pool_pads_per_axis(x.shape[2:], settings, ceil_mode)
        return self.max_windows(x, kernel, stride, pads, dilation)

    def avg_pool(
        self,
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Array:
        """Return the average of each window; `stride` is the kernel's size when not given.

        Args:
            x: The input.
            kernel_size, stride, padding: One number, or one for each axis.
            ceil_mode: Whether to keep a last window that extends beyond the end; it is averaged
                over the elements that it covers.
            count_include_pad: Whether padding counts as elements of value zero.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        size = x.shape[2:]
        settings = geometry.pool_settings(len(size), kernel_size, stride, padding, 1)
        kernel, stride, padding, _ = settings
        pads = geometry.pool_pads_per_axis(size, settings, ceil_mode)
        divisors = []
        for row in zip(size, kernel, stride, padding, pads, strict=True):
            divisors.append(geometry.pool_divisor(*row, count_include_pad))
        divisor = reduce(np.multiply.outer, divisors)
        sums = self.sum_windows(x, kernel, stride, pads)
        return sums * self.constant(1.0 / divisor, like=x)

    def adaptive_avg_pool(self, x: Array, output_size: Sizes) -> Array:
        """Average over windows that cover the input evenly.

        The output may be larger than the input.
        """
        sizes = at_least(per_axis(output_size, len(x.shape) - 2, "output_size"), 1, "output_size")
        if set(sizes) == {1}:
            dims = tuple(range(2, len(x.shape)))
            return self.mean(x, dim=dims, keepdim=True)
        for dim, size in enumerate(sizes, start=2):
            x = self.resample(x, geometry.adaptive_matrix(x.shape[dim], size), dim)
        return x

    def adaptive_max_pool(self, x: Array, output_size: Sizes) -> Array:
        """Return the maxima of windows that cover the input evenly.

        Of equal maxima the first one gets the gradient.
        """
        sizes = at_least(per_axis(output_size, len(x.shape) - 2, "output_size"), 1, "output_size")
        # The last axis comes first: of equal maxima the first in row-major order is then taken.
        for dim in range(len(sizes) + 1, 1, -1):
            before = (slice(None),) * dim
            maxima = []
            for start, end in geometry.adaptive_windows(x.shape[dim], sizes[dim - 2]):
                window = x[(*before, slice(start, end))]
                maxima.append(self.max(window, dim, keepdim=True))
            x = self.concatenate(maxima, dim=dim)
        return x

    def interpolate(
        self,
        x: Array,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> Array:
        """Resize the axes after the second, without antialiasing.

        Args:
            x: The input.
            size: The new size; or
            scale_factor: The new size divided by the old one. The new size is rounded down, and
                positions follow the factor itself.
            mode: ``"nearest"`` (``floor(i / scale)``), or ``"linear"``, which is bilinear and
                trilinear in 2 and 3 dimensions (both names are accepted too).
            align_corners: For linear: whether the outermost elements' centres, not their edges,
                stay in place.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        sizes, scales = self._new_size(x, size, scale_factor)
        linear = _is_linear(mode, len(sizes), align_corners)
        for dim, (new, scale) in enumerate(zip(sizes, scales, strict=True), start=2):
            old = x.shape[dim]
            if linear:
                matrix = geometry.linear_matrix(old, new, align_corners, scale)
                x = self.resample(x, matrix, dim)
            elif old != new:
                index = geometry.nearest_index(old, new, scale)
                x = self.select(x, self.constant(index, like=x), dim)
        return x

    conv1d = _for_rank("conv", 1)
    conv2d = _for_rank("conv", 2)
    conv3d = _for_rank("conv", 3)
    conv_transpose1d = _for_rank("conv_transpose", 1)
    conv_transpose2d = _for_rank("conv_transpose", 2)
    conv_transpose3d = _for_rank("conv_transpose", 3)
    max_pool1d = _for_rank("max_pool", 1)
    max_pool2d = _for_rank("max_pool", 2)
    max_pool3d = _for_rank("max_pool", 3)
    avg_pool1d = _for_rank("avg_pool", 1)
    avg_pool2d = _for_rank("avg_pool", 2)
    avg_pool3d = _for_rank("avg_pool", 3)
    adaptive_avg_pool1d = _for_rank("adaptive_avg_pool", 1)
    adaptive_avg_pool2d = _for_rank("adaptive_avg_pool", 2)
    adaptive_avg_pool3d = _for_rank("adaptive_avg_pool", 3)
    adaptive_max_pool1d = _for_rank("adaptive_max_pool", 1)
    adaptive_max_pool2d = _for_rank("adaptive_max_pool", 2)
    adaptive_max_pool3d = _for_rank("adaptive_max_pool", 3)

    def resample(self, x: Array, matrix: np.ndarray, dim: int) -> Array:
        """Apply an (out, in) matrix along one axis; the identity is skipped."""
        if np.array_equal(matrix, np.eye(len(matrix))):
            return x
        last = len(x.shape) - 1
        transposed = self.constant(np.ascontiguousarray(matrix.T), like=x)
        if dim == last:
            return self.matmul(x, transposed)
        dim_last = [*range(dim), *range(dim + 1, last + 1), dim]
        dim_back = [*range(dim), last, *range(dim, last)]
        product = self.matmul(self.permute(x, dim_last), transposed)
        return self.permute(product, dim_back)

    def _add_bias(self, y: Array, bias: Array | None) -> Array:
        if bias is None:
            return y
        return y + self._per_channel(bias, y)

    def _new_size(
        self, x: Array, size: Sizes | None, scale_factor: Any
    ) -> tuple[tuple[int, ...], tuple]:
        n = len(x.shape) - 2
        if (size is None) == (scale_factor is None):
            raise SettingError("interpolate: give either size or scale_factor")
        if size is not None:
            return at_least(per_axis(size, n, "size"), 1, "size"), (None,) * n
        if isinstance(scale_factor, int | float):
            scales = (scale_factor,) * n
        else:
            scales = tuple(scale_factor)
        if len(scales) != n:
            raise SettingError(
                f"interpolate: scale_factor={scale_factor!r}; wanted one number, or one for each "
                f"of {n} axes"
            )
        sizes = tuple(map(geometry.resized, x.shape[2:], scales))
        if min(sizes) < 1:
            raise ShapeError(
                f"interpolate: scale_factor={scale_factor!r} leaves nothing of shape "
                f"{tuple(x.shape)}"
            )
        return sizes, tuple(float(s) for s in scales)


def _is_linear(mode: str, n: int, align_corners: bool) -> bool:
    names = {1: "linear", 2: "bilinear", 3: "trilinear"}
    if mode in ("linear", names.get(n)):
        return True
    if mode != "nearest":
        raise SettingError(
            f"interpolate: mode={mode!r}; wanted 'nearest' or 'linear' for an input with {n} "
            "spatial axes"
        )
    if align_corners:
        raise SettingError("interpolate: align_corners=True is for mode='linear' only")
    return False
